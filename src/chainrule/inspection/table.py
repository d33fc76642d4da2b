"""HTML tables with accessible labels."""

import html
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from chainrule.inspection.foreign import to_printable


class Markup(str):
    """A cell that is already HTML; plain strings are escaped."""

    __slots__ = ()


Rows = Sequence[Sequence[str]]


class Group(NamedTuple):
    """Rows under a heading."""

    heading: str
    rows: Rows


class TableStyle(NamedTuple):
    """HTML attributes of a table and its cells."""

    table: str = ""
    head: str = ""
    cell: str = ""
    number: str = ""
    is_scrolling: bool = False  # scrolls horizontally on narrow pages


PLAIN: Final = TableStyle()
_RULED: Final = (
    "padding:.15em .7em;text-align:right;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)"
)
RULED: Final = TableStyle(
    table=' style="border-collapse:collapse;font-size:.9em"',
    head=f' style="{_RULED}"',
    cell=f' style="white-space:nowrap;{_RULED}"',
    is_scrolling=True,
)
READ: Final = TableStyle(table=' class="read-table"', number=' class="read-number"')
"""Uses `reading.STYLE`, which must be on the page."""


def html_table(
    header: Sequence[str],
    rows: Rows = (),
    *,
    label: str,
    groups: Sequence[Group] = (),
    style: TableStyle = PLAIN,
    numbers: Container[int] = (),
    is_headed: bool = False,
) -> str:
    """Return a `<table>` of rows or groups; `label` is its accessible name.

    `numbers` are the numeric columns; `is_headed` makes the first cell of each row a header.

    >>> html_table(["n"], [["<1"]], label="Counts")[-46:]
    '<tbody><tr><td>&lt;1</td></tr></tbody></table>'
    """

    def row(cells: Sequence[str]) -> str:
        cells_html = [
            f'<th scope="row">{_cell_html(cell)}</th>'
            if is_headed and column == 0
            else f"<td{style.number if column in numbers else style.cell}>{_cell_html(cell)}</td>"
            for column, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(cells_html)}</tr>"

    span = f'colspan="{len(header)}"'
    bodies = [] if groups else [f"<tbody>{''.join(map(row, rows))}</tbody>"]
    for group in groups:
        heading = f'<tr><th {span} scope="rowgroup">{_cell_html(group.heading)}</th></tr>'
        rows_html = "".join(map(row, group.rows)) or f"<tr><td {span}>none</td></tr>"
        bodies.append(f"<tbody>{heading}{rows_html}</tbody>")
    names = "".join(f'<th scope="col"{style.head}>{_cell_html(name)}</th>' for name in header)
    content = f"<thead><tr>{names}</tr></thead>{''.join(bodies)}"
    table = f'<table{style.table} aria-label="{html.escape(to_printable(label))}">{content}</table>'
    return f'<div style="overflow-x:auto">{table}</div>' if style.is_scrolling else table


def _cell_html(cell: str) -> str:
    return cell if isinstance(cell, Markup) else html.escape(to_printable(cell))
