"""Candidate lattices of sentences, beam search for their most probable paths, and refinement of single words.

Node t of a lattice precedes word t; an arc from t to t + 1 is a candidate of that word, an arc to t + 2 replaces
two words with one. The score of a path is Σ log p(written | meant) + λ Σ log p(word | preceding words), `</s>`
included.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np

from chainrule.applications.spelling.candidates import Arcs, Candidates, Word
from chainrule.lm import AnyModel, Batch, Floats, Ids
from chainrule.ngram.engine import check_scores
from chainrule.ngram.model import NgramState
from chainrule.system import thread_count

MIN_PARALLEL_QUERIES = 1 << 13
"""Minimum number of n-gram queries for multithreading."""
PRUNING_MARGIN = 10.0
"""Hypotheses this many nats below the best of their sentence are pruned."""
LOG_P_FLOOR = -100.0
"""Floor of log p, so that words of probability 0 stay possible."""
MAX_SWEEPS: Final = 8  # passes over a line; each but the last may change one word
BATCH_ROWS: Final = 512


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


NextWordScorer = Callable[[Ids, Ids], Floats]
"""Function of the rows of prefixes and ids of next words, (P,) each, that returns log p of these words, (P,)."""


def advance_state(lm: AnyModel, state: Any, ids: Ids) -> tuple[Any, NextWordScorer]:
    """Read one token per row; an n-gram engine is queried only for the words that are scored."""
    if lm.engine is None:
        log_p, after = lm.step(state, ids)  # (K, V)
        return after, lambda rows, words: np.maximum(log_p[rows, words], LOG_P_FLOOR)
    engine = lm.engine
    tokens = np.concatenate([state.ids, ids[:, None]], axis=1, dtype=np.int32, casting="same_kind")  # (K, n)

    def log_probs(rows: Ids, words: Ids) -> Floats:
        return np.maximum(_query_engine(engine, tokens[rows], words.astype(np.int32)), LOG_P_FLOOR)

    return NgramState(tokens[:, 1:]), log_probs


def _query_engine(engine: Any, contexts: Ids, words: Ids) -> Floats:
    """(P,) log p of each word after its context, (P, n)."""
    workers = 1 if len(words) < MIN_PARALLEL_QUERIES else thread_count()
    log_p: Floats = engine.score(contexts, np.ascontiguousarray(words[:, None]), workers)[:, 0]
    return check_scores(log_p, engine)


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
        state, log_probs = advance_state(self._lm, batch.state, batch.last)
        is_over = lattices.sizes[batch.line] == node
        if is_over.any():
            rows = np.flatnonzero(is_over)
            eos = np.full(len(rows), self._lm.vocabulary.eos)
            score = batch.score[rows] + self._weight * log_probs(rows, eos)
            self._finished.append((batch.line[rows], batch.trace[rows], score))
        if node < lattices.first.shape[1]:
            count = lattices.count[batch.line, node]
            rows = np.repeat(np.arange(len(count)), count)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
            arcs = lattices.first[batch.line[rows], node] + within
            self._extend(node + 1, batch, state, log_probs, rows, arcs)
        for line, arc in lattices.joins.get(node, ()):
            rows = np.flatnonzero(batch.line == line)
            self._extend(node + 2, batch, state, log_probs, rows, np.full(len(rows), arc))

    def _extend(
        self, to: int, batch: _Hypotheses, state: Any, log_probs: NextWordScorer, rows: Ids, arcs: Ids
    ) -> None:
        """Extend hypothesis `rows[i]` by `arcs[i]` to node `to`."""
        if not len(rows):
            return
        lattices = self._lattices
        first, second = lattices.ids[arcs].T
        score = batch.score[rows] + lattices.log_channel[arcs] + self._weight * log_probs(rows, first)
        for is_double in (False, True):
            chosen = np.flatnonzero((second >= 0) == is_double)
            if not len(chosen):
                continue
            row, last, total = rows[chosen], first[chosen].astype(np.int32), score[chosen]
            line, trace = batch.line[row], self._record(arcs[chosen], batch.trace[row])
            if is_double:
                state, log_probs = advance_state(self._lm, state.select(row), last)
                row, last = np.arange(len(chosen)), second[chosen].astype(np.int32)
                total = total + self._weight * log_probs(row, last)
            self._agenda[to].append(_Hypotheses(state, row, last, line, total, trace))

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


@dataclass(frozen=True, slots=True)
class WordChoice:
    """One word of a line, or two joined words, and its chosen candidate."""

    first: int
    last: int
    choice: int
    arcs: Arcs

    @property
    def text(self) -> str:
        """Text of the chosen candidate."""
        return self.arcs.texts[self.choice]

    @property
    def ids(self) -> list[int]:
        """Token ids of the chosen candidate."""
        return [i for i in self.arcs.ids[self.choice].tolist() if i >= 0]

    def put(self, words: list[Word], text: str) -> str:
        """Render a candidate with the case and punctuation of the line."""
        first, last = words[self.first], words[self.last - 1]
        if self.last - self.first == 1:
            return first.put(text)
        is_unchanged = text == f"{first.core} {last.core}"
        return first.text + last.blanks + last.text if is_unchanged else first.put(text) + last.after


class CandidateLattices:
    """Candidate lattices of a batch of lines."""

    def __init__(self, candidates: Candidates, line_words: Sequence[list[Word]]) -> None:
        self._candidates = candidates
        distinct = {word.lookup_key: word for words in line_words for word in words}
        index = {key: i for i, key in enumerate(distinct)}
        sizes = np.array([len(words) for words in line_words], dtype=np.int64)
        word_index = np.full((len(line_words), int(sizes.max(initial=0))), len(distinct), dtype=np.int64)
        for row, words in enumerate(line_words):
            word_index[row, : len(words)] = [index[word.lookup_key] for word in words]
        single = candidates.find_in_line(list(distinct.values()))
        counts = np.array([*(len(arcs.texts) for arcs in single), 0], dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        self._joined = int(counts.sum())  # index of the first arc over two words
        joined, joins = _find_joins(candidates, line_words, self._joined)
        self._arcs = [*single, *joined]
        self._arc_owner = [i for i, arcs in enumerate(self._arcs) for _ in arcs.texts]
        self._arc_choice = [i for arcs in self._arcs for i in range(len(arcs.texts))]
        ids = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(arcs.ids for arcs in self._arcs)])
        log_channel = np.concatenate([np.zeros(0), *(arcs.log_channel for arcs in self._arcs)])
        self.lattices = Lattices(ids, log_channel, firsts[word_index], counts[word_index], sizes, joins)

    def read(self, words: list[Word], path: Path) -> list[WordChoice]:
        """Convert a path to the words and candidates of its arcs."""
        parts, node = [], 0
        for arc in path.arcs:
            arcs = self._arcs[self._arc_owner[arc]]
            size = 2 if arc >= self._joined else 1
            if size == 2:
                arcs = self._with_unjoined(arcs, words[node], words[node + 1])
            parts.append(WordChoice(node, node + size, self._arc_choice[arc], arcs))
            node += size
        assert node == len(words)
        return parts

    def _with_unjoined(self, joined: Arcs, first: Word, second: Word) -> Arcs:
        """Arcs of the joined word and of the two words as written."""
        first_arcs, second_arcs = self._candidates.find_in_line([first, second])
        ids = np.array([joined.ids[0], [first_arcs.ids[0, 0], second_arcs.ids[0, 0]]])
        log_channel = np.array([joined.log_channel[0], first_arcs.log_channel[0] + second_arcs.log_channel[0]])
        return Arcs((*joined.texts, f"{first.core} {second.core}"), ids, log_channel)


def _find_joins(
    candidates: Candidates, line_words: Sequence[list[Word]], first_arc: int
) -> tuple[list[Arcs], dict[int, list[tuple[int, int]]]]:
    """Arcs over two adjacent words whose concatenation is in the vocabulary, and their positions by node."""
    positions = [
        (row, node, (first.core, second.core))
        for row, words in enumerate(line_words)
        for node, (first, second) in enumerate(pairwise(words))
        if first.core + second.core in candidates.known and _can_be_joined(first, second)
    ]
    distinct = list(dict.fromkeys(pair for _, _, pair in positions))
    arcs = candidates.joined(distinct)
    arc_index = {pair: first_arc + i for i, pair in enumerate(distinct)}
    joins: dict[int, list[tuple[int, int]]] = {}
    for row, node, pair in positions:
        joins.setdefault(node, []).append((row, arc_index[pair]))
    return arcs, joins


def _can_be_joined(first: Word, second: Word) -> bool:
    """Whether the blank between two words may be an error: it separates letters or digits."""
    if first.after or second.before or first.is_fixed or second.is_fixed:
        return False
    return first.core[-1].isalnum() and second.core[0].isalnum()


@dataclass(slots=True)
class DecodedLine:
    """A decoded line; `scores` are those of the candidates of each part, given the other parts."""

    words: list[Word]
    parts: list[WordChoice]
    score: float
    scores: list[Floats]


def refine_words(lm: AnyModel, weight: float, lines: Sequence[DecodedLine]) -> None:
    """Change one word at a time until each is the best of its candidates."""
    active = list(lines)
    for sweep in range(MAX_SWEEPS):
        _rescore(lm, weight, active)
        if sweep < MAX_SWEEPS - 1:
            active = [line for line in active if _apply_best_change(line)]


def merge_duplicates(texts: Sequence[str], scores: Floats) -> tuple[list[str], Floats]:
    """Merge equal texts; their scores are combined by log-sum-exp."""
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    total = np.full(len(index), -np.inf)
    np.logaddexp.at(total, [index[text] for text in texts], scores)
    return list(index), total


def _apply_best_change(line: DecodedLine) -> bool:
    """Apply the change with the largest gain; return False if no change improves the score."""
    best, change = 0.0, None
    for position, (part, scores) in enumerate(zip(line.parts, line.scores, strict=True)):
        if len(scores) == 1:
            continue
        texts = [part.put(line.words, text) for text in part.arcs.texts]
        distinct, total = merge_duplicates(texts, scores)
        gain = float(total.max() - total[distinct.index(texts[part.choice])])
        if gain > best:
            best_text = distinct[int(total.argmax())]
            candidate_scores = np.where([text == best_text for text in texts], scores, -np.inf)
            best, change = gain, (position, int(candidate_scores.argmax()))
    if change is None:
        return False
    position, choice = change
    part = line.parts[position]
    line.score += float(line.scores[position][choice] - line.scores[position][part.choice])
    line.parts[position] = replace(part, choice=choice)
    return True


def _rescore(lm: AnyModel, weight: float, lines: Sequence[DecodedLine]) -> None:
    """Score all candidates, up to a constant per position."""
    log_p = _score_lines(lm, lines) if lm.engine is None else _score_ngrams(lm, lm.engine, lines)
    offset = 0
    for line in lines:
        line.scores = []
        for part in line.parts:
            size = len(part.arcs.texts)
            line.scores.append(part.arcs.log_channel + weight * log_p[offset : offset + size])
            offset += size


def _score_ngrams(lm: AnyModel, engine: Any, lines: Sequence[DecodedLine]) -> Floats:
    """log p of each candidate and of the following n − 1 words, whose context contains it."""
    start = [*lm.start(1).ids[0].tolist(), lm.vocabulary.bos]
    n = len(start)
    tokens: list[int] = []
    targets: list[int] = []  # indices of the tokens to score
    owners: list[int] = []
    rows = 0
    for line in lines:
        part_ids = [part.ids for part in line.parts]
        flat = [*start, *chain.from_iterable(part_ids), lm.vocabulary.eos]
        position = n
        for part, ids in zip(line.parts, part_ids, strict=True):
            before, after = flat[position - n : position], flat[position + len(ids) : position + len(ids) + n - 1]
            position += len(ids)
            for first, second in part.arcs.ids.tolist():
                tokens += [*before, first, *([second] if second >= 0 else ()), *after]
                count = 1 + (second >= 0) + len(after)
                targets += range(len(tokens) - count, len(tokens))
                owners += [rows] * count
                rows += 1
    if not rows:
        return np.zeros(0)
    token_array, target_array = np.array(tokens, dtype=np.int32), np.array(targets)
    contexts = token_array[target_array[:, None] + np.arange(-n, 0)]
    log_p = _query_engine(engine, contexts, token_array[target_array])
    totals = np.zeros(rows)
    np.add.at(totals, owners, np.maximum(log_p, LOG_P_FLOOR))
    return totals


def _score_lines(lm: AnyModel, lines: Sequence[DecodedLine]) -> Floats:
    """log p of the whole line for each candidate."""
    rows: list[list[int]] = []
    for line in lines:
        part_ids = [part.ids for part in line.parts]
        for position, part in enumerate(line.parts):
            before, after = (
                list(chain.from_iterable(side)) for side in (part_ids[:position], part_ids[position + 1 :])
            )
            rows += [[*before, *(i for i in ids if i >= 0), *after] for ids in part.arcs.ids.tolist()]
    eos, bos = lm.vocabulary.eos, lm.vocabulary.bos
    log_probs = []
    for first in range(0, len(rows), BATCH_ROWS):
        batch = rows[first : first + BATCH_ROWS]
        T = max(len(row) for row in batch) + 1
        inputs = np.array([[bos, *row, *[eos] * (T - 1 - len(row))] for row in batch], dtype=np.int32)
        targets = np.array([[*row, *[eos] * (T - len(row))] for row in batch], dtype=np.int32)
        mask = np.arange(T) <= np.array([len(row) for row in batch])[:, None]
        log_p, _ = lm.score(Batch(inputs, targets, mask), lm.start(len(batch)))
        log_probs.append(np.where(mask, np.maximum(log_p, LOG_P_FLOOR), 0).sum(axis=1))
    return np.concatenate([np.zeros(0), *log_probs])
