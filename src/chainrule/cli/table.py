"""The table of a comparison in the terminal, best first, in 80 columns or more."""

import math
import sys
from collections.abc import Iterator

from chainrule.report import quantities
from chainrule.report.results import Results, Row, best_of, contenders, groups, is_contender, ranked

BEST = "† best of its family or tokenizer"
STILL_FALLING = "* still improving when its time ran out: more time would lower it"


def print_table(results: Results) -> None:
    """Print what was compared, a line for each model or group of models, and the remarks on them."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100)
    split = results.split
    console.print(
        f"{results.text}: {split.train_tokens:,} training and {split.test_tokens:,} test tokens, "
        f"tokenizer {results.tokenizer}, text sha256 {results.text_sha256[:12]}",
        highlight=False,
        markup=False,
    )
    columns = _columns(results)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    room = console.width
    for name, cells in columns.items():
        width = max(len(name), *map(len, cells))
        if name == "sample":
            table.add_column(name, no_wrap=True, overflow="ellipsis", width=max(room, 6))  # what is left
            break
        table.add_column(
            name, justify="left" if name in ("model", "tokenizer") else "right", no_wrap=True, width=width
        )
        room -= width + 1
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(table, markup=False, highlight=False)
    for line in _footnotes(results):
        console.print(line, markup=False, highlight=False)


def _columns(results: Results) -> dict[str, list[str]]:
    """The cells of each column by its heading; columns that would be empty are left out."""
    shown = groups(results.rows)
    lines = [(group[0], group) for group in shown]
    lines += [(row, (row,)) for row in ranked(results.rows) if not is_contender(row)]
    rows = [row for row, _ in lines]
    marks = best_of(results.rows)
    columns = {
        "model": [_name(group, row.name in marks) for row, group in lines],
        "tokenizer": _tokenizers(rows),
        "bits/byte": [_bits(row) for row in rows],
        "sd": ["" if row.sd is None else f"{row.sd:.3f}" for row in rows],
        "perplexity": [quantities.perplexity(row.perplexity) for row in rows],
        "size": [quantities.size(row.size_bytes) for row in rows],
        "sec": [f"{row.train_seconds:.2f}" for row in rows],
        "epochs": ["" if row.epochs is None else f"{row.epochs:.3g}" for row in rows],
        "sample": [row.sample.replace("\n", " ") if row.is_ranked else f"({row.note})" for row in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells) or name == "sample"}


def _tokenizers(rows: list[Row]) -> list[str]:
    """The tokenizer of each row; empty where all rows have the same one, which the line above the table names."""
    names = [row.tokenizer for row in rows]
    return names if len(set(names)) > 1 else [""] * len(names)


def _name(group: tuple[Row, ...], is_best: bool) -> str:
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{group[0].name}{more}{' †' if is_best else ''}"


def _bits(row: Row) -> str:
    """Bits per byte: marked where training ran out of time, in brackets where they are no probability's."""
    shown = quantities.bits(row.bits_per_byte)
    if not row.is_ranked and not math.isinf(row.bits_per_byte):
        return f"({shown})"
    return f"{shown}{'*' if row.is_still_falling else ''}"


def _footnotes(results: Results) -> Iterator[str]:
    best = contenders(results.rows)[:1]
    if best and best[0].difference is not None:
        yield f"{best[0].name}: {best[0].difference.describe()}"
    if best_of(results.rows):
        yield BEST
    falling = [row for row in ranked(results.rows) if row.is_still_falling]
    if falling:
        yield STILL_FALLING
    yield from (f"  {row.name}: {row.status}" for row in falling if row.family != "mixture")
    yield from results.remarks
