"""Back-off tables as a LanguageModel, in NumPy: what the compiled model (model.py) is held equal to.

Lives here: the two views, look up and back off, as they are defined. Not here: counting (counts.py) and estimating
(estimate.py).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.ngram.tables import BackoffTables, take_or_default


@dataclass(frozen=True, slots=True)
class NgramState:
    """The last n−1 ids read, `<s>` where fewer were: a context ends there."""

    ids: Ids  # (K, n−1)

    def select(self, rows: Ids) -> Self:
        """The states of these rows."""
        return type(self)(self.ids[rows])


@dataclass(frozen=True, slots=True)
class TableModel:
    """p(w | h) from back-off tables."""

    tables: BackoffTables
    vocabulary: Vocabulary
    context: Context = "line"
    is_normalized: bool = True

    @property
    def order(self) -> int:
        """Words in the longest n-gram, n."""
        return self.tables.order

    @property
    def parameters(self) -> int:
        """Stored probabilities and back-off weights."""
        return self.tables.parameters

    def start(self, rows: int) -> NgramState:
        """As if n−1 `<s>` had been read."""
        return NgramState(np.full((rows, self.order - 1), self.vocabulary.bos, dtype=np.int64))

    def step(self, state: NgramState, ids: Ids) -> tuple[Floats, NgramState]:
        """(K,) -> (K, V): the unigrams, then for each longer context its weight on all and its own on some."""
        tokens = self._read(state, ids[:, None])
        V, K = self.vocabulary.size, len(ids)
        log_p = np.tile(self.tables.levels[0].log_prob.astype(np.float64), (K, 1))
        reach = _reach(tokens, self.vocabulary.bos)
        contexts = [rows[:, -1] for rows in self._contexts(tokens, reach)]
        reach = reach[:, -1]
        for m, context in enumerate(contexts, start=1):
            log_p += self._backoff(m, context, reach)[:, None]
            row = np.flatnonzero(context >= 0)
            first, last = self.tables.levels[m].children(context[row], V)
            child = _ranges(first, last)
            word = self.tables.levels[m].key[child] % V
            log_p[np.repeat(row, last - first), word] = self.tables.levels[m].log_prob[child]
        return log_p, self._after(tokens, np.ones(K, dtype=np.int64))

    def score(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """(B, T) -> (B, T): the stored probability of the longest n-gram seen, times the weights passed by."""
        tokens = self._read(state, batch.inputs)
        V, T = self.vocabulary.size, batch.inputs.shape[1]
        log_p: Floats = self.tables.levels[0].log_prob[batch.targets].astype(np.float64)
        reach = _reach(tokens, self.vocabulary.bos)
        contexts = [rows[:, -T:] for rows in self._contexts(tokens, reach)]
        reach = reach[:, -T:]
        for m, context in enumerate(contexts, start=1):
            found = self.tables.levels[m].find(context, batch.targets, V)
            passed_by = log_p + self._backoff(m, context, reach)
            log_p = take_or_default(self.tables.levels[m].log_prob, found, passed_by)
        return log_p, self._after(tokens, batch.mask.sum(axis=1))

    def _contexts(self, tokens: Ids, reach: Ids) -> list[Ids]:
        """Rows of the contexts of 1 to n−1 words that end at each of (B, T) tokens.

        In a stream a text starts as a line does: `<s>` is read as a `</s>` that has nothing before it, since `<s>`
        itself was seen once, where the training text starts, unless the tables say otherwise.
        """
        if self.context == "line" or self.tables.starts_at_bos:
            return self.tables.contexts(tokens, self.vocabulary.size)
        tokens = np.where(tokens == self.vocabulary.bos, self.vocabulary.eos, tokens)
        rows = self.tables.contexts(tokens, self.vocabulary.size)
        return [np.where(reach >= m, row, -1) for m, row in enumerate(rows, start=1)]

    def _backoff(self, m: int, context: Ids, reach: Ids) -> Floats:
        """Log weight of contexts of m words; none where `<s>` ends the context before its m-th word."""
        missing = np.where(reach >= m, self.tables.log_missing, 0.0)
        return take_or_default(self.tables.levels[m - 1].log_backoff, context, missing)

    def _read(self, state: NgramState, inputs: Ids) -> Ids:
        """(K, n−1) and (K, T) -> (K, n−1+T). In a line model `</s>` reads as `<s>`: the next line begins."""
        tokens = np.concatenate([state.ids, inputs.astype(np.int64)], axis=1)
        if self.context == "line":
            tokens[tokens == self.vocabulary.eos] = self.vocabulary.bos
        return tokens

    def _after(self, tokens: Ids, read: Ids) -> NgramState:
        """The n−1 ids up to the last one read, (K, n−1+T) and (K,) -> (K, n−1)."""
        return NgramState(np.take_along_axis(tokens, read[:, None] + np.arange(self.order - 1), axis=1))


def _reach(tokens: Ids, bos: int) -> Ids:
    """(B, T): how many words a context that ends here can have, back to the nearest `<s>`, it included."""
    at = np.arange(1, tokens.shape[1] + 1)[None, :]
    last_bos = np.maximum.accumulate(np.where(tokens == bos, at, 1), axis=1)
    return at - last_bos + 1


def _ranges(first: Ids, last: Ids) -> Ids:
    """The numbers of all half-open ranges, end to end.

    >>> _ranges(np.array([3, 7]), np.array([5, 8])).tolist()
    [3, 4, 7]
    """
    lengths = last - first
    before = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return np.asarray(np.arange(lengths.sum()) + np.repeat(first - before, lengths))
