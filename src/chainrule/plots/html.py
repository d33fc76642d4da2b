"""HTML of text coloured by surprisal, with inline styles only, for light and dark pages and notebooks."""

import html
import math
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chainrule.tokenizers.punctuation import without_joiners

FULL_BITS: Final = 16.0
"""Surprisal of full colour; the same scale for all models."""

MAX_OPACITY: Final = 0.62
"""Opacity of full colour; text keeps a contrast above 5 in light and dark mode."""

CONTROL_PICTURES: Final = (
    {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
"""Control characters as Unicode control pictures: a line feed is ␊. U+0080 to U+009F become �."""

BIDI_CONTROLS: Final[dict[int, int | str]] = {
    code: f"⟨U+{code:04X}⟩" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Names of bidirectional control characters, for plain text that cannot be isolated as in HTML."""

_TOKEN_STYLE: Final = "padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext;"
_IMPOSSIBLE_STYLE: Final = "outline:.12em dashed #d55e00;outline-offset:-.12em;"
_UNSEEN_STYLE: Final = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"


def surprisal_html(tokens: Sequence[str], bits: Sequence[float]) -> str:
    """Return the tokens coloured by bits, with the number on hover and for screen readers; joiners are removed.

    >>> "9.50 bits" in surprisal_html(["mice"], [9.5])
    True
    """
    spans = (_token_html(token, cost) for token, cost in zip(tokens, bits, strict=True))
    return f'<span dir="auto" style="display:block;line-height:1.9">{" ".join(spans)}</span>'


def format_bits(cost: float) -> str:
    """Format the bits of a token."""
    return f"{cost:.2f} bits" if math.isfinite(cost) else "impossible: infinitely many bits"


def _token_html(token: str, cost: float) -> str:
    depth = MAX_OPACITY * min(max(cost, 0.0) / FULL_BITS, 1.0)
    style = f"{_TOKEN_STYLE}background:rgba(213,94,0,{depth:.2f});"
    if not math.isfinite(cost):
        style += _IMPOSSIBLE_STYLE
    text = html.escape(without_joiners(token).translate(CONTROL_PICTURES))
    # <bdi>, so that dir=auto of the whole ignores the tooltip text.
    hidden = f'<bdi style="{_UNSEEN_STYLE}"> ({format_bits(cost)})</bdi>'
    return f'<span style="{style}" title="{format_bits(cost)}">{text}{hidden}</span>'


def to_printable(text: str) -> str:
    r"""Replace control characters by symbols and lone surrogates by question marks; does not escape HTML.

    >>> to_printable("a\n"), to_printable("\udc80")
    ('a␊', '?')
    """
    return text.translate(CONTROL_PICTURES).encode("utf-8", "replace").decode("utf-8")


def escape(text: str) -> str:
    """Return HTML in a `<bdi>` element: printable, escaped and isolated from the surrounding text direction.

    >>> escape("a<b")
    '<bdi>a&lt;b</bdi>'
    """
    return f"<bdi>{html.escape(to_printable(text))}</bdi>"


def bold(name: str) -> str:
    """Return `escape(name)` in bold."""
    return f"<b>{escape(name)}</b>"


def read_stylesheet(page_css: Path) -> str:
    """Return the shared style sheet followed by that of the page."""
    shared = Path(__file__).with_name("base.css")
    return "".join(file.read_text(encoding="utf-8") for file in (shared, page_css))


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
