"""The table of a comparison in the terminal, best first, in 80 columns or more."""

import math
import sys

from chainrule.report import quantities
from chainrule.report.results import Results, Row, ranked


def print_table(results: Results) -> None:
    """Print what was compared, and a line a model."""
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
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    rows = [_cells(row) for row in ranked(results.rows)]
    room = console.width
    for place, name in enumerate(("model", "bits/byte", "perplexity", "size", "sec")):
        width = max(len(name), *(len(cells[place]) for cells in rows))
        table.add_column(name, justify="right" if place else "left", no_wrap=True, width=width)
        room -= width + 1
    table.add_column("sample", no_wrap=True, overflow="ellipsis", width=max(room, 6))  # what is left
    for cells in rows:
        table.add_row(*cells)
    console.print(table, markup=False, highlight=False)


def _cells(row: Row) -> tuple[str, ...]:
    is_comparable = row.is_ranked or math.isinf(row.bits_per_byte)
    return (
        row.name,
        quantities.bits(row.bits_per_byte) + ("" if is_comparable else "*"),
        quantities.perplexity(row.perplexity),
        quantities.size(row.size_bytes),
        f"{row.train_seconds:.2f}",
        row.sample.replace("\n", " ") if row.is_ranked else f"({row.note})",
    )
