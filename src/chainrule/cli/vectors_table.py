"""The table of `chainrule vectors evaluate`: a row a model, its figures as JSON or in columns."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.embeddings.vectors import WordVectors
    from chainrule.evaluation.analogies import Section, Solved
    from chainrule.evaluation.similarity import Judged, Pairs

PARTS = ("semantic", "syntactic", "all")


def of_pairs(vectors: "WordVectors", pairs: "Pairs", with_rare: bool) -> dict[str, Any]:
    """What one file of judged pairs says of vectors; `rare` is null where the words were not counted."""
    from chainrule.evaluation.similarity import judge, rarest

    document: dict[str, Any] = {"file": pairs.name, **_judged(judge(vectors.find, pairs))}
    if with_rare:
        counts = vectors.counts

        def count(word: str) -> int | None:
            row = vectors.row(word)
            if row is not None and counts is not None:
                return int(counts[row])
            return None if vectors.find(word) is None else 0  # an unknown word, known by its n-grams

        document["rare"] = None if counts is None else _judged(judge(vectors.find, rarest(pairs, count)))
    return document


def _judged(found: "Judged") -> dict[str, Any]:
    return {
        "spearman": found.rho,
        "low": found.low,
        "high": found.high,
        "found": found.found,
        "of": found.of,
        "coverage": found.coverage,
    }


def of_analogies(
    file: str | None, method: str, sections: "Sequence[Section]", solved: "Sequence[Solved]"
) -> dict[str, Any]:
    """How the questions were answered, in three sums and by section."""
    from chainrule.evaluation.analogies import summary

    sums = {name: _solved(part) for name, part in summary(sections, solved).items()}
    return {"file": file, "method": method, **sums, "sections": {part.section: _solved(part) for part in solved}}


def _solved(part: "Solved") -> dict[str, Any]:
    return {"accuracy": part.accuracy, "right": part.right, "asked": part.asked, "of": part.of}


def print_rows(rows: Sequence[dict[str, Any]], with_sections: bool) -> None:
    """All models in one table, and below it, where wanted, their sections, a column a model."""
    header = ["model", "method", "words"]
    first = rows[0]
    for pairs in first["pairs"]:
        name = Path(pairs["file"]).stem
        header += [name, "95 %", "found"] + ([f"{name} rare", "95 %", "found"] if "rare" in pairs else [])
    if "analogies" in first:
        header += [*PARTS, "asked"]
    _print_table(2, header, [_cells(row) for row in rows])
    if with_sections and "analogies" in first:
        print()
        named = [row["model"] for row in rows]
        found = [row["analogies"]["sections"] for row in rows]
        lines = [
            [name, f"{part['of']:,}", *(f"{_percent(of[name])} of {of[name]['asked']:,}" for of in found)]
            for name, part in found[0].items()
        ]
        _print_table(1, ["section", "questions", *named], lines)
    print()
    print("pairs: Spearman's rank correlation; analogies: % of the questions asked that were answered rightly")


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["model"], row["method"], f"{row['words']:,}"]
    for pairs in row["pairs"]:
        cells += _correlation(pairs)
        if "rare" in pairs:
            cells += _correlation(pairs["rare"])
    if "analogies" in row:
        found = row["analogies"]
        cells += [*(_percent(found[part]) for part in PARTS), _asked(found["all"])]
    return cells


def _correlation(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["-", "-", "-"]
    share = f"{found['found']:,}/{found['of']:,}"
    rho = "-" if math.isnan(found["spearman"]) else f"{found['spearman']:.3f}"
    reach = "-" if math.isnan(found["low"]) else f"{found['low']:.3f} to {found['high']:.3f}"
    return [rho, reach, share]


def _percent(part: dict[str, Any]) -> str:
    return "-" if math.isnan(part["accuracy"]) else f"{100 * part['accuracy']:.1f}"


def _asked(part: dict[str, Any]) -> str:
    return f"{part['asked']:,}/{part['of']:,}"


def _print_table(names: int, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be, the first `names` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [f"{cell:{'<' if i < names else '>'}{widths[i]}}" for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())
