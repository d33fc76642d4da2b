"""Vectorised conversion between rows and words of back-off tables, and probabilities of arbitrary n-grams.

Used by pruning and interpolation, which process whole tables at once.
"""

from collections.abc import Sequence

import numpy as np

from chainrule.lm import Floats, Ids
from chainrule.ngram.tables import BackoffLevel, find_ngrams, take_or_default

EPSILON = 3e-6
"""Probability mass below this value may be rounding error of the stored float32 logarithms."""


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
