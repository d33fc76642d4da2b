"""The style sheet shared by all HTML pages (looks.css)."""

from pathlib import Path


def read_stylesheet(page_css: Path) -> str:
    """Return the shared style sheet followed by that of the page."""
    shared = Path(__file__).with_name("looks.css")
    return "".join(file.read_text(encoding="utf-8") for file in (shared, page_css))
