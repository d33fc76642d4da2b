"""Count every n-gram of a text, up to an order, in tables that all smoothings share.

An n-gram is named by its row in the table of its order. A row knows its context w_1…w_{n−1} and its suffix
w_2…w_n as rows of the table one order down, so that no n-gram is ever spelled out. Not here: any estimate.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Context, Ids, Mask, Vocabulary
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Level:
    """All n-grams of one order, sorted by context, then by word."""

    context: Ids  # (M,)  row of w_1…w_{n−1} one order down; 0, the empty context, at order 1
    word: Ids  # (M,)  w_n
    suffix: Ids  # (M,)  row of w_2…w_n one order down; 0 at order 1
    count: Ids  # (M,)  how often it stands in the text
    begins: Mask  # (M,)  True where w_1 is <s>: nothing can stand to its left

    def __len__(self) -> int:
        return len(self.word)


@dataclass(frozen=True, slots=True)
class Counts:
    """`levels[k]` holds order k + 1. At order 1 the row is the word's id, and every id has a row."""

    levels: tuple[Level, ...]
    vocabulary: Vocabulary

    @property
    def order(self) -> int:
        """N."""
        return len(self.levels)

    def up_to(self, order: int) -> "Counts":
        """The counts of a lower order, without counting again."""
        return Counts(self.levels[:order], self.vocabulary)


def with_starts(ids: Ids, vocabulary: Vocabulary, context: Context) -> Ids:
    """Put `<s>` before every line, or once before a stream: (N,) -> (N + L,)."""
    if context == "stream":
        return np.concatenate([[vocabulary.bos], ids])
    ends = np.flatnonzero(ids == vocabulary.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return np.insert(ids, starts, vocabulary.bos)


def count(
    ids: Ids, order: int, vocabulary: Vocabulary, context: Context = "line", progress: Progress = silent
) -> Counts:
    """Count all n-grams up to `order` whose last word is predicted.

    SYLLABUS pads with n−1 `<s>`; since c(<s> <s>, w) = c(<s>, w), one is stored and longer runs of `<s>` are
    read as one.
    """
    tokens = with_starts(ids.astype(np.int64), vocabulary, context)
    is_predicted = tokens != vocabulary.bos
    levels = [_unigrams(tokens[is_predicted], vocabulary)]
    rows = tokens  # rows[t]: the row of the n-gram that ends at t, −1 where there is none
    for k in range(2, order + 1):
        progress("counting n-grams", k - 1, order)
        before = np.concatenate([[-1], rows[:-1]])
        here = is_predicted & (before >= 0)
        level, found = _extend(levels[-1], before[here], tokens[here], rows[here], vocabulary.size)
        levels.append(level)
        rows = np.full(len(tokens), -1)
        rows[here] = found
    progress("counting n-grams", order, order)
    return Counts(tuple(levels), vocabulary)


def _unigrams(words: Ids, vocabulary: Vocabulary) -> Level:
    nothing = np.zeros(vocabulary.size, dtype=np.int64)
    ids = np.arange(vocabulary.size)
    return Level(nothing, ids, nothing, np.bincount(words, minlength=vocabulary.size), ids == vocabulary.bos)


def _extend(below: Level, context: Ids, word: Ids, suffix: Ids, size: int) -> tuple[Level, Ids]:
    """One order up, from each position's context row, word and suffix row; also each position's new row."""
    key, rows, counts = np.unique(context * size + word, return_inverse=True, return_counts=True)
    suffix_of = np.empty(len(key), dtype=np.int64)
    suffix_of[rows] = suffix
    contexts = key // size
    return Level(contexts, key % size, suffix_of, counts, below.begins[contexts]), rows
