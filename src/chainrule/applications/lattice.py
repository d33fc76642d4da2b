"""Beam search for the most probable path through word lattices, batched over sentences.

Node t of a lattice precedes word t; an arc from t to t + 1 is a candidate of that word, an arc to t + 2 replaces
two words by one. The score of a path is Σ log p(written | meant) + λ Σ log p(word | preceding words), `</s>`
included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from chainrule.lm import AnyModel, Floats, Ids
from chainrule.ngram.engine import check_scores
from chainrule.ngram.table_model import NgramState
from chainrule.processors import thread_count

MIN_PARALLEL_QUERIES = 1 << 13
"""Minimum number of n-gram queries for multithreading."""
PRUNING_MARGIN = 10.0
"""Hypotheses this many nats below the best of their sentence are pruned."""
LOG_P_FLOOR = -100.0
"""Floor of log p, so that words of probability 0 stay possible."""


@dataclass(frozen=True, slots=True)
class Lattices:
    """Lattices of B sentences; word t of sentence b has `count[b, t]` arcs from index `first[b, t]`."""

    ids: Ids  # (A, 2) token ids of an arc; −1: no second word
    log_channel: Floats  # (A,)
    first: Ids  # (B, T)
    count: Ids  # (B, T) 0 after the end of the sentence
    sizes: Ids  # (B,) words per sentence
    joins: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """(sentence, arc) of the arcs over two words, by node."""


@dataclass(frozen=True, slots=True)
class Path:
    """Best path of a sentence: its arcs and its score."""

    arcs: tuple[int, ...]
    score: float


class NextWordScorer(Protocol):
    """Model state after a prefix per row, with access to next-word log-probabilities."""

    @property
    def state(self) -> Any:
        """Model state."""
        ...

    def log_probs(self, rows: Ids, ids: Ids) -> Floats:
        """(P,) log p of `ids` after the prefixes `rows`."""
        ...


@dataclass(frozen=True, slots=True)
class _FullDistributions:
    """Full next-word distributions, for any model."""

    state: Any
    log_p: Floats  # (K, V)

    def log_probs(self, rows: Ids, ids: Ids) -> Floats:
        """(P,) log p of `ids` after the prefixes `rows`."""
        return np.maximum(self.log_p[rows, ids], LOG_P_FLOOR)


@dataclass(frozen=True, slots=True)
class _NgramQueries:
    """N-gram engine queried only for the requested words."""

    tokens: Ids  # (K, n) last tokens read
    engine: Any

    @property
    def state(self) -> NgramState:
        """The last n − 1 tokens."""
        return NgramState(self.tokens[:, 1:])

    def log_probs(self, rows: Ids, ids: Ids) -> Floats:
        """(P,) log p of `ids` after the prefixes `rows`."""
        tokens = self.tokens[rows]
        workers = 1 if len(rows) < MIN_PARALLEL_QUERIES else thread_count()
        log_p: Floats = self.engine.score(tokens, np.ascontiguousarray(ids[:, None], dtype=np.int32), workers)
        return np.maximum(check_scores(log_p[:, 0], self.engine), LOG_P_FLOOR)


def advance_state(lm: AnyModel, state: Any, ids: Ids) -> NextWordScorer:
    """NextWordScorer one token per row."""
    engine = getattr(lm, "engine", None)
    if engine is None:
        log_p, after = lm.step(state, ids)
        return _FullDistributions(after, log_p)
    tokens = np.concatenate([state.ids, ids[:, None]], axis=1, dtype=np.int32, casting="same_kind")
    return _NgramQueries(tokens, engine)


@dataclass(frozen=True, slots=True)
class _Hypotheses:
    """Hypotheses; `last` has yet to be read by row `row` of the model state."""

    state: Any
    row: Ids  # (K,)
    last: Ids  # (K,)
    line: Ids  # (K,) sentence index
    score: Floats  # (K,)
    trace: Ids  # (K,) index of the back-pointer

    def select(self, rows: Ids) -> "_Hypotheses":
        """Select hypotheses and their states."""
        state, identity = self.state.select(self.row[rows]), np.arange(len(rows))
        return _Hypotheses(state, identity, self.last[rows], self.line[rows], self.score[rows], self.trace[rows])


class LatticeSearch:
    """Beam search over a batch of lattices."""

    def __init__(self, lm: AnyModel, lattices: Lattices, beam: int, weight: float) -> None:
        self._lm, self._lattices, self._beam, self._weight = lm, lattices, beam, weight
        self._arcs: list[Ids] = [np.full(1, -1)]  # last arc and parent of every hypothesis
        self._parents: list[Ids] = [np.full(1, -1)]
        self._recorded = 1
        B, T = lattices.first.shape
        self._agenda: list[list[_Hypotheses]] = [[] for _ in range(T + 2)]  # hypotheses by node
        self._finished: list[tuple[Ids, Ids, Floats]] = []  # sentence, trace, score
        bos = np.full(B, lm.vocabulary.bos, dtype=np.int32)
        root = np.zeros(B, dtype=np.int64)
        self._agenda[0].append(_Hypotheses(lm.start(B), np.arange(B), bos, np.arange(B), np.zeros(B), root))

    def run(self) -> list[Path]:
        """Best path of every sentence."""
        for node in range(len(self._agenda)):
            for batch in self._prune(node):
                self._expand(node, batch)
            self._agenda[node] = []
        return list(self._paths())

    def _prune(self, node: int) -> Iterator[_Hypotheses]:
        """Best hypotheses of each sentence at a node."""
        batches = self._agenda[node]
        if not batches:
            return
        line = np.concatenate([batch.line for batch in batches])
        score = np.concatenate([batch.score for batch in batches])
        order = np.lexsort((-score, line))
        line, score = line[order], score[order]
        best = np.searchsorted(line, line, side="left")  # the first of the same sentence
        is_near = (np.arange(len(line)) - best < self._beam) & (score > score[best] - PRUNING_MARGIN)
        is_kept = np.zeros(len(line), dtype=bool)
        is_kept[order[is_near]] = True
        offset = 0
        for batch in batches:
            rows = np.flatnonzero(is_kept[offset : offset + len(batch.line)])
            offset += len(batch.line)
            if len(rows):
                yield batch.select(rows)

    def _expand(self, node: int, batch: _Hypotheses) -> None:
        """Extend hypotheses by every arc of the node; finish those at the end of their sentence."""
        lattices = self._lattices
        context = advance_state(self._lm, batch.state, batch.last)
        is_over = lattices.sizes[batch.line] == node
        if is_over.any():
            rows = np.flatnonzero(is_over)
            eos = np.full(len(rows), self._lm.vocabulary.eos)
            score = batch.score[rows] + self._weight * context.log_probs(rows, eos)
            self._finished.append((batch.line[rows], batch.trace[rows], score))
        if node < lattices.first.shape[1]:
            count = lattices.count[batch.line, node]
            rows = np.repeat(np.arange(len(count)), count)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
            self._extend(node + 1, batch, context, rows, lattices.first[batch.line[rows], node] + within)
        joins = lattices.joins.get(node, ())
        for line, arc in joins:
            rows = np.flatnonzero(batch.line == line)
            self._extend(node + 2, batch, context, rows, np.full(len(rows), arc))

    def _extend(self, to: int, batch: _Hypotheses, context: NextWordScorer, rows: Ids, arcs: Ids) -> None:
        """Extend hypothesis `rows[i]` by `arcs[i]` to node `to`."""
        if not len(rows):
            return
        lattices = self._lattices
        first, second = lattices.ids[arcs].T
        score = batch.score[rows] + lattices.log_channel[arcs] + self._weight * context.log_probs(rows, first)
        single, double = np.flatnonzero(second < 0), np.flatnonzero(second >= 0)
        if len(single):
            trace = self._record(arcs[single], batch.trace[rows[single]])
            line = batch.line[rows[single]]
            hypotheses = _Hypotheses(
                context.state, rows[single], first[single].astype(np.int32), line, score[single], trace
            )
            self._agenda[to].append(hypotheses)
        if len(double):
            between = advance_state(self._lm, context.state.select(rows[double]), first[double].astype(np.int32))
            identity = np.arange(len(double))
            total = score[double] + self._weight * between.log_probs(identity, second[double])
            trace = self._record(arcs[double], batch.trace[rows[double]])
            line = batch.line[rows[double]]
            hypotheses = _Hypotheses(between.state, identity, second[double].astype(np.int32), line, total, trace)
            self._agenda[to].append(hypotheses)

    def _record(self, arcs: Ids, parents: Ids) -> Ids:
        """Record back-pointers of new hypotheses; return their indices."""
        self._arcs.append(arcs)
        self._parents.append(parents)
        self._recorded += len(arcs)
        return np.arange(self._recorded - len(arcs), self._recorded)

    def _paths(self) -> Iterator[Path]:
        arcs, parents = np.concatenate(self._arcs), np.concatenate(self._parents)
        line, trace, score = (np.concatenate(column) for column in zip(*self._finished, strict=True))
        order = np.lexsort((-score, line))
        firsts = order[np.unique(line[order], return_index=True)[1]]
        for row in firsts.tolist():
            path: list[int] = []
            index = int(trace[row])
            while index > 0:
                path.append(int(arcs[index]))
                index = int(parents[index])
            yield Path(tuple(path[::-1]), float(score[row]))


def search(lm: AnyModel, lattices: Lattices, beam: int, weight: float) -> Sequence[Path]:
    """Best path of every sentence."""
    return LatticeSearch(lm, lattices, beam, weight).run() if len(lattices.sizes) else []
