"""The most probable reading of sentences whose words have candidates: a beam, for many sentences side by side.

Lives here: the search. Not here: the candidates (candidates.py), what words are in a line (correct.py).

A sentence is a lattice: node t stands before word t, an arc from t to t + 1 is a candidate of that word, and an arc
to t + 2 one word for two. The score of a path is Σ log p(written | meant) + λ Σ log p(word | the words before),
`</s>` included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from chainrule.lm import AnyModel, Floats, Ids
from chainrule.ngram.engine import check_scores
from chainrule.ngram.table_model import NgramState
from chainrule.processors import threads

FEW = 1 << 13
"""Questions that are not worth a second thread."""
MARGIN = 10.0
"""Nats behind the best of its sentence at which a hypothesis is given up."""
IMPOSSIBLE = -100.0
"""What a word costs that the model rules out: it may have been meant all the same."""


@dataclass(frozen=True, slots=True)
class Lattices:
    """The arcs of B sentences; those of word t of sentence b are `first[b, t]` and the `count[b, t]` from there."""

    ids: Ids  # (A, 2) what the model reads for an arc; −1: no second word
    log_channel: Floats  # (A,)
    first: Ids  # (B, T)
    count: Ids  # (B, T) 0 behind the sentence's end
    sizes: Ids  # (B,) words of each
    joins: dict[int, list[tuple[int, int]]] = field(
        default_factory=dict
    )  # by node: sentence and arc over two words


@dataclass(frozen=True, slots=True)
class Path:
    """The best reading of a sentence: its arcs, from the first word on."""

    arcs: tuple[int, ...]
    score: float


class Read(Protocol):
    """What a model has read, row by row."""

    @property
    def state(self) -> Any:
        """The model's state after it."""
        ...

    def ask(self, rows: Ids, ids: Ids) -> Floats:
        """(P,) log p of each id after its row."""
        ...


@dataclass(frozen=True, slots=True)
class _Row:
    """Every distribution in full: what any model can tell."""

    state: Any
    log_p: Floats  # (K, V)

    def ask(self, rows: Ids, ids: Ids) -> Floats:
        """(P,) log p of each id after its row."""
        return np.maximum(self.log_p[rows, ids], IMPOSSIBLE)


@dataclass(frozen=True, slots=True)
class _Ngrams:
    """An n-gram engine, which is asked for what is wanted and no more."""

    tokens: Ids  # (K, n) the last read
    engine: Any

    @property
    def state(self) -> NgramState:
        """The last n − 1 of them."""
        return NgramState(self.tokens[:, 1:])

    def ask(self, rows: Ids, ids: Ids) -> Floats:
        """(P,) log p of each id after its row."""
        tokens = self.tokens[rows]
        workers = 1 if len(rows) < FEW else threads()
        log_p: Floats = self.engine.score(tokens, np.ascontiguousarray(ids[:, None], dtype=np.int32), workers)
        return np.maximum(check_scores(log_p[:, 0], self.engine), IMPOSSIBLE)


def read(lm: AnyModel, state: Any, ids: Ids) -> Read:
    """One token a row."""
    engine = getattr(lm, "engine", None)
    if engine is None:
        log_p, after = lm.step(state, ids)
        return _Row(after, log_p)
    tokens = np.concatenate([state.ids, ids[:, None]], axis=1, dtype=np.int32, casting="same_kind")
    return _Ngrams(tokens, engine)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Hypotheses; `last` is still to be read by row `row` of the model's state."""

    state: Any
    row: Ids  # (K,)
    last: Ids  # (K,)
    line: Ids  # (K,) sentence
    score: Floats  # (K,)
    trace: Ids  # (K,) how it came here

    def keep(self, rows: Ids) -> "_Batch":
        """Some of them, with their own states and no others."""
        state, everything = self.state.select(self.row[rows]), np.arange(len(rows))
        return _Batch(state, everything, self.last[rows], self.line[rows], self.score[rows], self.trace[rows])


class Search:
    """One search over the lattices of some sentences."""

    def __init__(self, lm: AnyModel, lattices: Lattices, beam: int, weight: float) -> None:
        self._lm, self._lattices, self._beam, self._weight = lm, lattices, beam, weight
        self._arcs: list[Ids] = [np.full(1, -1)]  # of every hypothesis the arc it took, and the one it came from
        self._parents: list[Ids] = [np.full(1, -1)]
        self._traced = 1
        B, T = lattices.first.shape
        self._waiting: list[list[_Batch]] = [[] for _ in range(T + 2)]  # by node
        self._ended: list[tuple[Ids, Ids, Floats]] = []  # sentence, trace, score
        bos = np.full(B, lm.vocabulary.bos, dtype=np.int32)
        nowhere = np.zeros(B, dtype=np.int64)
        self._waiting[0].append(_Batch(lm.start(B), np.arange(B), bos, np.arange(B), np.zeros(B), nowhere))

    def run(self) -> list[Path]:
        """The best path of every sentence."""
        for node in range(len(self._waiting)):
            for batch in self._pruned(node):
                self._expand(node, batch)
            self._waiting[node] = []
        return list(self._paths())

    def _pruned(self, node: int) -> Iterator[_Batch]:
        """The best hypotheses of each sentence at a node."""
        batches = self._waiting[node]
        if not batches:
            return
        line = np.concatenate([batch.line for batch in batches])
        score = np.concatenate([batch.score for batch in batches])
        order = np.lexsort((-score, line))
        line, score = line[order], score[order]
        best = np.searchsorted(line, line, side="left")  # the first of the same sentence
        is_near = (np.arange(len(line)) - best < self._beam) & (score > score[best] - MARGIN)
        is_kept = np.zeros(len(line), dtype=bool)
        is_kept[order[is_near]] = True
        at = 0
        for batch in batches:
            rows = np.flatnonzero(is_kept[at : at + len(batch.line)])
            at += len(batch.line)
            if len(rows):
                yield batch.keep(rows)

    def _expand(self, node: int, batch: _Batch) -> None:
        """Take every arc from here; what stands at its sentence's end is ended instead."""
        lattices = self._lattices
        known = read(self._lm, batch.state, batch.last)
        is_over = lattices.sizes[batch.line] == node
        if is_over.any():
            rows = np.flatnonzero(is_over)
            eos = np.full(len(rows), self._lm.vocabulary.eos)
            score = batch.score[rows] + self._weight * known.ask(rows, eos)
            self._ended.append((batch.line[rows], batch.trace[rows], score))
        if node < lattices.first.shape[1]:
            count = lattices.count[batch.line, node]
            rows = np.repeat(np.arange(len(count)), count)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
            self._take(node + 1, batch, known, rows, lattices.first[batch.line[rows], node] + within)
        joins = lattices.joins.get(node, ())
        for line, arc in joins:
            rows = np.flatnonzero(batch.line == line)
            self._take(node + 2, batch, known, rows, np.full(len(rows), arc))

    def _take(self, to: int, batch: _Batch, known: Read, rows: Ids, arcs: Ids) -> None:
        """Follow arcs, each from its row, to a node."""
        if not len(rows):
            return
        lattices = self._lattices
        first, second = lattices.ids[arcs].T
        score = batch.score[rows] + lattices.log_channel[arcs] + self._weight * known.ask(rows, first)
        one, two = np.flatnonzero(second < 0), np.flatnonzero(second >= 0)
        if len(one):
            trace = self._note(arcs[one], batch.trace[rows[one]])
            line = batch.line[rows[one]]
            found = _Batch(known.state, rows[one], first[one].astype(np.int32), line, score[one], trace)
            self._waiting[to].append(found)
        if len(two):
            between = read(self._lm, known.state.select(rows[two]), first[two].astype(np.int32))
            everything = np.arange(len(two))
            both = score[two] + self._weight * between.ask(everything, second[two])
            trace = self._note(arcs[two], batch.trace[rows[two]])
            line = batch.line[rows[two]]
            found = _Batch(between.state, everything, second[two].astype(np.int32), line, both, trace)
            self._waiting[to].append(found)

    def _note(self, arcs: Ids, parents: Ids) -> Ids:
        """Where new hypotheses are written down."""
        self._arcs.append(arcs)
        self._parents.append(parents)
        self._traced += len(arcs)
        return np.arange(self._traced - len(arcs), self._traced)

    def _paths(self) -> Iterator[Path]:
        arcs, parents = np.concatenate(self._arcs), np.concatenate(self._parents)
        line, trace, score = (np.concatenate(column) for column in zip(*self._ended, strict=True))
        order = np.lexsort((-score, line))
        firsts = order[np.unique(line[order], return_index=True)[1]]
        for at in firsts.tolist():
            found: list[int] = []
            here = int(trace[at])
            while here > 0:
                found.append(int(arcs[here]))
                here = int(parents[here])
            yield Path(tuple(found[::-1]), float(score[at]))


def search(lm: AnyModel, lattices: Lattices, beam: int, weight: float) -> Sequence[Path]:
    """The best path of every sentence."""
    return Search(lm, lattices, beam, weight).run() if len(lattices.sizes) else []
