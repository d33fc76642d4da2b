"""What every part of an inspection gives: words, pictures, numbers.

Lives here: the shape they share, and how one shows itself in a notebook. Not here: the page (microscope/page.py).
"""

import html
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainrule.errors import UsageError
from chainrule.inspection.svg import standalone
from chainrule.lm import Floats

_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One picture, or a table, with what it says."""

    name: str  # within its section: "by-lag"
    drawing: str  # one HTML element, an `<svg>` with its title among them; legible on light and dark pages
    caption: str  # HTML: what is shown, how to read it
    is_wide: bool = False  # takes the whole width of the page

    def save(self, path: str | Path) -> None:
        """Write the drawing as a file of its own: an SVG in light and dark, or else a piece of HTML."""
        is_svg = self.drawing.startswith("<svg")
        wanted = ".svg" if is_svg else ".html"
        if Path(path).suffix.lower() != wanted:
            raise UsageError(f"{path}: this figure is written as {wanted[1:].upper()}; choose a name in {wanted}")
        Path(path).write_text(standalone(self.drawing) if is_svg else self.drawing, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f"<figure>{self.drawing}<figcaption>{self.caption}</figcaption></figure>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One question to a model, answered."""

    name: str  # its key in the JSON: "gradient_flow"
    title: str  # its heading: "Gradient flow"
    findings: tuple[str, ...] = ()  # plain sentences, the most telling first; the first goes into the verdict
    figures: tuple[Figure, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # as JSON: plain numbers, texts, lists
    arrays: Mapping[str, Floats] = field(default_factory=dict)  # the same in full, for Python

    def __getitem__(self, name: str) -> Figure:
        """The figure of this name."""
        found = {figure.name: figure for figure in self.figures}
        if name not in found:
            raise KeyError(f"there is no figure '{name}'; there are {', '.join(found)}")
        return found[name]

    def __repr__(self) -> str:
        return f"<{self.title}: {' '.join(self.findings) or 'nothing found'}>"

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{html.escape(finding)}</p>" for finding in self.findings)
        return f"<h3>{html.escape(self.title)}</h3>{words}{''.join(each._repr_html_() for each in self.figures)}"


def finite(value: float | None) -> float | None:
    """A number as JSON can hold it: None in place of an infinity or NaN.

    >>> finite(2.5), finite(math.inf)
    (2.5, None)
    """
    return float(value) if value is not None and math.isfinite(value) else None


def rounded(values: Floats) -> list[float | None]:
    """(N,) as JSON: six digits are plenty, and what is not finite is None."""
    return [finite(float(f"{value:.6g}")) for value in values.tolist()]


def plain(caption: str) -> str:
    """A caption without its tags.

    >>> plain("lag <i>k</i> &lt; 3")
    'lag k < 3'
    """
    return html.unescape(_TAG.sub("", caption))
