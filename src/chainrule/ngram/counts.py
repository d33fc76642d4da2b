"""N-gram counts of a text, one table per order.

An n-gram is identified by its row in the table of its order. A row refers to its context w_1…w_{n−1} and its suffix
w_2…w_n by their rows in the table of the next lower order.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Context, Ids, Mask, Vocabulary
from chainrule.progress import Progress, silent

CHUNK = 1 << 22
"""Tokens sorted at once."""


@dataclass(frozen=True, slots=True)
class Level:
    """All n-grams of one order, sorted by context, then by word."""

    context: Ids  # (M,)  row of w_1…w_{n−1} in the next lower order; 0 (the empty context) at order 1
    word: Ids  # (M,)  w_n
    suffix: Ids  # (M,)  row of w_2…w_n in the next lower order; 0 at order 1
    count: Ids  # (M,)  occurrences in the text
    begins: Mask  # (M,)  True if w_1 is <s>, so that no word can precede the n-gram

    def __len__(self) -> int:
        return len(self.word)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all orders; `levels[k]` has order k + 1. At order 1 every id has a row and the row is the id."""

    levels: tuple[Level, ...]
    vocabulary: Vocabulary

    @property
    def order(self) -> int:
        """Highest order n."""
        return len(self.levels)

    def up_to(self, order: int) -> "Counts":
        """Return the counts of orders 1 to `order`."""
        return Counts(self.levels[:order], self.vocabulary)


def insert_bos(ids: Ids, vocabulary: Vocabulary, context: Context) -> Ids:
    """Insert `<s>` before every line, or once before a stream: (N,) -> (N + L,)."""
    if context == "stream":
        return np.concatenate([[vocabulary.bos], ids])
    ends = np.flatnonzero(ids == vocabulary.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return np.insert(ids, starts, vocabulary.bos)


def count(
    ids: Ids, order: int, vocabulary: Vocabulary, context: Context = "line", progress: Progress = silent
) -> Counts:
    """Count all n-grams up to `order` whose last word is predicted.

    A model of order n reads n−1 `<s>` before a line; since c(<s> <s>, w) = c(<s>, w), one is stored and longer
    runs of `<s>` are read as one.
    """
    tokens = insert_bos(ids.astype(np.int32), vocabulary, context)
    levels = [_unigrams(tokens, vocabulary)]
    rows = tokens  # rows[t]: the row of the n-gram that ends at t, −1 where there is none
    for k in range(2, order + 1):
        progress("counting n-grams", k - 1, order)
        level, rows = _extend(levels[-1], rows, tokens, vocabulary)
        levels.append(level)
    progress("counting n-grams", order, order)
    return Counts(tuple(levels), vocabulary)


def copy_eos_contexts_to_bos(counts: Counts) -> Counts:
    """Return the counts of a stream with c(<s> w_2…w_n) set to c(</s> w_2…w_n): a text starts like a line.

    Needed for smoothing methods without lower-order estimates (add-k), where backing off from a `<s>` context would
    give the uniform distribution.
    """
    vocabulary, first = counts.vocabulary, counts.levels[0]
    levels = [first]
    new_row = np.arange(len(first))  # new row of each n-gram of the next lower order
    copy_row = np.full(len(first), -1)  # row of its copy that begins with <s>; −1 if it does not begin with </s>
    copy_row[vocabulary.eos] = vocabulary.bos
    for level in counts.levels[1:]:
        retained = np.flatnonzero(~level.begins)
        copied = np.flatnonzero(copy_row[level.context] >= 0)
        rows = np.concatenate([retained, copied])
        context = np.concatenate([new_row[level.context[retained]], copy_row[level.context[copied]]])
        order = np.argsort(context * vocabulary.size + level.word[rows])
        rows, begins = rows[order], order >= len(retained)
        suffix = new_row[level.suffix[rows]]
        levels.append(Level(context[order], level.word[rows], suffix, level.count[rows], begins))
        new_row, copy_row = np.full(len(level), -1), np.full(len(level), -1)
        new_row[rows[~begins]] = np.flatnonzero(~begins)
        copy_row[rows[begins]] = np.flatnonzero(begins)
    return Counts(tuple(levels), vocabulary)


def _unigrams(tokens: Ids, vocabulary: Vocabulary) -> Level:
    nothing = np.zeros(vocabulary.size, dtype=np.int64)
    ids = np.arange(vocabulary.size)
    counts = np.bincount(tokens, minlength=vocabulary.size)
    counts[vocabulary.bos] = 0
    return Level(nothing, ids, nothing, counts, ids == vocabulary.bos)


def _extend(below: Level, rows: Ids, tokens: Ids, vocabulary: Vocabulary) -> tuple[Level, Ids]:
    """One order up: the n-grams (row of the context that ends before t, token t), and each position's new row.

    The text is sorted chunk by chunk, so that memory beyond the tables is a few numbers a token.
    """
    found = np.full(len(tokens), -1, dtype=np.int32)  # first the place in its chunk's keys, then the row
    chunks = [slice(a, min(a + CHUNK, len(tokens))) for a in range(1, len(tokens), CHUNK)]
    parts: list[tuple[Ids, Ids]] = []
    for chunk in chunks:
        before = rows[chunk.start - 1 : chunk.stop - 1]
        here = (tokens[chunk] != vocabulary.bos) & (before >= 0)
        key = before[here].astype(np.int64) * vocabulary.size + tokens[chunk][here]
        keys, place, times = np.unique(key, return_inverse=True, return_counts=True)
        parts.append((keys, times))
        found[chunk][here] = place
    key, counts = _merge(parts)
    suffix = np.empty(len(key), dtype=np.int64)
    for chunk, (keys, _) in zip(chunks, parts, strict=True):
        here = found[chunk] >= 0
        found[chunk][here] = np.searchsorted(key, keys)[found[chunk][here]]
        suffix[found[chunk][here]] = rows[chunk][here]
    context, word = np.divmod(key, vocabulary.size)
    return Level(context, word, suffix, counts, below.begins[context]), found


def _merge(parts: list[tuple[Ids, Ids]]) -> tuple[Ids, Ids]:
    """Sorted keys and counts of several chunks as those of one."""
    if len(parts) == 1:
        return parts[0]
    keys, place = np.unique(np.concatenate([np.zeros(0, np.int64), *(k for k, _ in parts)]), return_inverse=True)
    counts = np.concatenate([np.zeros(0, np.int64), *(c for _, c in parts)])
    return keys, np.bincount(place, counts, len(keys)).astype(np.int64)
