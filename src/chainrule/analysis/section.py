"""The parts of an inspection report: sections with findings, figures and numbers."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainrule.errors import UsageError
from chainrule.lm import Floats
from chainrule.plots.figures import standalone
from chainrule.storage.strict_json import replace_nonfinite

_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A plot or table with its caption."""

    name: str  # unique within its section: "by-lag"
    drawing: str  # one HTML element, such as `<svg>`, legible on light and dark pages
    caption: str  # HTML
    is_wide: bool = False  # spans the full width of the page

    def save(self, path: str | Path) -> None:
        """Write the drawing to a file: SVG for light and dark pages, otherwise an HTML fragment."""
        is_svg = self.drawing.startswith("<svg")
        suffix = ".svg" if is_svg else ".html"
        if Path(path).suffix.lower() != suffix:
            raise UsageError(f"{path}: this figure is written as {suffix[1:].upper()}; choose a name in {suffix}")
        Path(path).write_text(standalone(self.drawing) if is_svg else self.drawing, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f"<figure>{self.drawing}<figcaption>{self.caption}</figcaption></figure>"


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement about one model, or about several."""

    model: str | None  # None: it concerns several models, or the only one
    text: str  # one sentence; after a model name it may begin in lower case
    more: str = ""  # a further sentence

    def __str__(self) -> str:
        return "".join((f"{self.model}: " if self.model else "", self.text, f" {self.more}" if self.more else ""))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences without the model name in front."""
        first = self.text[:1].upper() + self.text[1:] if self.model else self.text
        return (first, self.more) if self.more else (first,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Findings, figures and numbers on one aspect of the models."""

    name: str  # its key in the JSON: "gradient_flow"
    title: str  # its heading: "Gradient flow"
    findings: tuple[Finding, ...] = ()  # most important first; the first of each model goes into the summary
    figures: tuple[Figure, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    arrays: Mapping[str, Floats] = field(default_factory=dict)  # full-resolution arrays

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings as text, each with the name of its model."""
        return tuple(map(str, self.findings))

    def __getitem__(self, name: str) -> Figure:
        """Return the figure of this name."""
        by_name = {figure.name: figure for figure in self.figures}
        if name not in by_name:
            raise KeyError(f"there is no figure '{name}'; there are {', '.join(by_name)}")
        return by_name[name]

    def __repr__(self) -> str:
        return f"<{self.title}: {' '.join(self.sentences) or 'nothing found'}>"

    def _repr_html_(self) -> str:
        paragraphs = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)
        figures = "".join(figure._repr_html_() for figure in self.figures)
        return f"<h3>{html.escape(self.title)}</h3>{paragraphs}{figures}"


def round_for_json(values: Floats) -> list[float | None]:
    """Round to six digits; values that are not finite become None."""
    return [replace_nonfinite(float(f"{value:.6g}")) for value in values.tolist()]


def strip_tags(caption: str) -> str:
    """Return a caption without HTML tags.

    >>> strip_tags("lag <i>k</i> &lt; 3")
    'lag k < 3'
    """
    return html.unescape(_TAG.sub("", caption))
