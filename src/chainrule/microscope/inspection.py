"""All that was found in models, section by section: in Python, as JSON, as a page.

Lives here: the whole of the answers. Not here: the asking (inspecting.py), the choice of words for the top
(verdict.py), the page (page.py).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.errors import UsageError
from chainrule.inspection.section import Section
from chainrule.microscope import page
from chainrule.microscope.verdict import Paragraph, in_words, verdict
from chainrule.replacement import replacing_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model that was looked at."""

    name: str
    family: str
    sizes: Mapping[str, str | int]  # layers and width, order and smoothing
    parameters: int
    tokenizer: str
    context: str
    trained_on: str
    looked_at: str  # how much of the text


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inspection:
    """What was found, section by section: `found["gradient_flow"]`."""

    subjects: tuple[Subject, ...]
    text: str  # what they were looked at with
    sections: tuple[Section, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by the name of a section
    command: str = "chainrule.inspect(…)"
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory: int | None = None  # bytes this process held at most; None where the system does not say

    @property
    def names(self) -> tuple[str, ...]:
        """Of the models."""
        return tuple(subject.name for subject in self.subjects)

    @property
    def verdict(self) -> tuple[Paragraph, ...]:
        """The most telling of it in words, a paragraph a model."""
        return verdict(self.sections, self.names)

    def __getitem__(self, name: str) -> Section:
        """The section of this name."""
        for section in self.sections:
            if section.name == name:
                return section
        found = ", ".join(self) or "none"
        raise UsageError(f"there is no section '{name}' here, but: {found}")

    def __iter__(self) -> Iterator[str]:
        """The names of the sections."""
        return (section.name for section in self.sections)

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def __str__(self) -> str:
        return "\n\n".join(in_words(self.verdict, self.names))

    def __repr__(self) -> str:
        return f"<inspection of {', '.join(self.names)}: {', '.join(self) or 'nothing found'}>"

    def _repr_html_(self) -> str:
        return page.verdict_html(self) + "".join(section._repr_html_() for section in self.sections)

    def to_json(self) -> dict[str, Any]:
        """All but the pictures, as plain values; what is not finite is None."""
        sections = {
            section.name: {"title": section.title, "findings": section.findings, "data": section.data}
            for section in self.sections
        }
        whole = {
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
        return {key: _plain(value) for key, value in whole.items()}

    def save(self, path: str | Path) -> None:
        """Write the page, in place of a file that is there."""
        with replacing_file(Path(path)) as file:
            file.write(page.render(self).encode())


def _plain(value: Any) -> Any:
    """The same in plain values; None in place of every infinity and NaN."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
