"""N-gram model implementing the `LanguageModel` protocol with the compiled engine, and its back-off trace.

A token is matched by the longest stored n-gram that ends in it; its log p is the stored log-probability plus the
back-off weights of the longer contexts. In back-off methods (Katz, stupid backoff) the stored value depends on the
count of that n-gram alone. In interpolated methods (Kneser–Ney, Witten–Bell, Jelinek–Mercer, add-k) it already
includes all lower orders.

"Stored" means present in the tables, which may hold fewer n-grams than the training text because of pruning. A
context counts as stored if at least one word is stored after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np

from chainrule.lm import Batch, Context, Floats, Ids, Mask, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram.engine import Engine
from chainrule.ngram.tables import BackoffTables
from chainrule.system import thread_count

MIN_TOKENS_FOR_THREADS = 1 << 13
"""Batches with fewer tokens are scored by one thread."""


@dataclass(frozen=True, slots=True)
class NgramState:
    """The last n−1 ids of each hypothesis, padded with `<s>`, at which a context ends."""

    ids: Ids  # (K, n−1)

    def select(self, rows: Ids) -> Self:
        """Return the states of these rows."""
        return type(self)(self.ids[rows])


@dataclass(frozen=True, slots=True)
class NgramModel:
    """Language model p(w | h) of a compiled n-gram engine."""

    engine: Engine
    vocabulary: Vocabulary
    context: Context = "line"
    is_normalized: bool = True
    network: ClassVar[None] = None

    @classmethod
    def from_tables(
        cls,
        tables: BackoffTables,
        vocabulary: Vocabulary,
        context: Context = "line",
        is_normalized: bool = True,
        names: Sequence[str] | None = None,
        layout: str = "fast",
        bits: int = 0,
    ) -> Self:
        """Build a model from back-off tables."""
        engine = engines.from_tables(
            tables, vocabulary, context, is_normalized, names=names, layout=layout, bits=bits
        )
        return cls(engine, vocabulary, context, is_normalized)

    @property
    def names(self) -> list[str] | None:
        """Word of each id, or None if the model stores no words."""
        return list(self.engine.names()) if self.engine.has_names else None

    @property
    def tables(self) -> BackoffTables:
        """Back-off tables, rebuilt at each access."""
        return engines.to_tables(self.engine)

    @property
    def order(self) -> int:
        """Order n."""
        return int(self.engine.order)

    @property
    def parameters(self) -> int:
        """Number of stored probabilities and back-off weights."""
        *lower, top = self.engine.sizes
        return int(2 * sum(lower) + top)

    def start(self, rows: int) -> NgramState:
        """Return the state after n−1 `<s>`."""
        return NgramState(np.full((rows, self.order - 1), self.vocabulary.bos, dtype=np.int32))

    def join(self, states: Sequence[NgramState]) -> NgramState:
        """Concatenate the rows of several states."""
        return NgramState(np.concatenate([state.ids for state in states]))

    def step(self, state: NgramState, ids: Ids) -> tuple[Floats, NgramState]:
        """Return log p of every next word, (K,) -> (K, V), and the new state."""
        after = NgramState(self.prepend_context(state, ids[:, None])[:, 1:])
        log_p: Floats = self.engine.step(np.ascontiguousarray(after.ids))
        return engines.check_scores(log_p, self.engine), after

    def score(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """Return log p of the targets, (B, T) -> (B, T): the longest stored n-gram plus the back-off weights."""
        tokens = self.prepend_context(state, batch.inputs)
        targets = np.ascontiguousarray(batch.targets, dtype=np.int32)
        log_p: Floats = self.engine.score(tokens, targets, _threads(targets))
        return engines.check_scores(log_p, self.engine), self._next_state(tokens, batch)

    def score_lines(self, ids: Ids) -> Floats | None:
        """Return log p of lines stored end to end, (N,) -> (N,), equal to `score`; None for a stream model."""
        if self.context == "stream":
            return None
        targets = np.ascontiguousarray(ids, dtype=np.int32)
        log_p: Floats = self.engine.score_lines(targets, _threads(targets))
        return engines.check_scores(log_p, self.engine)

    def distributions(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """Return log p of every next word at every position, (B, T) -> (B, T, V)."""
        tokens = self.prepend_context(state, batch.inputs)
        T, n = batch.inputs.shape[1], self.order
        contexts = tokens[:, np.arange(1, T + 1)[:, None] + np.arange(n - 1)]  # (B, T, n−1)
        log_p: Floats = self.engine.step(np.ascontiguousarray(contexts.reshape(len(tokens) * T, n - 1)))
        log_p = engines.check_scores(log_p, self.engine)
        return log_p.reshape(*batch.inputs.shape, self.vocabulary.size), self._next_state(tokens, batch)

    def advance(self, batch: Batch, state: NgramState) -> NgramState:
        """Return the state after the batch: the last n−1 ids of each row."""
        return self._next_state(self.prepend_context(state, batch.inputs), batch)

    def _next_state(self, tokens: Ids, batch: Batch) -> NgramState:
        last = batch.mask.sum(axis=1)[:, None] + np.arange(self.order - 1)  # (B, n−1)
        return NgramState(np.take_along_axis(tokens, last, axis=1))

    def prepend_context(self, state: NgramState, inputs: Ids) -> Ids:
        """Concatenate the context of a state and the inputs: (K, n−1) and (K, T) -> (K, n−1+T).

        The engine reads `</s>` as the next line's `<s>` in a line model, and `<s>` as `</s>` in a stream model.
        """
        return np.concatenate([state.ids, inputs], axis=1, dtype=np.int32, casting="same_kind")


def _threads(targets: Ids) -> int:
    return 1 if targets.size < MIN_TOKENS_FOR_THREADS else thread_count()


FULL_ORDER: Final = 0
WORD_NOT_STORED: Final = 1
CONTEXT_NOT_STORED: Final = 2
LINE_START: Final = 3
REASONS: Final = (
    "full order: the model has no longer n-grams",
    "backed off: context seen, word not seen after it",
    "backed off: context not seen",
    "beginning of the line: no more words before it",
)
"""Why no longer n-gram matched, indexed by the constants above; a pruned n-gram counts as not seen."""


@dataclass(frozen=True, slots=True)
class BackoffTrace:
    """Back-off path of (B, T) tokens; values where the batch's mask is False are undefined."""

    order: int  # n of the model
    matched: Ids  # (B, T)  order of the longest stored n-gram, 1 to n
    stored: Floats  # (B, T)  its stored log p
    weights: Floats  # (B, T, n−1)  [m−1]: log back-off weight of the context of m words, 0 if it was not applied
    is_stored: Mask  # (B, T, n−1)  [m−1]: whether any word is stored after the context of m words
    reason: Ids  # (B, T)  index into REASONS: why no longer n-gram matched

    @property
    def log_prob(self) -> Floats:
        """log p (B, T), summed in the same order as in `score`."""
        total = self.stored.copy()
        for m in range(1, self.order):
            total += self.weights[..., m - 1]
        return total


def trace_backoff(model: NgramModel, batch: Batch, state: NgramState) -> BackoffTrace:
    """Find the longest stored n-gram and the applied back-off weights of each target of a batch."""
    tokens = model.prepend_context(state, batch.inputs)  # (B, n−1+T)
    targets = np.ascontiguousarray(batch.targets, dtype=np.int32)
    lengths, stored, weights, is_stored = model.engine.depth(tokens, targets)
    matched = lengths.astype(np.int64)
    reason = _reasons(model.order, matched, is_stored, _has_context(model, tokens))
    return BackoffTrace(model.order, matched, stored, weights, is_stored, reason)


def _reasons(order: int, matched: Ids, is_stored: Mask, has_context: Mask) -> Ids:
    """Return why the context one word longer than that of the matched n-gram was not used, (B, T)."""
    if order == 1:
        return np.full(matched.shape, FULL_ORDER)
    next_longer = np.minimum(matched, order - 1)[..., None] - 1  # a context with as many words as the n-gram

    def of_next_longer(values: Mask) -> Mask:
        return np.asarray(np.take_along_axis(values, next_longer, axis=-1)[..., 0])

    reason = np.where(of_next_longer(is_stored), WORD_NOT_STORED, CONTEXT_NOT_STORED)
    reason = np.where(of_next_longer(has_context), reason, LINE_START)
    return np.where(matched == order, FULL_ORDER, reason)


def _has_context(model: NgramModel, tokens: Ids) -> Mask:
    """Return whether m words are available as context at [m−1], (B, T, n−1); `<s>` counts as the first word."""
    n = model.order
    T = tokens.shape[1] - (n - 1)
    is_begin = tokens == model.vocabulary.bos
    if model.context == "line":
        is_begin |= tokens == model.vocabulary.eos  # the next line begins
    is_open = np.ones((len(tokens), T), dtype=bool)
    has_context = np.ones((*is_open.shape, n - 1), dtype=bool)
    for m in range(1, n):
        has_context[..., m - 1] = is_open
        is_open = is_open & ~is_begin[:, n - m : n - m + T]
    return has_context
