"""Reference back-off lookup over dictionaries, one n-gram at a time, independent of the code under test."""

import math
import warnings

import numpy as np

from chainrule.errors import ChainruleWarning
from chainrule.lm import Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.smoothing import estimate
from chainrule.ngram.tables import BackoffTables
from ngram.reference import count

Gram = tuple[int, ...]


class Dictionary:
    """log p and log α of every stored n-gram by its words; a missing α is 1."""

    def __init__(self, tables: BackoffTables, size: int) -> None:
        self.tables, self.order, self.size = tables, tables.order, size
        self.log_p: dict[Gram, float] = {}
        self.log_weight: dict[Gram, float] = {}
        rows: list[Gram] = [()]
        for level in tables.levels:
            rows = [(*rows[key // size], key % size) for key in level.key.tolist()]
            self.log_p |= dict(zip(rows, level.log_prob.astype(float).tolist(), strict=True))
            self.log_weight |= dict(zip(rows, level.log_backoff.astype(float).tolist(), strict=True))

    def p(self, h: Gram, w: int) -> float:
        """p(w | h)."""
        h = h[len(h) - self.order + 1 :] if len(h) >= self.order else h
        if (*h, w) in self.log_p:
            return math.exp(self.log_p[(*h, w)])
        return math.exp(self.log_weight.get(h, 0.0)) * self.p(h[1:], w)

    def distribution(self, h: Gram) -> list[float]:
        """p(· | h)."""
        return [self.p(h, w) for w in range(self.size)]

    def grams(self, n: int) -> list[Gram]:
        """The stored n-grams of one order, in row order."""
        return [gram for gram in self.log_p if len(gram) == n]

    def contexts(self) -> set[Gram]:
        """All contexts of stored n-grams."""
        return {gram[:-1] for gram in self.log_p}

    def followers(self, h: Gram) -> list[int]:
        """The words stored after h."""
        return [w for w in range(self.size) if (*h, w) in self.log_p]


def tables_of(lines: list[list[int]], vocabulary: Vocabulary, **settings: object) -> BackoffTables:
    """Back-off tables of lines of ids; `</s>` is appended to each line."""
    ids = np.array([i for line in lines for i in (*line, vocabulary.eos)], dtype=np.int64)
    config = Config(**settings)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        return estimate(count(ids, config.order, vocabulary), config)
