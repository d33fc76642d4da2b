"""The table of models: best first, then those that cannot be ranked, each with the reason."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from chainrule.report import quantities
from chainrule.report.results import Row, best_of, contenders, groups, is_contender, ranked

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
"""Title and description of each column, by its class in the page."""
TEXT_COLUMNS = ("model", "tokenizer", "status", "sample")
LONGEST_SAMPLE = 1200  # characters shown


class Cell(NamedTuple):
    """What is shown and what it sorts by."""

    shown: str
    value: float | str
    remark: str = ""

    def to_html(self, column: str) -> str:
        """The cell of a column; a number stands to the right."""
        is_number = not isinstance(self.value, str)
        value = ("Infinity" if self.value == math.inf else f"{self.value:.9g}") if is_number else self.value
        remark = f' title="{html.escape(self.remark)}"' if self.remark else ""
        kind = f"{column} number" if is_number else column
        return f'<td class="{kind}"{remark} data-value="{html.escape(str(value))}">{self.shown}</td>'


def models_table(rows: Sequence[Row]) -> str:
    """Every row or group; the ranked ones in a body of their own: the others stay below however one sorts."""
    ordered = ranked(rows)
    first = contenders(rows)
    best = first[0].bits_per_byte if first else math.nan
    marks = best_of(rows)
    columns = _columns(rows)
    bodies = []
    place = 1
    for group in groups(rows):
        bodies.append(_row(columns, place, group, best, marks.get(group[0].name, ())))
        place += len(group)
    others = [_row(columns, 0, (row,), best) for row in ordered if not is_contender(row)]
    heads = "".join(map(_heading, columns))
    parting = f'<tbody class="parting"><tr><th colspan="{len(columns)}">Not ranked</th></tr></tbody>'
    return (
        '<div class="wide" role="region" aria-label="All models" tabindex="0"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(bodies)}</tbody>"
        + (f'{parting}<tbody class="unranked">{"".join(others)}</tbody>' if others else "")
        + "</table></div>"
        + _footnotes(rows)
    )


def _columns(rows: Sequence[Row]) -> list[str]:
    """The columns shown; that of the tokenizer only where rows differ in it, as the head of the page names it."""
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


def _row(columns: Sequence[str], place: int, group: tuple[Row, ...], best: float, marks: Sequence[str] = ()) -> str:
    row = group[0]
    excess = row.bits_per_byte / best - 1 if place and best else math.inf
    behind = f"+{quantities.share(excess)}" if place > 1 and math.isfinite(excess) else ""
    rate = f"{row.train_tokens_per_second:,.0f} tokens a second"
    epochs = "" if row.epochs is None else f"{row.epochs:.3g}"
    steps = "" if row.steps is None else f"{row.steps:,} steps"
    cells = {
        "rank": Cell(str(place) if place else "–", place or math.inf),
        "model": Cell(_name(group, marks), row.name),
        "tokenizer": Cell(html.escape(row.tokenizer), row.tokenizer),
        "bits": Cell(_bits(row), row.bits_per_byte),
        "behind": Cell(behind, excess, row.difference.describe() if row.difference else ""),
        "perplexity": Cell(quantities.perplexity(row.perplexity), row.perplexity),
        "word-perplexity": Cell(quantities.perplexity(row.perplexity_per_word), row.perplexity_per_word),
        "size": Cell(quantities.size(row.size_bytes), row.size_bytes, f"{row.parameters:,} parameters"),
        "time": Cell(quantities.duration(row.train_seconds), row.train_seconds, rate),
        "epochs": Cell(epochs, -1 if row.epochs is None else row.epochs, steps),
        "status": Cell(_status(row), row.status),
        "sample": Cell(_sample(row.sample), row.sample[:40]),
    }
    return f"<tr>{''.join(cells[column].to_html(column) for column in columns)}</tr>"


def _name(group: tuple[Row, ...], marks: Sequence[str]) -> str:
    """The name, what it is the best of, the family where the name does not begin with it, and the note."""
    row = group[0]
    is_told = row.name.startswith(row.family)
    family = "" if is_told else f' <span class="aside">{html.escape(row.family)}</span>'
    best = f' <span class="mark">best of {html.escape(quantities.listing(list(marks)))}</span>' if marks else ""
    note = f'<span class="note" dir="auto">{html.escape(row.note)}</span>' if row.note else ""
    if row.difference is not None:
        note += (
            f'<span class="note" title="{html.escape(row.difference.describe())}">{row.difference.short()}</span>'
        )
    return f"<bdi>{html.escape(row.name)}</bdi>{family}{best}{note}{_others(group)}"


def _others(group: tuple[Row, ...]) -> str:
    """The models that stand in the same line, which opens to their figures."""
    if len(group) == 1:
        return ""
    lines = "".join(
        f"<li><bdi>{html.escape(row.name)}</bdi> {quantities.bits(row.bits_per_byte)}</li>" for row in group[1:]
    )
    spread = quantities.share(group[-1].bits_per_byte / group[0].bits_per_byte - 1)
    summary = f"<summary>and {len(group) - 1} more within {spread}</summary>"
    return f'<details class="group">{summary}<ul>{lines}</ul></details>'


def _bits(row: Row) -> str:
    mark = '<span title="still improving when its time ran out">*</span>' if row.is_still_falling else ""
    deviation = "" if row.sd is None else f'<span class="note">± {row.sd:.3f}</span>'
    return f"{quantities.bits(row.bits_per_byte)}{mark}{deviation}"


def _status(row: Row) -> str:
    advice = "".join(f'<span class="note">{html.escape(words)}</span>' for words in row.advice)
    status = "" if row.status == "complete" else html.escape(row.status)
    return f"{status}{advice}"


def _sample(sample: str) -> str:
    """One line, which opens to the whole."""
    if not sample.strip():
        return '<span class="aside">nothing</span>'
    text = sample[:LONGEST_SAMPLE] + ("…" if len(sample) > LONGEST_SAMPLE else "")
    return f'<details><summary dir="auto">{html.escape(text)}</summary></details>'
