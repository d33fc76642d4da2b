"""Back-off tables: a log-probability for each stored n-gram and a back-off weight for each context.

p(w | h) is the stored probability if (h, w) is stored, otherwise weight(h) · p(w | h′), where h′ is h without its
first word, as in an ARPA file. For interpolated methods the stored probabilities are the interpolated ones.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids


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
