"""HTML of coloured text, tables and whole pages, for light and dark mode.

Coloured text and tables have inline styles only, so that notebooks can show them.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chainrule.tokenizers.punctuation import without_joiners

FULL_BITS: Final = 16.0
"""Surprisal of full colour; the same scale for all models."""

ORANGE: Final = "213,94,0"
BLUE: Final = "0,114,178"
"""The first two colours of `plots.figures.PALETTE`, as RGB."""

MAX_OPACITY: Final = 0.62
"""Opacity of full colour; text keeps a contrast above 5 in light and dark mode."""

CONTROL_PICTURES: Final = (
    {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
"""Control characters as Unicode control pictures: a line feed is ␊. U+0080 to U+009F become �."""

_PAGE_CONTROLS: Final = {code: picture for code, picture in CONTROL_PICTURES.items() if chr(code) not in "\n\t"}

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
    spans = (_token_html(*row) for row in zip(tokens, bits, format_bits(bits), strict=True))
    return f'<span dir="auto" style="display:block;line-height:1.9">{" ".join(spans)}</span>'


def format_bits(bits: Sequence[float]) -> list[str]:
    """Format the bits of each token."""
    return [f"{cost:.2f} bits" if math.isfinite(cost) else "impossible: infinitely many bits" for cost in bits]


def _token_html(token: str, cost: float, tooltip: str) -> str:
    depth = MAX_OPACITY * min(max(cost, 0.0) / FULL_BITS, 1.0)
    style = f"{_TOKEN_STYLE}background:rgba({ORANGE},{depth:.2f});"
    if not math.isfinite(cost):
        style += _IMPOSSIBLE_STYLE
    text = html.escape(without_joiners(token).translate(CONTROL_PICTURES))
    # <bdi>, so that dir=auto of the whole ignores the tooltip text.
    hidden = f'<bdi style="{_UNSEEN_STYLE}"> ({tooltip})</bdi>'
    return f'<span style="{style}" title="{tooltip}">{text}{hidden}</span>'


def to_printable(text: str) -> str:
    r"""Replace control characters with symbols and lone surrogates with question marks; does not escape HTML.

    >>> to_printable("a\n"), to_printable("\udc80")
    ('a␊', '?')
    """
    return text.translate(CONTROL_PICTURES).encode("utf-8", "replace").decode("utf-8")


def to_printable_all(texts: Sequence[str]) -> list[str]:
    """Return `to_printable` of each text."""
    return [to_printable(text) for text in texts]


def escape_all(texts: Sequence[str]) -> list[str]:
    """Return each text printable and escaped, without an element around it."""
    return [html.escape(to_printable(text)) for text in texts]


def escape(text: str) -> str:
    """Return HTML in a `<bdi>` element: printable, escaped and isolated from the surrounding text direction.

    >>> escape("a<b")
    '<bdi>a&lt;b</bdi>'
    """
    return f"<bdi>{html.escape(to_printable(text))}</bdi>"


def bold(name: str) -> str:
    """Return `escape(name)` in bold."""
    return f"<b>{escape(name)}</b>"


def render_page(title: str, content: str, *, stylesheet: Path, script: str = "", images: bool = False) -> str:
    """Return a self-contained page that works offline; `content` is the HTML of `<main>`.

    Control characters become symbols and lone surrogates question marks.
    """
    styles = "".join(
        file.read_text(encoding="utf-8") for file in (Path(__file__).with_name("base.css"), stylesheet)
    )
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{security_policy(script, images)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{styles}</style>\n</head>\n<body>\n<main>\n"
        f"{content}</main>\n{f'<script>{script}</script>' if script else ''}\n</body>\n</html>\n"
    )
    return page.translate(_PAGE_CONTROLS).encode("utf-8", "replace").decode("utf-8")


def security_policy(script: str, images: bool = False) -> str:
    """Return a content security policy that allows one script, inline styles and, if requested, data images."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; {'img-src data:; ' if images else ''}style-src 'unsafe-inline'; "
        f"script-src {allowed}; base-uri 'none'; form-action 'none'"
    )


def facts_html(facts: Mapping[str, str]) -> str:
    """Return a `<dl>` of names and facts; facts that are not `Markup` are escaped."""
    pairs = "".join(
        f"<div><dt>{html.escape(name)}</dt>"
        f"<dd>{fact if isinstance(fact, Markup) else f'<bdi>{html.escape(fact)}</bdi>'}</dd></div>"
        for name, fact in facts.items()
    )
    return f"<dl>{pairs}</dl>"


def json_for_script(value: object) -> str:
    """Return JSON that is safe inside a `<script>` element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


class Markup(str):
    """A cell that is already HTML; plain strings are escaped."""

    __slots__ = ()


Rows = Sequence[Sequence[str]]


class Group(NamedTuple):
    """Rows under a heading."""

    heading: str
    rows: Rows


class TableStyle(NamedTuple):
    """HTML attributes of a table and its cells; numbers are aligned to the right."""

    table: str = ""
    head: str = ""
    cell: str = ""
    number_head: str = ' style="text-align:right"'
    number: str = ' style="text-align:right"'
    is_scrolling: bool = False  # scrolls horizontally on narrow pages


PLAIN: Final = TableStyle()
_RULED: Final = "padding:.15em .7em;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)"
RULED: Final = TableStyle(
    table=' style="border-collapse:collapse;font-size:.9em"',
    head=f' style="text-align:left;{_RULED}"',
    cell=f' style="min-width:6em;text-align:left;{_RULED}"',
    number_head=f' style="text-align:right;{_RULED}"',
    number=f' style="white-space:nowrap;text-align:right;{_RULED}"',
    is_scrolling=True,
)
READ: Final = TableStyle(
    table=' class="read-table"', number_head=' class="read-number"', number=' class="read-number"'
)
"""Uses `predictions.STYLE`, which must be on the page."""


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
    names = "".join(
        f'<th scope="col"{style.number_head if column in numbers else style.head}>{_cell_html(name)}</th>'
        for column, name in enumerate(header)
    )
    content = f"<thead><tr>{names}</tr></thead>{''.join(bodies)}"
    table = f'<table{style.table} aria-label="{html.escape(to_printable(label))}">{content}</table>'
    return f'<div style="overflow-x:auto">{table}</div>' if style.is_scrolling else table


def _cell_html(cell: str) -> str:
    return cell if isinstance(cell, Markup) else html.escape(to_printable(cell))
