"""Word-level tagging metrics: accuracy and confusion matrix."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.lm import Ids

Sentences = Sequence[Sequence[str]]
"""Tags of the words of each sentence."""


class Mistake(NamedTuple):
    """Pair of a gold tag and a wrong predicted tag, with its frequency."""

    gold: str
    found: str  # predicted tag
    times: int  # frequency


@dataclass(frozen=True, slots=True)
class Confusion:
    """Confusion matrix of tags."""

    labels: tuple[str, ...]  # K tags, by decreasing gold frequency, then by name
    counts: Ids  # (K, K)  rows: gold tags, columns: predicted tags

    @property
    def gold(self) -> Ids:
        """Number of words with each gold tag, (K,)."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def predicted(self) -> Ids:
        """Number of words with each predicted tag, (K,)."""
        return np.asarray(self.counts.sum(axis=0))

    def most_confused(self, n: int) -> list[Mistake]:
        """Return the n most frequent mistakes, ties in the order of the labels."""
        if n < 0:
            raise UsageError(f"n is {n}; choose how many mistakes to list, 0 or more")
        mistakes = [
            Mistake(self.labels[row], self.labels[column], int(self.counts[row, column]))
            for row, column in np.argwhere(self.counts)
            if row != column
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.times)[:n]


def accuracy(gold: Sentences, predicted: Sentences) -> float:
    """Return the fraction of words with the correct tag; 0 if there are no words.

    >>> accuracy([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
    0.6666666666666666
    """
    pairs = Counter(_pair(gold, predicted))
    correct = sum(count for (gold_tag, predicted_tag), count in pairs.items() if gold_tag == predicted_tag)
    return correct / pairs.total() if pairs else 0.0


def confusion(gold: Sentences, predicted: Sentences) -> Confusion:
    """Return the confusion matrix over all gold and predicted tags."""
    pairs = Counter(_pair(gold, predicted))
    frequency = Counter(tag for tags in gold for tag in tags)
    labels = sorted({tag for pair in pairs for tag in pair}, key=lambda label: (-frequency[label], label))
    index = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for (gold_tag, predicted_tag), count in pairs.items():
        counts[index[gold_tag], index[predicted_tag]] = count
    return Confusion(tuple(labels), counts)


def _pair(gold: Sentences, predicted: Sentences) -> Iterator[tuple[str, str]]:
    """Yield the gold and the predicted tag of each word."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} gold sentences against {len(predicted)} found; compare the same sentences")
    for number, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(gold_tags) != len(predicted_tags):
            raise InputError(
                f"sentence {number} has {len(gold_tags)} gold tags and {len(predicted_tags)} found; "
                "give each of its words one tag on both sides"
            )
        yield from zip(gold_tags, predicted_tags, strict=True)
