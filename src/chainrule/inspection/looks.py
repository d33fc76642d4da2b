"""What all pages share in their looks: colours in light and dark, type, headings (looks.css).

Lives here: that file, before a page's own. Not here: what one page alone has (style.css, page.css).
"""

from pathlib import Path


def style(own: Path) -> str:
    """The style sheet of a page: the shared one, then its own."""
    shared = Path(__file__).with_name("looks.css")
    return "".join(file.read_text(encoding="utf-8") for file in (shared, own))
