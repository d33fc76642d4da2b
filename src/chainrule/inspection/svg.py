"""Adapt SVG written by matplotlib for embedding: page colours and font, accessible title, no clashing ids."""

import html
import re
from typing import Final

INK: Final = "#0a0b0c"
"""Placeholder colour, replaced by the text colour of the page."""

COLOURS: Final = ("#fff", "#1b1f24", "#111418", "#e8eaed")
"""Background and text colour of a standalone figure, light then dark."""

_FONT: Final = re.compile(r"font-family: [^;\"]*;? ?")
_ROOT: Final = re.compile(r"<svg [^>]*>")
_VIEW_BOX: Final = re.compile(r'viewBox="([^"]*)"')
_STYLE: Final = re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
_CLIP: Final = re.compile(r' clip-path="[^"]*"|<defs>\s*<clipPath.*?</clipPath>\s*</defs>', re.DOTALL)
_ID: Final = re.compile(r' id="([^"]*)"')


def adapt(svg: str, title: str, description: str) -> str:
    """Return one `<svg>` element that inherits colour and font, scales with the page, and has a description.

    Drops ids without references, since several figures share a page, and clip paths, which clip nothing here.
    """
    root = _ROOT.search(svg)
    assert root is not None
    view_box = _VIEW_BOX.search(root[0])
    assert view_box is not None
    body = _STYLE.sub("", svg[root.end() :]).replace("xlink:href", "href").replace(INK, "currentColor")
    body = _CLIP.sub("", _FONT.sub("", body))
    used = set(re.findall(r'href="#([^"]+)"', body))
    body = _ID.sub(lambda match: match[0] if match[1] in used else "", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box[1]}" role="img" '
        f'font-family="system-ui, sans-serif" fill="currentColor" stroke-linejoin="round" '
        f'aria-label="{html.escape(f"{title}. {description}")}">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>{body.strip()}"
    )


def standalone(svg: str) -> str:
    """Return the SVG as a file whose colours follow the light or dark mode of the reader."""
    background, text, dark_background, dark_text = COLOURS
    style = (
        f"<style>:root{{background:{background};color:{text}}}"
        f"@media(prefers-color-scheme:dark){{:root{{background:{dark_background};color:{dark_text}}}}}</style>"
    )
    return _ROOT.sub(lambda match: match[0] + style, svg, count=1) + "\n"
