"""NumPy references of the n-gram engine: counting, back-off queries and the speller."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.ngram import oov_speller
from chainrule.ngram.model import NgramState
from chainrule.ngram.oov_speller import Speller, count_other_characters
from chainrule.ngram.smoothing import Counts, Level, insert_bos
from chainrule.ngram.tables import BackoffTables, take_or_default
from sequential_model import SequentialModel


def count(ids: Ids, order: int, vocabulary: Vocabulary, context: Context = "line") -> Counts:
    """Count all n-grams up to `order` whose last word is predicted.

    A model of order n reads n−1 `<s>` before a line; since c(<s> <s>, w) = c(<s>, w), one is stored and longer
    runs of `<s>` are read as one.
    """
    tokens = insert_bos(ids.astype(np.int32), vocabulary, context)
    levels = [_unigrams(tokens, vocabulary)]
    rows = tokens  # rows[t]: row of the n-gram that ends at t, or −1
    for _ in range(2, order + 1):
        level, rows = _extend(levels[-1], rows, tokens, vocabulary)
        levels.append(level)
    return Counts(tuple(levels), vocabulary)


def _unigrams(tokens: Ids, vocabulary: Vocabulary) -> Level:
    nothing = np.zeros(vocabulary.size, dtype=np.int64)
    ids = np.arange(vocabulary.size)
    counts = np.bincount(tokens, minlength=vocabulary.size)
    counts[vocabulary.bos] = 0
    return Level(nothing, ids, nothing, counts, ids == vocabulary.bos)


def _extend(below: Level, rows: Ids, tokens: Ids, vocabulary: Vocabulary) -> tuple[Level, Ids]:
    """Return the n-grams of the next order and the row of the n-gram that ends at each position."""
    before = rows[:-1]
    is_counted = (tokens[1:] != vocabulary.bos) & (before >= 0)
    key = before[is_counted].astype(np.int64) * vocabulary.size + tokens[1:][is_counted]
    keys, place, counts = np.unique(key, return_inverse=True, return_counts=True)
    ends = np.full(len(tokens), -1)
    ends[1:][is_counted] = place
    suffix = np.empty(len(keys), dtype=np.int64)
    suffix[place] = rows[1:][is_counted]
    context, word = np.divmod(keys, vocabulary.size)
    return Level(context, word, suffix, counts, below.begins[context]), ends


@dataclass(frozen=True, slots=True)
class TableModel(SequentialModel):
    """Language model p(w | h) of back-off tables, by look-up and back-off."""

    tables: BackoffTables
    vocabulary: Vocabulary
    context: Context = "line"
    is_normalized: bool = True

    @property
    def order(self) -> int:
        """Order n."""
        return self.tables.order

    @property
    def parameters(self) -> int:
        """Number of stored probabilities and back-off weights."""
        return self.tables.parameters

    def start(self, rows: int) -> NgramState:
        """Return the state after n−1 `<s>`."""
        return NgramState(np.full((rows, self.order - 1), self.vocabulary.bos, dtype=np.int64))

    def step(self, state: NgramState, ids: Ids) -> tuple[Floats, NgramState]:
        """(K,) -> (K, V): unigrams, then per longer context its back-off weight on all words and its stored
        probabilities.
        """
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
        """(B, T) -> (B, T): the stored probability of the longest match times the back-off weights of longer
        contexts.
        """
        tokens = self._read(state, batch.inputs)
        V, T = self.vocabulary.size, batch.inputs.shape[1]
        log_p: Floats = self.tables.levels[0].log_prob[batch.targets].astype(np.float64)
        reach = _reach(tokens, self.vocabulary.bos)
        contexts = [rows[:, -T:] for rows in self._contexts(tokens, reach)]
        reach = reach[:, -T:]
        for m, context in enumerate(contexts, start=1):
            is_stored = self.tables.levels[m].find(context, batch.targets, V)
            passed_by = log_p + self._backoff(m, context, reach)
            log_p = take_or_default(self.tables.levels[m].log_prob, is_stored, passed_by)
        return log_p, self._after(tokens, batch.mask.sum(axis=1))

    def _contexts(self, tokens: Ids, reach: Ids) -> list[Ids]:
        """Rows of the contexts of 1 to n−1 words that end at each of (B, T) tokens.

        In a stream, a text starts as a line does: `<s>` is read as a `</s>` without a predecessor, because `<s>`
        itself occurs only once, at the start of the training text, unless the tables say otherwise.
        """
        if self.context == "line" or self.tables.starts_at_bos:
            return self.tables.contexts(tokens, self.vocabulary.size)
        tokens = np.where(tokens == self.vocabulary.bos, self.vocabulary.eos, tokens)
        rows = self.tables.contexts(tokens, self.vocabulary.size)
        return [np.where(reach >= m, row, -1) for m, row in enumerate(rows, start=1)]

    def _backoff(self, m: int, context: Ids, reach: Ids) -> Floats:
        """Log back-off weight of contexts of m words; 0 where `<s>` precedes the m-th word."""
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
    """(B, T): number of words a context ending here can have, up to and including the nearest `<s>`."""
    at = np.arange(1, tokens.shape[1] + 1)[None, :]
    last_bos = np.maximum.accumulate(np.where(tokens == bos, at, 1), axis=1)
    return at - last_bos + 1


def _ranges(first: Ids, last: Ids) -> Ids:
    """All half-open ranges, concatenated.

    >>> _ranges(np.array([3, 7]), np.array([5, 8])).tolist()
    [3, 4, 7]
    """
    lengths = last - first
    before = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return np.asarray(np.arange(lengths.sum()) + np.repeat(first - before, lengths))


def encode_spellings(spellings: Sequence[str], alphabet: str) -> tuple[Ids, Ids]:
    """Return the concatenated ids of all spellings, each followed by `</s>`, and the positions of `</s>`.

    The id of a character is its index in the sorted alphabet; unknown characters have id `len(alphabet)`.
    """
    known = np.array([ord(c) for c in alphabet] or [-1])
    codes = np.frombuffer("\n".join([*spellings, ""]).encode("utf-32-le"), dtype="<u4").astype(np.int64)
    index = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    ids = np.where(known[index] == codes, index, len(alphabet))
    ends = np.cumsum([len(spelling) + 1 for spelling in spellings], dtype=np.int64) - 1
    ids[ends] = oov_speller._vocabulary(len(alphabet)).eos
    return ids, ends


def counts_to_arrays(counts: Counts) -> oov_speller.Arrays:
    """Return the arrays of the trie; `counts` must be counted per line, so that nothing follows `</s>`."""
    arrays: oov_speller.Arrays = {}
    order = counts.order
    for n, level in enumerate(counts.levels, start=1):
        is_leaf = oov_speller._is_leaf(level.word, n == order, counts.vocabulary)
        if n > 1:
            arrays[f"{n}.word"] = level.word.astype(oov_speller._id_type(counts.vocabulary))
        if n < order:
            children = np.bincount(counts.levels[n].context, minlength=len(level.word))
            oov_speller._pack(arrays, f"{n}.children", children[~is_leaf])
        oov_speller._pack(arrays, f"{n}.count", level.count[is_leaf])
    return arrays


def spelling_log_probs(speller: Speller, spellings: Sequence[str]) -> Floats:
    """Expected result of `speller.log_probs(spellings)`."""
    if not spellings:
        return np.zeros(0)
    lm, vocabulary = speller.lm, speller.lm.vocabulary
    ids, ends = encode_spellings(spellings, lm.alphabet)
    log_p = _score(lm.tables, ids, vocabulary)
    log_p[ids == vocabulary.unk] -= np.log(count_other_characters(lm.alphabet, lm.is_single))
    if lm.is_single:
        log_p[ends] = 0  # a single character has no `</s>`
    starts = np.concatenate([[0], ends[:-1] + 1])
    is_placeholder = np.array([bool(speller.placeholder) and s == speller.placeholder for s in spellings])
    return np.where(is_placeholder, speller.log_placeholder, np.add.reduceat(log_p, starts) - speller.log_outside)


def _score(tables: BackoffTables, ids: Ids, vocabulary: Vocabulary) -> Floats:
    """Return log p of each id, (N,) -> (N,); a new word starts after every `</s>`.

    The (m + 1)-gram matched at one id is the context of m + 1 characters of the next id, so each order is looked up
    once. An unseen context has back-off weight 1 (Witten–Bell).
    """
    V, bos, eos = vocabulary.size, vocabulary.bos, vocabulary.eos
    log_p: Floats = tables.levels[0].log_prob[ids].astype(np.float64)
    rows = np.where(ids == eos, bos, ids)
    for m, level in enumerate(tables.levels[1:], start=1):
        context = np.concatenate([[bos if m == 1 else -1], rows[:-1]])
        rows = level.find(context, ids, V)
        backed_off = log_p + take_or_default(tables.levels[m - 1].log_backoff, context, np.zeros(1))
        log_p = take_or_default(level.log_prob, rows, backed_off)
        rows[ids == eos] = -1
    return log_p


def as_tables(speller: Speller) -> Speller:
    """Return the speller as earlier versions stored it: back-off tables instead of counts."""
    return replace(speller, lm=replace(speller.lm, arrays=tables_to_arrays(speller.lm.tables)))


def tables_to_arrays(tables: BackoffTables) -> dict[str, NDArray[Any]]:
    """Return the arrays named by order; the keys of order 1 are implied and not stored."""
    arrays: dict[str, NDArray[Any]] = {"log_missing": np.array([tables.log_missing])}
    for n, level in enumerate(tables.levels, start=1):
        arrays[f"{n}.log_prob"] = level.log_prob
        if n > 1:
            arrays[f"{n}.key"] = level.key
        if n < tables.order:
            arrays[f"{n}.log_backoff"] = level.log_backoff
    return arrays
