"""Tags against tags, word by word: accuracy, and what is taken for what.

Lives here: counts over words. Not here: spans of words (spans.py).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.lm import Ids

Sentences = Sequence[Sequence[str]]
"""The tags of each sentence's words."""


class Mistake(NamedTuple):
    """One tag taken for another, and how often."""

    gold: str
    found: str
    times: int


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often each tag was found where each tag is right."""

    labels: tuple[str, ...]  # K of them, the most frequent gold tag first, equals by name
    counts: Ids  # (K, K)  rows gold, columns found

    @property
    def gold(self) -> Ids:
        """(K,) words that have each tag."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def found(self) -> Ids:
        """(K,) words that were given each tag."""
        return np.asarray(self.counts.sum(axis=0))

    def most_confused(self, n: int) -> list[Mistake]:
        """The n most frequent mistakes, fewer where there are fewer; equals in the order of the labels."""
        if n < 0:
            raise UsageError(f"n is {n}; choose how many mistakes to list, 0 or more")
        mistakes = [
            Mistake(self.labels[row], self.labels[column], int(self.counts[row, column]))
            for row, column in np.argwhere(self.counts)
            if row != column
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.times)[:n]


def accuracy(gold: Sentences, found: Sentences) -> float:
    """Which part of the words has the right tag; 0 where there are no words.

    >>> accuracy([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
    0.6666666666666666
    """
    pairs = Counter(_pair(gold, found))
    right = sum(count for (gold_tag, found_tag), count in pairs.items() if gold_tag == found_tag)
    return right / pairs.total() if pairs else 0.0


def confusion(gold: Sentences, found: Sentences) -> Confusion:
    """What was found for what, over all tags that occur on either side."""
    pairs = Counter(_pair(gold, found))
    frequency = Counter(tag for tags in gold for tag in tags)
    labels = sorted({tag for pair in pairs for tag in pair}, key=lambda label: (-frequency[label], label))
    places = {label: place for place, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for (gold_tag, found_tag), count in pairs.items():
        counts[places[gold_tag], places[found_tag]] = count
    return Confusion(tuple(labels), counts)


def _pair(gold: Sentences, found: Sentences) -> Iterator[tuple[str, str]]:
    """The gold and the found tag of each word."""
    if len(gold) != len(found):
        raise InputError(f"{len(gold)} gold sentences against {len(found)} found; compare the same sentences")
    for number, (gold_tags, found_tags) in enumerate(zip(gold, found, strict=True), start=1):
        if len(gold_tags) != len(found_tags):
            raise InputError(
                f"sentence {number} has {len(gold_tags)} gold tags and {len(found_tags)} found; "
                "give each of its words one tag on both sides"
            )
        yield from zip(gold_tags, found_tags, strict=True)
