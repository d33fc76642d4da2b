"""What every smoothing ends in: a probability for each n-gram that was seen, a weight for each context.

p(w | h) is the stored one where (h, w) was seen, else weight(h) · p(w | h without its first word): the form
of an ARPA file. Interpolated methods fit it too, their stored probabilities being the interpolated ones.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids


def find(keys: Ids, context: Ids, word: Ids, size: int) -> Ids:
    """Where context row · V + word stands in the sorted `keys`, any shape; −1 where the context is −1 or nowhere.

    >>> find(np.array([12, 15, 31]), np.array([1, 1, -1]), np.array([5, 6, 1]), size=10).tolist()
    [1, -1, -1]
    """
    if len(keys) == 0:
        return np.full(context.shape, -1)
    key = context.astype(np.int64) * size + word
    row = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    return np.where((context >= 0) & (keys[row] == key), row, -1)


def take(values: Floats, rows: Ids, otherwise: Floats) -> Floats:
    """The values of these rows, or what stands in `otherwise` where the row is −1."""
    return np.where(rows >= 0, values[rows], otherwise) if len(values) else otherwise


@dataclass(frozen=True, slots=True)
class BackoffLevel:
    """One order, sorted by `key` = context row · V + word; at order 1 the row is the word's id."""

    key: Ids  # (M,)  int64
    log_prob: Floats  # (M,)  log p(w | h)
    log_backoff: Floats  # (M,)  log weight of this n-gram as a context; 0 where it never was one

    def __len__(self) -> int:
        return len(self.key)

    def find(self, context: Ids, word: Ids, size: int) -> Ids:
        """Rows of the n-grams (context row, word)."""
        return find(self.key, context, word, size)

    def children(self, context: Ids, size: int) -> tuple[Ids, Ids]:
        """First and last + 1 row of the n-grams that have these contexts."""
        return np.searchsorted(self.key, context * size), np.searchsorted(self.key, (context + 1) * size)


@dataclass(frozen=True, slots=True)
class BackoffTables:
    """`levels[k]` holds order k + 1; `log_missing` weighs a context that was never seen.

    `starts_at_bos`, of a stream: the n-grams that begin with `<s>` are those of the start of a text. Otherwise a
    stream reads `<s>` as `</s>`.
    """

    levels: tuple[BackoffLevel, ...]
    log_missing: float = 0.0
    starts_at_bos: bool = False

    @property
    def order(self) -> int:
        """Words in the longest n-gram, n."""
        return len(self.levels)

    @property
    def parameters(self) -> int:
        """Stored probabilities and back-off weights."""
        return sum(2 * len(level) for level in self.levels[:-1]) + len(self.levels[-1])

    def contexts(self, tokens: Ids, size: int) -> list[Ids]:
        """Rows of the 1-, 2-, … (n−1)-grams that end at each of (B, T) `tokens`; −1 where not seen."""
        rows = [tokens]
        for level in self.levels[1:-1]:
            before = np.full(tokens.shape, -1)
            before[:, 1:] = rows[-1][:, :-1]
            rows.append(level.find(before, tokens, size))
        return rows[: self.order - 1]
