"""The result of an inspection: sections, summary, JSON and HTML page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from chainrule.analysis.section import Finding, Section
from chainrule.errors import UsageError
from chainrule.inspection import page
from chainrule.storage.atomic import atomic_file
from chainrule.storage.strict_json import replace_nonfinite

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

    A finding without a model is about the only model, or about several.
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
        return page.verdict_html(self) + "".join(section._repr_html_() for section in self.sections)

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
            file.write(page.render(self).encode())
