"""Back-off tables: a log-probability for each stored n-gram and a back-off weight for each context.

p(w | h) is the stored probability if (h, w) is stored, otherwise weight(h) · p(w | h′), where h′ is h without its
first word, as in an ARPA file. For interpolated methods the stored probabilities are the interpolated ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids

EPSILON = 3e-6
"""Probability mass below this value may be rounding error of the stored float32 logarithms."""


def find_ngrams(keys: Ids, context: Ids, word: Ids, size: int) -> Ids:
    """Return the index of context · V + word in the sorted `keys`, any shape; −1 if absent or if the context is −1.

    >>> find_ngrams(np.array([12, 15, 31]), np.array([1, 1, -1]), np.array([5, 6, 1]), size=10).tolist()
    [1, -1, -1]
    """
    if len(keys) == 0:
        return np.full(context.shape, -1)
    key = context.astype(np.int64) * size + word
    row = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    return np.where((context >= 0) & (keys[row] == key), row, -1)


def take_or_default(values: Floats, rows: Ids, default: Floats) -> Floats:
    """Return `values[rows]`, or `default` where the row is −1."""
    return np.where(rows >= 0, values[rows], default) if len(values) else default


@dataclass(frozen=True, slots=True)
class BackoffLevel:
    """N-grams of one order, sorted by `key` = context row · V + word; at order 1 the row is the id."""

    key: Ids  # (M,)  int64
    log_prob: Floats  # (M,)  log p(w | h)
    log_backoff: Floats  # (M,)  log back-off weight of this n-gram as a context; 0 if it is not a context

    def __len__(self) -> int:
        return len(self.key)

    def find(self, context: Ids, word: Ids, size: int) -> Ids:
        """Return the rows of the n-grams (context row, word)."""
        return find_ngrams(self.key, context, word, size)

    def children(self, context: Ids, size: int) -> tuple[Ids, Ids]:
        """Return the range of rows, first and last + 1, of the n-grams after each context."""
        return np.searchsorted(self.key, context * size), np.searchsorted(self.key, (context + 1) * size)


@dataclass(frozen=True, slots=True)
class BackoffTables:
    """Tables of all orders: `levels[k]` has order k + 1; `log_missing` is the log weight of unseen contexts.

    For stream models, `starts_at_bos` means that n-grams beginning with `<s>` describe the start of a text;
    otherwise `<s>` is read as `</s>`.
    """

    levels: tuple[BackoffLevel, ...]
    log_missing: float = 0.0
    starts_at_bos: bool = False

    @property
    def order(self) -> int:
        """Highest order n."""
        return len(self.levels)

    @property
    def parameters(self) -> int:
        """Number of stored probabilities and back-off weights."""
        return sum(2 * len(level) for level in self.levels[:-1]) + len(self.levels[-1])

    def contexts(self, tokens: Ids, size: int) -> list[Ids]:
        """Return the rows of the 1- to (n−1)-grams that end at each of the `tokens` (B, T); −1 if not stored."""
        rows = [tokens]
        for level in self.levels[1:-1]:
            before = np.full(tokens.shape, -1)
            before[:, 1:] = rows[-1][:, :-1]
            rows.append(level.find(before, tokens, size))
        return rows[: self.order - 1]


def expand_rows(levels: Sequence[BackoffLevel], n: int, rows: Ids, size: int) -> Ids:
    """Return the words of rows of order n, (A,) -> (A, n)."""
    words = np.empty((len(rows), n), dtype=np.int64)
    for m in reversed(range(1, n)):
        rows, words[:, m] = np.divmod(levels[m].key[rows], size)
    words[:, 0] = rows  # at order 1 the row is the id
    return words


def find_rows(levels: Sequence[BackoffLevel], words: Ids, size: int) -> Ids:
    """Return the rows of m-grams given by their words, (A, m) -> (A,); −1 if not stored."""
    row = words[:, 0]
    for level, word in zip(levels[1:], words.T[1:], strict=False):
        row = level.find(row, word, size)
    return row


def score_ngrams(levels: Sequence[BackoffLevel], words: Ids, size: int) -> Floats:
    """Return log p of the last word given the others, (A, n) -> (A,); an unseen context has back-off weight 1."""
    n, last = words.shape[1], words[:, -1]
    log_p: Floats = levels[0].log_prob[last].astype(np.float64)
    for m in range(1, min(n, len(levels))):
        context = find_rows(levels, words[:, n - 1 - m : n - 1], size)
        backed_off = log_p + take_or_default(levels[m - 1].log_backoff, context, np.zeros(len(words)))
        log_p = take_or_default(levels[m].log_prob, levels[m].find(context, last, size), backed_off)
    return log_p


def find_suffixes(levels: Sequence[BackoffLevel], size: int) -> list[Ids]:
    """Return for each order the rows of w_2 … w_n in the next lower order; −1 if not stored, 0 at order 1."""
    suffixes: list[Ids] = [np.zeros(len(levels[0]), dtype=np.int64)]
    for n, level in enumerate(levels[1:], start=2):
        context, word = np.divmod(level.key, size)
        # At order 2 the suffix is a single word, whose row is its id.
        suffixes.append(word if n == 2 else find_ngrams(levels[n - 2].key, suffixes[-1][context], word, size))
    return suffixes


def lower_order_log_probs(levels: Sequence[BackoffLevel], n: int, suffix: Ids, rows: Ids, size: int) -> Floats:
    """Return log p(w | h′) of n-grams (h, w), (A,), where h′ is h without its first word.

    `suffix` holds the rows of (h′, w), −1 if not stored; `rows` are the rows of (h, w) in order n. `levels` has
    orders 1 to n; of order n only the keys are read.
    """
    below = levels[: n - 1]
    log_p = take_or_default(below[-1].log_prob, suffix, np.zeros(len(suffix))).astype(np.float64)
    missing = np.flatnonzero(suffix < 0)
    if len(missing):
        log_p[missing] = score_ngrams(below, expand_rows(levels, n, rows[missing], size)[:, 1:], size)
    return log_p
