"""An n-gram model as a LanguageModel: the compiled engine's model behind the contract.

Lives here: the two views. Not here: how they are defined (table_model.py), how a model comes to be (engine.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram.engine import Engine
from chainrule.ngram.table_model import NgramState
from chainrule.ngram.tables import BackoffTables
from chainrule.processors import threads

FEW = 1 << 13
"""Tokens that are not worth a second thread."""


@dataclass(frozen=True, slots=True)
class NgramModel:
    """p(w | h) from a model of the compiled engine."""

    engine: Engine
    vocabulary: Vocabulary
    context: Context = "line"
    is_normalized: bool = True

    @classmethod
    def of_tables(
        cls,
        tables: BackoffTables,
        vocabulary: Vocabulary,
        context: Context = "line",
        is_normalized: bool = True,
        names: Sequence[str] | None = None,
    ) -> Self:
        """The model of tables, in the fast layout."""
        engine = engines.of_tables(tables, vocabulary, context, is_normalized, names=names)
        return cls(engine, vocabulary, context, is_normalized)

    def with_tables(self, tables: BackoffTables) -> Self:
        """Other tables over the same words, by the same rules, in the same layout."""
        engine = engines.of_tables(
            tables,
            self.vocabulary,
            self.context,
            self.is_normalized,
            names=self.names,
            layout=self.engine.layout,
            bits=self.engine.bits,
        )
        return type(self)(engine, self.vocabulary, self.context, self.is_normalized)

    @property
    def names(self) -> list[str] | None:
        """The spelling of each id; None where the model knows ids alone."""
        return list(self.engine.names()) if self.engine.has_names else None

    @property
    def tables(self) -> BackoffTables:
        """Its tables, made anew each time."""
        return engines.to_tables(self.engine)

    @property
    def order(self) -> int:
        """Words in the longest n-gram, n."""
        return int(self.engine.order)

    @property
    def parameters(self) -> int:
        """Stored probabilities and back-off weights."""
        *lower, top = self.engine.sizes
        return int(2 * sum(lower) + top)

    def start(self, rows: int) -> NgramState:
        """As if n−1 `<s>` had been read."""
        return NgramState(np.full((rows, self.order - 1), self.vocabulary.bos, dtype=np.int32))

    def join(self, states: Sequence[NgramState]) -> NgramState:
        """The rows of several states in one, in their order."""
        return NgramState(np.concatenate([state.ids for state in states]))

    def step(self, state: NgramState, ids: Ids) -> tuple[Floats, NgramState]:
        """(K,) -> (K, V): the unigrams, then for each longer context its weight on all and its own on some."""
        after = NgramState(self.read(state, ids[:, None])[:, 1:])
        log_p: Floats = self.engine.step(np.ascontiguousarray(after.ids))
        return engines.check_scores(log_p, self.engine), after

    def score(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """(B, T) -> (B, T): the stored probability of the longest n-gram seen, times the weights passed by."""
        tokens = self.read(state, batch.inputs)
        targets = np.ascontiguousarray(batch.targets, dtype=np.int32)
        workers = 1 if targets.size < FEW else threads()
        log_p: Floats = self.engine.score(tokens, targets, workers)
        return engines.check_scores(log_p, self.engine), self._after(tokens, batch)

    def distributions(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """(B, T) -> (B, T, V): every context of the text is one hypothesis."""
        tokens = self.read(state, batch.inputs)
        T, n = batch.inputs.shape[1], self.order
        contexts = tokens[:, np.arange(1, T + 1)[:, None] + np.arange(n - 1)]  # (B, T, n−1)
        log_p: Floats = self.engine.step(np.ascontiguousarray(contexts.reshape(len(tokens) * T, n - 1)))
        log_p = engines.check_scores(log_p, self.engine)
        return log_p.reshape(*batch.inputs.shape, self.vocabulary.size), self._after(tokens, batch)

    def advance(self, batch: Batch, state: NgramState) -> NgramState:
        """The last n−1 ids of each row."""
        return self._after(self.read(state, batch.inputs), batch)

    def _after(self, tokens: Ids, batch: Batch) -> NgramState:
        last = batch.mask.sum(axis=1)[:, None] + np.arange(self.order - 1)  # (B, n−1), the last ids read
        return NgramState(np.take_along_axis(tokens, last, axis=1))

    def read(self, state: NgramState, inputs: Ids) -> Ids:
        """(K, n−1) and (K, T) -> (K, n−1+T).

        The engine reads `</s>` as the next line's `<s>` in a line model, and `<s>` as `</s>` in a stream model.
        """
        return np.concatenate([state.ids, inputs], axis=1, dtype=np.int32, casting="same_kind")
