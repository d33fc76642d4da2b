"""Report of an inspection: sections with findings and figures, summary, JSON, and one self-contained HTML page.

Untrusted text is escaped with `html.escape` and isolated with `<bdi>` or `dir="auto"`.
"""

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from chainrule.errors import UsageError
from chainrule.inspection import predictions
from chainrule.lm import Floats
from chainrule.plots import formatting
from chainrule.plots.figures import standalone
from chainrule.plots.html import bold, facts_html, render_page
from chainrule.storage.atomic import atomic_file
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
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def strip_tags(caption: str) -> str:
    """Return a caption without HTML tags.

    >>> strip_tags("lag <i>k</i> &lt; 3")
    'lag k < 3'
    """
    return html.unescape(_TAG.sub("", caption))


MOST: Final = 5  # sentences per paragraph
FEWEST: Final = 3  # sentences per paragraph, if available

ORDER: Final = ("gradient_flow", "gates", "attention", "probability", "training", "recurrent_matrix")
"""Sections by importance; the matrix largely repeats the measured flow."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """The summary of one model."""

    model: str  # empty if it concerns several models
    text: str

    def __str__(self) -> str:
        return f"{self.model}: {self.text}" if self.model else self.text


def summarize(sections: Sequence[Section], names: Sequence[str]) -> tuple[Paragraph, ...]:
    """Return a paragraph per model with findings, then one for findings on several models.

    A finding that names no model concerns the only model inspected, or several models.
    """
    order = {name: rank for rank, name in enumerate(ORDER)}
    ranked = sorted(sections, key=lambda section: order.get(section.name, len(order)))
    default = names[0] if len(names) == 1 else ""
    paragraphs = []
    for name in (*names, ""):
        by_section = [
            [finding for finding in section.findings if (finding.model or default) == name] for section in ranked
        ]
        if text := " ".join(_select(by_section)):
            paragraphs.append(Paragraph(name, text))
    return tuple(paragraphs)


def _select(findings: Sequence[Sequence[Finding]]) -> list[str]:
    """Return the first finding of every section, then later ones while there are few sentences."""
    sentences: list[str] = []
    for rank in range(max(map(len, findings), default=0)):
        for finding in (section_findings[rank] for section_findings in findings if rank < len(section_findings)):
            if len(sentences) < (MOST if rank == 0 else FEWEST):
                sentences += finding.sentences[: MOST - len(sentences)]
    return sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An inspected model."""

    name: str
    family: str
    sizes: Mapping[str, str | int]  # such as layers and width, or order and smoothing
    parameters: int
    tokenizer: str
    context: str
    trained_on: str
    looked_at: str  # amount of text read


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inspection:
    """The sections by name: `inspection["gradient_flow"]`."""

    subjects: tuple[Subject, ...]
    text: str  # name of the text
    sections: tuple[Section, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)  # reasons by section name
    command: str = "chainrule.inspect(…)"
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory: int | None = None  # bytes; None if unavailable

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(subject.name for subject in self.subjects)

    @property
    def verdict(self) -> tuple[Paragraph, ...]:
        """The most important findings, one paragraph per model."""
        return summarize(self.sections, self.names)

    @property
    def paragraphs(self) -> list[str]:
        """The summary as text; the name of a single model is omitted."""
        is_named = len(self.subjects) > 1
        return [str(item) if is_named else item.text for item in self.verdict] or ["There are no findings."]

    def __getitem__(self, name: str) -> Section:
        """Return the section of this name."""
        for section in self.sections:
            if section.name == name:
                return section
        available = ", ".join(self) or "none"
        raise UsageError(f"there is no section '{name}'; available: {available}")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the sections."""
        return (section.name for section in self.sections)

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def __str__(self) -> str:
        return "\n\n".join(self.paragraphs)

    def __repr__(self) -> str:
        return f"<inspection of {', '.join(self.names)}: {', '.join(self) or 'nothing found'}>"

    def _repr_html_(self) -> str:
        return verdict_html(self) + "".join(section._repr_html_() for section in self.sections)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the figures as JSON values; values that are not finite become None."""
        sections = {
            section.name: {"title": section.title, "findings": section.sentences, "data": section.data}
            for section in self.sections
        }
        document = {
            "models": [asdict(subject) for subject in self.subjects],
            "text": self.text,
            "verdict": [asdict(paragraph) for paragraph in self.verdict],
            "sections": sections,
            "left_out": self.left_out,
            "command": self.command,
            "versions": self.versions,
            "seconds": round(self.seconds, 3),
            "peak_memory_bytes": self.peak_memory,
        }
        return {key: replace_nonfinite(value) for key, value in document.items()}

    def save(self, path: str | Path) -> None:
        """Write the HTML page, replacing an existing file."""
        with atomic_file(Path(path)) as file:
            file.write(render(self).encode())


_OWN_NAME: Final = re.compile(r'( id="| href="#)')
_VIEW_BOX: Final = re.compile(r'<svg [^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) [\d.]+"')


def render(inspection: Inspection) -> str:
    """Return the page, which works offline and in light and dark mode."""
    sections = "".join(_section(section, index) for index, section in enumerate(inspection.sections))
    return render_page(
        f"{formatting.join_words(list(inspection.names))}: inspection",
        f"{_header(inspection)}{sections}{_models(inspection)}{_reproduction(inspection)}",
        stylesheet=Path(__file__).with_name("page.css"),
        script=predictions.load_script() if '<script type="application/json">' in sections else "",
        images=True,  # heat maps inside the SVGs
    )


def verdict_html(inspection: Inspection) -> str:
    """Return the summary; with several models, each paragraph begins with a model name."""
    verdict = inspection.verdict if len(inspection.names) > 1 else ()
    if not verdict:
        paragraphs = map(html.escape, inspection.paragraphs)
        return "".join(f'<p class="verdict" dir="auto">{text}</p>\n' for text in paragraphs)
    return "".join(
        f'<p class="verdict">{f"{bold(item.model)}: " if item.model else ""}{html.escape(item.text)}</p>\n'
        for item in verdict
    )


def _header(inspection: Inspection) -> str:
    titles = {section.name: section.title for section in inspection.sections} | {"models": "Models"}
    entries = {**titles, "reproduction": "Reproduction"}
    links = "".join(
        f'<li><a href="#{html.escape(name)}">{html.escape(title)}</a></li>' for name, title in entries.items()
    )
    heading = formatting.join_words([f"<bdi>{html.escape(name)}</bdi>" for name in inspection.names])
    return (
        '<header>\n<p class="kicker">chainrule inspect</p>\n'
        f"<h1>{heading}</h1>\n{verdict_html(inspection)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n</header>\n'
    )


def _section(section: Section, index: int) -> str:
    """Render the findings as a list, then the figures."""
    findings = "".join(f'<li dir="auto">{html.escape(finding)}</li>\n' for finding in section.sentences)
    figures = "".join(_figure(figure, f"s{index}f{number}-") for number, figure in enumerate(section.figures))
    findings_html = f'<ul class="findings">\n{findings}</ul>\n' if findings else ""
    figures_html = f'<div class="figures">\n{figures}</div>\n' if figures else ""
    heading = f"<h2>{html.escape(section.title)}</h2>"
    return f'<section id="{html.escape(section.name)}">\n{heading}\n{findings_html}{figures_html}</section>\n'


def _figure(figure: Figure, prefix: str) -> str:
    kind = ' class="wide"' if figure.is_wide else ""
    view_box = _VIEW_BOX.match(figure.drawing)
    size = f' style="--natural:{float(view_box[1]):.0f}px"' if view_box else ""
    return (
        f'<figure{kind}><div class="drawing"{size}>{_prefix_ids(figure.drawing, prefix)}</div>'
        f"<figcaption>{figure.caption}</figcaption></figure>\n"
    )


def _prefix_ids(drawing: str, prefix: str) -> str:
    """Prefix the ids in an SVG, so that figures with equal titles do not clash.

    >>> _prefix_ids('<svg><path id="a"/><use href="#a"/></svg>', "f1-")
    '<svg><path id="f1-a"/><use href="#f1-a"/></svg>'
    """
    return _OWN_NAME.sub(rf"\g<1>{prefix}", drawing) if drawing.startswith("<svg") else drawing


def _models(inspection: Inspection) -> str:
    articles = "".join(map(_subject, inspection.subjects))
    return (
        '<section id="models">\n<h2>Models</h2>\n'
        f'<p class="introduction">Text: <bdi>{html.escape(inspection.text)}</bdi>.</p>\n{articles}</section>\n'
    )


def _subject(subject: Subject) -> str:
    facts = {
        "Family": subject.family,
        "Sizes": ", ".join(f"{name} {value}" for name, value in subject.sizes.items()),
        "Parameters": f"{subject.parameters:,}",
        "Tokenizer": subject.tokenizer,
        "Context": subject.context,
        "Trained on": subject.trained_on or "unknown",
        "Text read": subject.looked_at,
    }
    return f"<article><h3><bdi>{html.escape(subject.name)}</bdi></h3>{facts_html(facts)}</article>\n"


def _reproduction(inspection: Inspection) -> str:
    facts = {
        "Time": formatting.format_duration(inspection.seconds),
        "Peak memory": "unknown"
        if inspection.peak_memory is None
        else formatting.format_size(inspection.peak_memory),
        "Versions": ", ".join(f"{name} {version}" for name, version in inspection.versions.items()) or "unknown",
    }
    for name, reason in inspection.left_out.items():
        facts[f"Left out: {name.replace('_', ' ')}"] = reason
    return (
        '<section id="reproduction">\n<h2>Reproduction</h2>\n'
        f'<pre><code dir="auto">{html.escape(inspection.command)}</code></pre>\n{facts_html(facts)}</section>\n'
    )
