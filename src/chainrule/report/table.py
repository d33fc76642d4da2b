"""HTML table of models, best first, followed by those that cannot be ranked."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from chainrule.report import quantities
from chainrule.report.results import Row, find_wins, group_rows, is_rankable, rank_rows, rankable_rows

HEADINGS = {
    "rank": ("", "Rank"),
    "model": ("Model", "Name of the model"),
    "tokenizer": ("Tokenizer", "Kind of tokenizer"),
    "bits": ("Bits / byte", "Bits per byte of the test text; lower is better"),
    "behind": ("vs best", "How many more bits than the best model"),
    "perplexity": ("Perplexity", "Perplexity per token"),
    "word-perplexity": ("Per word", "Perplexity per word"),
    "size": ("Size", "Size on disk"),
    "time": ("Training", "Time to train"),
    "epochs": ("Epochs", "How often the training text was read (networks)"),
    "status": ("Status", "How training ended"),
    "sample": ("Sample", "Text drawn from the model"),
}
"""Title and description of each column by CSS class."""
TEXT_COLUMNS = ("model", "tokenizer", "status", "sample")
MAX_SAMPLE_LENGTH = 1200  # characters shown


class Cell(NamedTuple):
    """Displayed content, sort value and tooltip of a table cell."""

    shown: str
    value: float | str
    tooltip: str = ""

    def to_html(self, column: str) -> str:
        """Render the cell; numbers are right-aligned."""
        is_number = not isinstance(self.value, str)
        value = ("Infinity" if self.value == math.inf else f"{self.value:.9g}") if is_number else self.value
        title = f' title="{html.escape(self.tooltip)}"' if self.tooltip else ""
        kind = f"{column} number" if is_number else column
        return f'<td class="{kind}"{title} data-value="{html.escape(str(value))}">{self.shown}</td>'


def models_table(rows: Sequence[Row]) -> str:
    """Render all rows; unranked rows are in a separate table body, so that sorting keeps them last."""
    ordered = rank_rows(rows)
    rankable = rankable_rows(rows)
    best = rankable[0].bits_per_byte if rankable else math.nan
    wins = find_wins(rows)
    columns = _columns(rows)
    bodies = []
    rank = 1
    for group in group_rows(rows):
        bodies.append(_row(columns, rank, group, best, wins.get(group[0].name, ())))
        rank += len(group)
    unranked = [_row(columns, 0, (row,), best) for row in ordered if not is_rankable(row)]
    heads = "".join(map(_heading, columns))
    separator = f'<tbody class="parting"><tr><th colspan="{len(columns)}">Not ranked</th></tr></tbody>'
    return (
        '<div class="wide" role="region" aria-label="All models" tabindex="0"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(bodies)}</tbody>"
        + (f'{separator}<tbody class="unranked">{"".join(unranked)}</tbody>' if unranked else "")
        + "</table></div>"
        + _footnotes(rows)
    )


def _columns(rows: Sequence[Row]) -> list[str]:
    """Columns to show; the tokenizer column only if rows differ in it."""
    has_several = len({row.tokenizer for row in rows}) > 1
    return [name for name in HEADINGS if name != "tokenizer" or has_several]


def _heading(column: str) -> str:
    title, description = HEADINGS[column]
    kind = column if column in TEXT_COLUMNS else f"{column} number"
    return f'<th scope="col" class="{kind}" title="{description}">{title}</th>'


def _footnotes(rows: Sequence[Row]) -> str:
    notes = []
    if any(row.is_still_falling for row in rows):
        notes.append("* Still improving when its time ran out: more time would lower it.")
    if any(row.sd is not None for row in rows):
        notes.append("± The standard deviation over several seeds, of which the figures are means.")
    return "".join(f'<p class="note">{note}</p>' for note in notes)


def _row(columns: Sequence[str], rank: int, group: tuple[Row, ...], best: float, wins: Sequence[str] = ()) -> str:
    row = group[0]
    excess = row.bits_per_byte / best - 1 if rank and best else math.inf
    behind = f"+{quantities.format_percent(excess)}" if rank > 1 and math.isfinite(excess) else ""
    rate = f"{row.train_tokens_per_second:,.0f} tokens a second"
    epochs = "" if row.epochs is None else f"{row.epochs:.3g}"
    steps = "" if row.steps is None else f"{row.steps:,} steps"
    cells = {
        "rank": Cell(str(rank) if rank else "–", rank or math.inf),
        "model": Cell(_name(group, wins), row.name),
        "tokenizer": Cell(html.escape(row.tokenizer), row.tokenizer),
        "bits": Cell(_bits(row), row.bits_per_byte),
        "behind": Cell(behind, excess, row.difference.describe() if row.difference else ""),
        "perplexity": Cell(quantities.format_perplexity(row.perplexity), row.perplexity),
        "word-perplexity": Cell(quantities.format_perplexity(row.perplexity_per_word), row.perplexity_per_word),
        "size": Cell(quantities.format_size(row.size_bytes), row.size_bytes, f"{row.parameters:,} parameters"),
        "time": Cell(quantities.format_duration(row.train_seconds), row.train_seconds, rate),
        "epochs": Cell(epochs, -1 if row.epochs is None else row.epochs, steps),
        "status": Cell(_status(row), row.status),
        "sample": Cell(_sample(row.sample), row.sample[:40]),
    }
    return f"<tr>{''.join(cells[column].to_html(column) for column in columns)}</tr>"


def _name(group: tuple[Row, ...], wins: Sequence[str]) -> str:
    """Model name with family, wins and notes."""
    row = group[0]
    names_family = row.name.startswith(row.family)
    family = "" if names_family else f' <span class="aside">{html.escape(row.family)}</span>'
    best = f' <span class="mark">best of {html.escape(quantities.join_words(list(wins)))}</span>' if wins else ""
    note = f'<span class="note" dir="auto">{html.escape(row.note)}</span>' if row.note else ""
    if row.difference is not None:
        note += (
            f'<span class="note" title="{html.escape(row.difference.describe())}">{row.difference.short()}</span>'
        )
    return f"<bdi>{html.escape(row.name)}</bdi>{family}{best}{note}{_group_details(group)}"


def _group_details(group: tuple[Row, ...]) -> str:
    """Collapsible list of the other models of a group."""
    if len(group) == 1:
        return ""
    lines = "".join(
        f"<li><bdi>{html.escape(row.name)}</bdi> {quantities.format_bits(row.bits_per_byte)}</li>"
        for row in group[1:]
    )
    spread = quantities.format_percent(group[-1].bits_per_byte / group[0].bits_per_byte - 1)
    summary = f"<summary>and {len(group) - 1} more within {spread}</summary>"
    return f'<details class="group">{summary}<ul>{lines}</ul></details>'


def _bits(row: Row) -> str:
    asterisk = '<span title="still improving when its time ran out">*</span>' if row.is_still_falling else ""
    deviation = "" if row.sd is None else f'<span class="note">± {row.sd:.3f}</span>'
    return f"{quantities.format_bits(row.bits_per_byte)}{asterisk}{deviation}"


def _status(row: Row) -> str:
    advice = "".join(f'<span class="note">{html.escape(words)}</span>' for words in row.advice)
    status = "" if row.status == "complete" else html.escape(row.status)
    return f"{status}{advice}"


def _sample(sample: str) -> str:
    """Collapsible sample text."""
    if not sample.strip():
        return '<span class="aside">nothing</span>'
    text = sample[:MAX_SAMPLE_LENGTH] + ("…" if len(sample) > MAX_SAMPLE_LENGTH else "")
    return f'<details><summary dir="auto">{html.escape(text)}</summary></details>'
