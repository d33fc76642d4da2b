"""Tables as HTML, with a name for those who hear them.

Lives here: the one way rows become a `<table>`, and its looks. Not here: what stands in the cells.
"""

import html
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from chainrule.inspection.foreign import plain_text


class Markup(str):
    """A cell that is HTML already; any other is text."""

    __slots__ = ()


Rows = Sequence[Sequence[str]]


class Group(NamedTuple):
    """Rows under a heading of their own."""

    heading: str
    rows: Rows


class Look(NamedTuple):
    """Attributes of a table and of its cells; those of the page, where there are none."""

    table: str = ""
    head: str = ""
    cell: str = ""
    number: str = ""
    is_scrolling: bool = False  # by itself, where the page is narrow


PLAIN: Final = Look()
_RULED: Final = (
    "padding:.15em .7em;text-align:right;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)"
)
RULED: Final = Look(
    table=' style="border-collapse:collapse;font-size:.9em"',
    head=f' style="{_RULED}"',
    cell=f' style="white-space:nowrap;{_RULED}"',
    is_scrolling=True,
)
READ: Final = Look(table=' class="read-table"', number=' class="read-number"')
"""As `reading.STYLE` says, which must stand on the page."""


def html_table(
    header: Sequence[str],
    rows: Rows = (),
    *,
    label: str,
    groups: Sequence[Group] = (),
    look: Look = PLAIN,
    numbers: Container[int] = (),
    is_headed: bool = False,
) -> str:
    """Rows, or groups of them; `label` is what a screen reader says first.

    `numbers`: the columns that hold them; `is_headed`: the first cell of a row says what the row is.

    >>> html_table(["n"], [["<1"]], label="Counts")[-46:]
    '<tbody><tr><td>&lt;1</td></tr></tbody></table>'
    """

    def row(cells: Sequence[str]) -> str:
        made = [
            f'<th scope="row">{_shown(cell)}</th>'
            if is_headed and column == 0
            else f"<td{look.number if column in numbers else look.cell}>{_shown(cell)}</td>"
            for column, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(made)}</tr>"

    across = f'colspan="{len(header)}"'
    bodies = [] if groups else [f"<tbody>{''.join(map(row, rows))}</tbody>"]
    for group in groups:
        heading = f'<tr><th {across} scope="rowgroup">{_shown(group.heading)}</th></tr>'
        several = "".join(map(row, group.rows)) or f"<tr><td {across}>none</td></tr>"
        bodies.append(f"<tbody>{heading}{several}</tbody>")
    names = "".join(f'<th scope="col"{look.head}>{_shown(name)}</th>' for name in header)
    made = f"<thead><tr>{names}</tr></thead>{''.join(bodies)}"
    table = f'<table{look.table} aria-label="{html.escape(plain_text(label))}">{made}</table>'
    return f'<div style="overflow-x:auto">{table}</div>' if look.is_scrolling else table


def _shown(cell: str) -> str:
    return cell if isinstance(cell, Markup) else html.escape(plain_text(cell))
