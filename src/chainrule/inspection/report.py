"""The result of an inspection: sections, summary, JSON and HTML page."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule.analysis.section import Section
from chainrule.errors import UsageError
from chainrule.storage.atomic import atomic_file

MOST: Final = 5  # sentences per paragraph
FEWEST: Final = 3  # sentences per paragraph, if available

ORDER: Final = ("gradient_flow", "gates", "attention", "probability", "training", "recurrent_matrix")
"""Sections by importance; the matrix largely repeats the measured flow."""

_QUOTED_OR_GAP: Final = re.compile(r"“[^”]*”+|(?<=[.!?])\s+(?=[A-Z“\"(])")  # quotations are skipped


@dataclass(frozen=True, slots=True)
class Paragraph:
    """The summary of one model."""

    model: str  # empty if it concerns several models
    text: str


def summarize(sections: Sequence[Section], names: Sequence[str]) -> tuple[Paragraph, ...]:
    """Return a paragraph per model with findings, then one for findings on several models."""
    order = {name: rank for rank, name in enumerate(ORDER)}
    ranked = sorted(sections, key=lambda section: order.get(section.name, len(order)))
    attributed = [[_attribute(finding, names) for finding in section.findings] for section in ranked]
    paragraphs = []
    for name in (*names, ""):
        model_findings = [[sentence for model, sentence in findings if model == name] for findings in attributed]
        if text := " ".join(_select(model_findings)):
            paragraphs.append(Paragraph(name, text))
    return tuple(paragraphs)


def format_paragraphs(paragraphs: Sequence[Paragraph], names: Sequence[str]) -> list[str]:
    """Return the paragraphs as lines of text; the name of a single model is omitted."""
    if not paragraphs:
        return ["There are no findings."]
    return ["".join(split_heading(paragraph) if len(names) > 1 else paragraph.text) for paragraph in paragraphs]


def split_heading(paragraph: Paragraph) -> tuple[str, str]:
    """Return the model name and the rest: a colon and the text, or the text after its leading name."""
    if not paragraph.model:
        return "", paragraph.text
    if paragraph.text.startswith(f"{paragraph.model} "):
        return paragraph.model, paragraph.text.removeprefix(paragraph.model)
    return paragraph.model, f": {paragraph.text}"


def _select(findings: Sequence[Sequence[str]]) -> list[str]:
    """Return the first finding of every section, then later ones while there are few sentences."""
    sentences: list[str] = []
    for rank in range(max(map(len, findings), default=0)):
        for finding in (section_findings[rank] for section_findings in findings if rank < len(section_findings)):
            if len(sentences) < (MOST if rank == 0 else FEWEST):
                sentences += list(_sentences(finding))[: MOST - len(sentences)]
    return sentences


def _sentences(finding: str) -> Iterator[str]:
    """Yield the sentences of a finding, each with its final punctuation."""
    text, start = finding.strip(), 0
    gaps = [match.span() for match in _QUOTED_OR_GAP.finditer(text) if not match[0].startswith("“")]
    for end, following in (*gaps, (len(text), len(text))):
        sentence, start = text[start:end], following
        yield sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _attribute(finding: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the model a finding is about, and its text: `lstm: the gradient halves …` is about lstm.

    With one model every finding is about it; with several, a finding that neither begins with a name nor contains
    exactly one name is about all of them.
    """
    for name in sorted(names, key=len, reverse=True):
        if name and finding.startswith(f"{name}: "):
            text = finding.removeprefix(f"{name}: ")
            return name, text[:1].upper() + text[1:]
    if len(names) == 1:
        return names[0], finding
    mentioned = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", finding)]
    return (mentioned[0] if len(mentioned) == 1 else ""), finding


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
        return "\n\n".join(format_paragraphs(self.verdict, self.names))

    def __repr__(self) -> str:
        return f"<inspection of {', '.join(self.names)}: {', '.join(self) or 'nothing found'}>"

    def _repr_html_(self) -> str:
        from chainrule.inspection import page

        return page.verdict_html(self) + "".join(section._repr_html_() for section in self.sections)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the figures as JSON values; values that are not finite become None."""
        sections = {
            section.name: {"title": section.title, "findings": section.findings, "data": section.data}
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
        return {key: _plain(value) for key, value in document.items()}

    def save(self, path: str | Path) -> None:
        """Write the HTML page, replacing an existing file."""
        with atomic_file(Path(path)) as file:
            from chainrule.inspection import page

            file.write(page.render(self).encode())


def _plain(value: Any) -> Any:
    """Convert to JSON values; None replaces infinities and NaN."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
