"""Print the results table of `chainrule compare`, best model first."""

import math
import re
import sys
from collections.abc import Iterator
from typing import Final

from chainrule.comparison.results import Results, Row, find_wins, group_rows, is_rankable, rank_rows, rankable_rows
from chainrule.plots import formatting

BEST = "† best of its family or tokenizer"
STILL_FALLING = "* still improving when its time ran out: more time would lower it"

PIPED_WIDTH: Final = 100
MIN_SAMPLE: Final = 10
"""Minimum width of the sample column; if less is left, the column is omitted."""
MIN_NAME: Final = 16
TEXT_COLUMNS: Final = ("model", "tokenizer", "sample")


def print_table(results: Results, width: int | None = None) -> None:
    """Print a summary line, the table with one row per model or group of models, and footnotes.

    `width` defaults to the terminal width, or to 100 columns if stdout is not a terminal.
    """
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = PIPED_WIDTH
    console = Console(file=sys.stdout, width=width)
    split = results.split
    console.print(
        f"{results.text}: {split.train_tokens:,} training and {split.test_tokens:,} test tokens, "
        f"tokenizer {results.tokenizer}, text sha256 {results.text_sha256[:12]}",
        highlight=False,
        markup=False,
    )
    for line in _table(results, console.width):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in _footnotes(results):
        console.print(line, markup=False, highlight=False)


def _table(results: Results, width: int) -> Iterator[str]:
    """Yield the lines of the table, headings first, at most `width` columns wide unless the numbers need more.

    To fit, samples are truncated, then omitted, then model names are truncated.
    """
    from rich.cells import cell_len

    columns = _columns(results)
    widths = {heading: max(map(cell_len, (heading, *cells))) for heading, cells in columns.items()}
    spare = width - sum(widths.values()) - len(widths) + 1  # one blank between columns
    sample_width = min(widths["sample"], widths["sample"] + spare)
    if sample_width < MIN_SAMPLE:
        spare += widths.pop("sample") + 1
        del columns["sample"]
        widths["model"] = min(widths["model"], max(MIN_NAME, widths["model"] + spare))
    else:
        widths["sample"] = sample_width
    for cells in zip(*([heading, *column] for heading, column in columns.items()), strict=True):
        line = (_aligned(cell, heading, widths[heading]) for cell, heading in zip(cells, widths, strict=True))
        yield " ".join(line).rstrip()


def _aligned(cell: str, heading: str, width: int) -> str:
    """Pad a cell to the width of its column: text left-aligned, numbers right-aligned."""
    from rich.cells import cell_len, set_cell_size

    if heading not in TEXT_COLUMNS:
        return cell.rjust(width)
    if cell_len(cell) <= width:
        return set_cell_size(cell, width)
    name, suffix = _split_name(cell) if heading == "model" else (cell, "")
    return set_cell_size(name, max(0, width - cell_len(suffix) - 1)) + "…" + suffix


def _split_name(cell: str) -> tuple[str, str]:
    """Split a cell into the model name and its suffix (number of further models in the row, † mark)."""
    name = re.sub(r"(?: and \d+ more)?(?: †)?$", "", cell)
    return name, cell[len(name) :]


def _columns(results: Results) -> dict[str, list[str]]:
    """Return the cells of each column by heading, without empty columns."""
    shown = group_rows(results.rows)
    lines = [(group[0], group) for group in shown]
    lines += [(row, (row,)) for row in rank_rows(results.rows) if not is_rankable(row)]
    rows = [row for row, _ in lines]
    marks = find_wins(results.rows)
    columns = {
        "model": [_name(group, row.name in marks) for row, group in lines],
        "tokenizer": _tokenizers(rows),
        "bits/byte": [_bits(row) for row in rows],
        "sd": ["" if row.sd is None else f"{row.sd:.3f}" for row in rows],
        "perplexity": [formatting.format_perplexity(row.perplexity) for row in rows],
        "size": [formatting.format_size(row.size_bytes) for row in rows],
        "sec": [f"{row.train_seconds:.2f}" for row in rows],
        "epochs": ["" if row.epochs is None else f"{row.epochs:.3g}" for row in rows],
        "sample": [row.sample.replace("\n", " ") if row.is_ranked else f"({row.note})" for row in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells) or name == "sample"}


def _tokenizers(rows: list[Row]) -> list[str]:
    """Return the tokenizer of each row; empty strings if all rows share one, named in the summary line."""
    names = [row.tokenizer for row in rows]
    return names if len(set(names)) > 1 else [""] * len(names)


def _name(group: tuple[Row, ...], is_best: bool) -> str:
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{group[0].name}{more}{' †' if is_best else ''}"


def _bits(row: Row) -> str:
    """Format bits per byte: `*` if training ran out of time, brackets for unnormalized scores."""
    text = formatting.format_bits(row.bits_per_byte)
    if not row.is_ranked and not math.isinf(row.bits_per_byte):
        return f"({text})"
    return f"{text}{'*' if row.is_still_falling else ''}"


def _footnotes(results: Results) -> Iterator[str]:
    best = rankable_rows(results.rows)[:1]
    if best and best[0].difference is not None:
        yield f"{best[0].name}: {best[0].difference.describe()}"
    if find_wins(results.rows):
        yield BEST
    falling = [row for row in rank_rows(results.rows) if row.is_still_falling]
    if falling:
        yield STILL_FALLING
    yield from (f"  {row.name}: {row.status}" for row in falling if row.family != "mixture")
    yield from results.remarks
