"""The result of an inspection: sections, summary, JSON and HTML page."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.errors import UsageError
from chainrule.inspection.section import Section
from chainrule.microscope import page
from chainrule.microscope.verdict import Paragraph, format_paragraphs, summarize
from chainrule.replacement import atomic_file


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
