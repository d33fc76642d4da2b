"""N-grams of back-off tables by row and by words: spelling rows out, finding words, the probability of any n-gram.

Lives here: what pruning and interpolation need of whole tables at once. Not here: scoring text (table_model.py).
"""

from collections.abc import Sequence

import numpy as np

from chainrule.lm import Floats, Ids
from chainrule.ngram.tables import BackoffLevel, find, take

EPSILON = 3e-6
"""A mass as small as this may be the rounding of stored single precision logarithms."""


def spell(levels: Sequence[BackoffLevel], n: int, rows: Ids, size: int) -> Ids:
    """(A,) rows of order n -> (A, n) their words."""
    words = np.empty((len(rows), n), dtype=np.int64)
    for m in reversed(range(1, n)):
        rows, words[:, m] = np.divmod(levels[m].key[rows], size)
    words[:, 0] = rows  # at order 1 the row is the id
    return words


def find_rows(levels: Sequence[BackoffLevel], words: Ids, size: int) -> Ids:
    """(A, m) words -> (A,) the rows of these m-grams, −1 where not stored."""
    row = words[:, 0]
    for level, word in zip(levels[1:], words.T[1:], strict=False):
        row = level.find(row, word, size)
    return row


def log_probs(levels: Sequence[BackoffLevel], words: Ids, size: int) -> Floats:
    """(A, n) words -> (A,) log p of the last after those before it; a context never seen has the weight 1."""
    n, last = words.shape[1], words[:, -1]
    log_p: Floats = levels[0].log_prob[last].astype(np.float64)
    for m in range(1, min(n, len(levels))):
        context = find_rows(levels, words[:, n - 1 - m : n - 1], size)
        passed_by = log_p + take(levels[m - 1].log_backoff, context, np.zeros(len(words)))
        log_p = take(levels[m].log_prob, levels[m].find(context, last, size), passed_by)
    return log_p


def suffixes(levels: Sequence[BackoffLevel], size: int) -> list[Ids]:
    """Of each order the rows of w_2 … w_n one order down, −1 where not stored; of order 1 the empty n-gram's, 0."""
    found: list[Ids] = [np.zeros(len(levels[0]), dtype=np.int64)]
    for n, level in enumerate(levels[1:], start=2):
        context, word = np.divmod(level.key, size)
        # At order 2 the suffix is the word alone, and the row of a word is its id.
        found.append(word if n == 2 else find(levels[n - 2].key, found[-1][context], word, size))
    return found


def shorter_log_probs(levels: Sequence[BackoffLevel], n: int, suffix: Ids, rows: Ids, size: int) -> Floats:
    """(A,) log p(w | h without its first word) of n-grams (h, w) that have these suffixes and spell out as `rows`.

    `levels` are the tables below order n and order n itself, of which only the words of `rows` are read.
    """
    below = levels[: n - 1]
    log_p = take(below[-1].log_prob, suffix, np.zeros(len(suffix))).astype(np.float64)
    lacking = np.flatnonzero(suffix < 0)
    if len(lacking):
        log_p[lacking] = log_probs(below, spell(levels, n, rows[lacking], size)[:, 1:], size)
    return log_p
