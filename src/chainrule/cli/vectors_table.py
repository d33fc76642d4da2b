"""Results of `chainrule vectors evaluate`: one row per model, as JSON or as a printed table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.embeddings.vectors import WordVectors
    from chainrule.evaluation.analogies import Section, SectionResult
    from chainrule.evaluation.similarity import Pairs, SimilarityResult

PARTS = ("semantic", "syntactic", "all")


def similarity_document(vectors: "WordVectors", pairs: "Pairs", with_rare: bool) -> dict[str, Any]:
    """Evaluate word similarity on one file of judged pairs; `rare` is None if the vectors have no word counts."""
    from chainrule.evaluation.similarity import evaluate_similarity, rarest_third

    document: dict[str, Any] = {"file": pairs.name, **_judged(evaluate_similarity(vectors.find, pairs))}
    if with_rare:
        counts = vectors.counts

        def count(word: str) -> int | None:
            row = vectors.row(word)
            if row is not None and counts is not None:
                return int(counts[row])
            return (
                None if vectors.find(word) is None else 0
            )  # out of vocabulary; its vector comes from character n-grams

        document["rare"] = (
            None if counts is None else _judged(evaluate_similarity(vectors.find, rarest_third(pairs, count)))
        )
    return document


def _judged(result: "SimilarityResult") -> dict[str, Any]:
    return {
        "spearman": result.rho,
        "low": result.low,
        "high": result.high,
        "found": result.covered,
        "of": result.total,
        "coverage": result.coverage,
    }


def analogy_document(
    file: str | None, method: str, sections: "Sequence[Section]", solved: "Sequence[SectionResult]"
) -> dict[str, Any]:
    """Summarize the analogy results: semantic, syntactic, all, and by section."""
    from chainrule.evaluation.analogies import summarize

    sums = {name: _solved(part) for name, part in summarize(sections, solved).items()}
    return {"file": file, "method": method, **sums, "sections": {part.section: _solved(part) for part in solved}}


def _solved(part: "SectionResult") -> dict[str, Any]:
    return {"accuracy": part.accuracy, "right": part.correct, "asked": part.attempted, "of": part.total}


def print_rows(rows: Sequence[dict[str, Any]], with_sections: bool) -> None:
    """Print one table of all models and, optionally, one of the analogy sections with a column per model."""
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
        names = [row["model"] for row in rows]
        section_results = [row["analogies"]["sections"] for row in rows]
        lines = [
            [name, f"{part['of']:,}", *(f"{_percent(of[name])} of {of[name]['asked']:,}" for of in section_results)]
            for name, part in section_results[0].items()
        ]
        _print_table(1, ["section", "questions", *names], lines)
    print()
    print("pairs: Spearman's rank correlation; analogies: % of the attempted questions answered correctly")


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["model"], row["method"], f"{row['words']:,}"]
    for pairs in row["pairs"]:
        cells += _correlation(pairs)
        if "rare" in pairs:
            cells += _correlation(pairs["rare"])
    if "analogies" in row:
        analogies = row["analogies"]
        cells += [*(_percent(analogies[part]) for part in PARTS), _asked(analogies["all"])]
    return cells


def _correlation(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return ["-", "-", "-"]
    coverage = f"{result['found']:,}/{result['of']:,}"
    rho = "-" if math.isnan(result["spearman"]) else f"{result['spearman']:.3f}"
    interval = "-" if math.isnan(result["low"]) else f"{result['low']:.3f} to {result['high']:.3f}"
    return [rho, interval, coverage]


def _percent(part: dict[str, Any]) -> str:
    return "-" if math.isnan(part["accuracy"]) else f"{100 * part['accuracy']:.1f}"


def _asked(part: dict[str, Any]) -> str:
    return f"{part['asked']:,}/{part['of']:,}"


def _print_table(names: int, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table: the first `names` columns left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [f"{cell:{'<' if i < names else '>'}{widths[i]}}" for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())
