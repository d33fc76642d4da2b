"""The table of models: best first, then those that cannot be ranked, each with the reason.

Lives here: rows -> `<table>`. Not here: their order (results.py), sorting by hand (sort.js).
"""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from chainrule.report import quantities
from chainrule.report.results import Row, contenders, is_contender, ranked

HEADINGS = (
    ("", "Rank"),
    ("Model", "Name of the model"),
    ("Bits / byte", "Bits per byte of the test text; lower is better"),
    ("vs best", "How many more bits than the best model"),
    ("Perplexity", "Perplexity per token"),
    ("Per word", "Perplexity per word"),
    ("Size", "Size on disk"),
    ("Training", "Time to train"),
    ("Sample", "Text drawn from the model"),
)
LONGEST_SAMPLE = 1200  # characters shown


class Cell(NamedTuple):
    """What is shown and what it sorts by."""

    shown: str
    value: float | str
    remark: str = ""

    def to_html(self) -> str:
        """A number stands to the right."""
        is_number = not isinstance(self.value, str)
        value = ("Infinity" if self.value == math.inf else f"{self.value:.9g}") if is_number else self.value
        remark = f' title="{html.escape(self.remark)}"' if self.remark else ""
        kind = ' class="number"' if is_number else ""
        return f'<td{kind}{remark} data-value="{html.escape(str(value))}">{self.shown}</td>'


def models_table(rows: Sequence[Row]) -> str:
    """Every row; the ranked ones in a body of their own, so that the others stay below however one sorts."""
    ordered = ranked(rows)
    first = contenders(rows)
    best = first[0].bits_per_byte if first else math.nan
    bodies = [_row(place, row, best) for place, row in enumerate(first, start=1)]
    others = [_row(0, row, best) for row in ordered if not is_contender(row)]
    heads = "".join(f'<th scope="col" title="{remark}">{name}</th>' for name, remark in HEADINGS)
    parting = f'<tbody class="parting"><tr><th colspan="{len(HEADINGS)}">Not ranked</th></tr></tbody>'
    return (
        '<div class="wide" role="region" aria-label="All models" tabindex="0"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(bodies)}</tbody>"
        + (f'{parting}<tbody class="unranked">{"".join(others)}</tbody>' if others else "")
        + "</table></div>"
    )


def _row(place: int, row: Row, best: float) -> str:
    excess = row.bits_per_byte / best - 1 if place and best else math.inf
    behind = f"+{quantities.share(excess)}" if place > 1 and math.isfinite(excess) else ""
    rate = f"{row.train_tokens_per_second:,.0f} tokens a second"
    cells = (
        Cell(str(place) if place else "–", place or math.inf),
        Cell(_name(row), row.name),
        Cell(quantities.bits(row.bits_per_byte), row.bits_per_byte),
        Cell(behind, excess),
        Cell(quantities.perplexity(row.perplexity), row.perplexity),
        Cell(quantities.perplexity(row.perplexity_per_word), row.perplexity_per_word),
        Cell(quantities.size(row.size_bytes), row.size_bytes, f"{row.parameters:,} parameters"),
        Cell(quantities.duration(row.train_seconds), row.train_seconds, rate),
        Cell(_sample(row.sample), row.sample[:40]),
    )
    return f"<tr>{''.join(cell.to_html() for cell in cells)}</tr>"


def _name(row: Row) -> str:
    """The name, the family where the name does not begin with it, and the note."""
    is_told = row.name.startswith(row.family)
    family = "" if is_told else f' <span class="aside">{html.escape(row.family)}</span>'
    note = f'<span class="note" dir="auto">{html.escape(row.note)}</span>' if row.note else ""
    return f"<bdi>{html.escape(row.name)}</bdi>{family}{note}"


def _sample(sample: str) -> str:
    """One line, which opens to the whole."""
    if not sample.strip():
        return '<span class="aside">nothing</span>'
    text = sample[:LONGEST_SAMPLE] + ("…" if len(sample) > LONGEST_SAMPLE else "")
    return f'<details><summary dir="auto">{html.escape(text)}</summary></details>'
