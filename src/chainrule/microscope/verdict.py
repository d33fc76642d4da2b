"""The words on top of an inspection: the most telling of what its sections found, a short paragraph a model.

Lives here: the choice. Not here: the findings themselves, which are the sections'.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chainrule.inspection.section import Section

MOST: Final = 5  # sentences of a paragraph
FEWEST: Final = 3  # where the sections have so many to give

ORDER: Final = ("gradient_flow", "gates", "attention", "probability", "training", "recurrent_matrix")
"""Sections by how much they tell of a model; the matrix says again what the measured flow says better."""

_QUOTED_OR_GAP: Final = re.compile(r"“[^”]*”+|(?<=[.!?])\s+(?=[A-Z“\"(])")  # what is quoted is passed over


@dataclass(frozen=True, slots=True)
class Paragraph:
    """What is said of one model."""

    model: str  # empty where it is said of several together
    text: str


def verdict(sections: Sequence[Section], names: Sequence[str]) -> tuple[Paragraph, ...]:
    """A paragraph for each model that something was found of, then one for what was found of several together."""
    order = {name: place for place, name in enumerate(ORDER)}
    ranked = sorted(sections, key=lambda section: order.get(section.name, len(order)))
    spoken = [[_spoken(finding, names) for finding in section.findings] for section in ranked]
    paragraphs = []
    for name in (*names, ""):
        own = [[words for speaker, words in findings if speaker == name] for findings in spoken]
        if text := " ".join(_chosen(own)):
            paragraphs.append(Paragraph(name, text))
    return tuple(paragraphs)


def in_words(paragraphs: Sequence[Paragraph], names: Sequence[str]) -> list[str]:
    """The paragraphs as lines of text; of one model alone its name need not be said."""
    if not paragraphs:
        return ["Nothing was found to say."]
    return ["".join(headed(paragraph) if len(names) > 1 else paragraph.text) for paragraph in paragraphs]


def headed(paragraph: Paragraph) -> tuple[str, str]:
    """The model's name and what follows it: a colon and the words, or the rest of words that begin with it."""
    if not paragraph.model:
        return "", paragraph.text
    if paragraph.text.startswith(f"{paragraph.model} "):
        return paragraph.model, paragraph.text.removeprefix(paragraph.model)
    return paragraph.model, f": {paragraph.text}"


def _chosen(findings: Sequence[Sequence[str]]) -> list[str]:
    """The first finding of every section; then second and later ones, while there are few sentences."""
    chosen: list[str] = []
    for turn in range(max(map(len, findings), default=0)):
        for finding in (found[turn] for found in findings if turn < len(found)):
            if len(chosen) < (MOST if turn == 0 else FEWEST):
                chosen += list(_sentences(finding))[: MOST - len(chosen)]
    return chosen


def _sentences(finding: str) -> Iterator[str]:
    """A finding's sentences, each with its end."""
    words, start = finding.strip(), 0
    gaps = [found.span() for found in _QUOTED_OR_GAP.finditer(words) if not found[0].startswith("“")]
    for end, following in (*gaps, (len(words), len(words))):
        sentence, start = words[start:end], following
        yield sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _spoken(finding: str, names: Sequence[str]) -> tuple[str, str]:
    """Whom a finding is about, and its words: `lstm: the signal halves …` is about lstm, and so begins a sentence.

    Of one model alone everything is said; of several, what neither begins with a name nor has one name alone in it
    is said of all of them.
    """
    for name in sorted(names, key=len, reverse=True):
        if name and finding.startswith(f"{name}: "):
            words = finding.removeprefix(f"{name}: ")
            return name, words[:1].upper() + words[1:]
    if len(names) == 1:
        return names[0], finding
    named = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", finding)]
    return (named[0] if len(named) == 1 else ""), finding
