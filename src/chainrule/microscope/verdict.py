"""Summarize an inspection: the most important findings as one short paragraph per model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chainrule.inspection.section import Section

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
