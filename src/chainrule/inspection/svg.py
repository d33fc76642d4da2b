"""A drawn SVG made fit for a page: text in the page's colour and font, a title, no names that could clash.

Lives here: str -> str, for a page or for a file of its own. Not here: drawing (plots.py).
"""

import html
import re
from typing import Final

INK: Final = "#0a0b0c"
"""Drawn in this colour, shown in the colour of the text around the figure."""

COLOURS: Final = ("#fff", "#1b1f24", "#111418", "#e8eaed")
"""Paper and ink of a figure that stands alone, in the light and in the dark."""

_FONT: Final = re.compile(r"font-family: [^;\"]*;? ?")
_ROOT: Final = re.compile(r"<svg [^>]*>")
_VIEW_BOX: Final = re.compile(r'viewBox="([^"]*)"')
_STYLE: Final = re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
_CLIP: Final = re.compile(r' clip-path="[^"]*"|<defs>\s*<clipPath.*?</clipPath>\s*</defs>', re.DOTALL)
_ID: Final = re.compile(r' id="([^"]*)"')


def adapt(drawn: str, title: str, description: str) -> str:
    """One `<svg>` element that inherits colour and font, scales with the page and says what it shows.

    Ids that nothing refers to are dropped, since several figures share one page; so are clip paths, which
    refer by url() and would cut nothing: all that is drawn is meant to be seen.
    """
    root = _ROOT.search(drawn)
    assert root is not None
    view_box = _VIEW_BOX.search(root[0])
    assert view_box is not None
    body = _STYLE.sub("", drawn[root.end() :]).replace("xlink:href", "href").replace(INK, "currentColor")
    body = _CLIP.sub("", _FONT.sub("", body))
    used = set(re.findall(r'href="#([^"]+)"', body))
    body = _ID.sub(lambda match: match[0] if match[1] in used else "", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box[1]}" role="img" '
        f'font-family="system-ui, sans-serif" fill="currentColor" stroke-linejoin="round" '
        f'aria-label="{html.escape(f"{title}. {description}")}">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>{body.strip()}"
    )


def standalone(drawn: str) -> str:
    """The same as a file of its own, with paper and ink that follow the reader's light or dark."""
    paper, ink, dark, light = COLOURS
    style = (
        f"<style>:root{{background:{paper};color:{ink}}}"
        f"@media(prefers-color-scheme:dark){{:root{{background:{dark};color:{light}}}}}</style>"
    )
    return _ROOT.sub(lambda match: match[0] + style, drawn, count=1) + "\n"
