"""The channel applied to many pairs at once, in NumPy.

Lives here: the best way to write each word as another, max over partitions of Π p(α_i → β_i). Not here: where the
probabilities come from (channel.py). What is the same at both ends of a pair is read off beforehand, so that only
the letters around the slips are searched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.channel import BEGIN, END, LONGEST, Channel
from chainrule.applications.spelled import Spelled, spell
from chainrule.lm import Floats, Ids

BITS: Final = 10  # of a character in a key: 6 of them are 60
LENGTHS: Final = LONGEST + 1
KNOWN: Final = (1 << BITS) - 1  # characters that can be told apart; 0 is any other
AROUND: Final = (
    LONGEST  # letters beside a slip that are searched: one more than a substitution may reach, for doubled ones
)
HASH: Final = 19  # bits
PAIRS_AT_ONCE: Final = 1 << 14
SHAPES: Final = tuple((a, b) for a in range(1, LENGTHS) for b in range(1, LENGTHS) if a + b > 2)
"""Lengths of α and β that are looked up."""

Keys = NDArray[np.int64]


@dataclass(frozen=True)
class Edits:
    """A channel's numbers as arrays: characters are their places in the sorted alphabet, from 1."""

    alphabet: Ids  # code points, sorted
    kept: Floats  # (A + 1,) log p(a → a), [0] for any other character
    lost: Floats  # (A + 1,) log p(a → nothing)
    added: Floats  # (A + 1,) log p(nothing → b)
    replaced: Floats  # (A + 1, A + 1) log p(a → b)
    doubled: float
    swapped: float
    tables: dict[tuple[int, int], "_Table"]  # by shape: what was learnt

    @classmethod
    def of(cls, channel: Channel) -> "Edits":
        """The arrays of a channel."""
        table = channel.log_table
        used = {c for alpha, beta in table for c in alpha + beta} | set(channel.occurrences) | {BEGIN, END}
        letters = sorted(c for c in used if len(c) == 1)[:KNOWN]
        A = len(letters)
        place = {c: i for i, c in enumerate(letters, start=1)}
        kept = np.array([channel.log_kept(c) for c in ("", *letters)])
        lost = np.full(A + 1, channel.log_plain("x", ""))
        added = np.full(A + 1, channel.log_plain("", "x"))
        replaced = np.full((A + 1, A + 1), channel.log_plain("x", "y"))
        rows: dict[tuple[int, int], list[tuple[int, float]]] = {shape: [] for shape in SHAPES}
        for (alpha, beta), log_p in table.items():
            if not all(c in place for c in alpha + beta):
                continue
            a, b = (tuple(place[c] for c in side) for side in (alpha, beta))
            if len(a) + len(b) == 1:
                (lost if a else added)[(a or b)[0]] = log_p
            elif len(a) == len(b) == 1:
                replaced[a[0], b[0]] = log_p
            if (len(a), len(b)) in rows:
                rows[len(a), len(b)].append((_key((*a, *b)), log_p))
        kept[[place[BEGIN], place[END]]] = 0.0
        for slip in (lost, added):
            slip[[place[BEGIN], place[END]]] = -np.inf
        tables = {shape: _Table.of(found) for shape, found in rows.items() if found}
        codes = np.array([ord(c) for c in letters], dtype=np.int64)
        return cls(
            codes, kept, lost, added, replaced, channel.log_plain("x", "xx"), channel.log_plain("xy", "yx"), tables
        )

    def log_probs(self, meant: Sequence[str], written: Sequence[str]) -> Floats:
        """log p(written | meant) of each pair, that something was written otherwise being known."""
        log_p = np.zeros(len(meant))
        for first in range(0, len(meant), PAIRS_AT_ONCE):
            part = slice(first, first + PAIRS_AT_ONCE)
            ends = (spell([f"{BEGIN}{word.lower()}{END}" for word in side[part]]) for side in (meant, written))
            log_p[part] = self._log_probs(*ends)
        return log_p

    def _log_probs(self, meant: Spelled, written: Spelled) -> Floats:
        same, first, last_x, last_y = self._trimmed(meant, written)
        sizes = np.maximum(last_x, last_y) - first
        log_p = np.empty(len(sizes))
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            x = _cut(meant, rows, first[rows], last_x[rows], int(size))
            y = _cut(written, rows, first[rows], last_y[rows], int(size))
            log_p[rows] = same[rows] + self._best(x, y)
        return log_p

    def _trimmed(self, meant: Spelled, written: Spelled) -> tuple[Floats, Ids, Ids, Ids]:
        """log p of what is the same at both ends; where the rest begins, and ends in either."""
        width = max(meant.codes.shape[1], written.codes.shape[1])
        x, y = meant.padded(width), written.padded(width)
        shorter = np.minimum(meant.sizes, written.sizes)
        front = np.minimum(np.logical_and.accumulate(x == y, axis=1).sum(axis=1), shorter)
        x_end, y_end = meant.reversed(width), written.reversed(width)
        back = np.minimum(np.logical_and.accumulate(x_end == y_end, axis=1).sum(axis=1), shorter - front)
        first = np.maximum(front - AROUND, 0)
        back = np.maximum(back - AROUND, 0)
        last_x, last_y = meant.sizes - back, written.sizes - back
        log_kept = np.zeros((len(x), width + 1))
        np.cumsum(np.where(x > 0, self.kept[self._places(x)], 0), axis=1, out=log_kept[:, 1:])
        at = np.arange(len(x))
        same = log_kept[at, first] + log_kept[at, meant.sizes] - log_kept[at, last_x]
        return same, first, last_x, last_y

    def _places(self, codes: Ids) -> Ids:
        """Places in the alphabet, 0 for what is not in it."""
        at = np.minimum(np.searchsorted(self.alphabet, codes), len(self.alphabet) - 1)
        return np.where(self.alphabet[at] == codes, at + 1, 0)

    def _best(self, meant: Spelled, written: Spelled) -> Floats:
        """(P,) the best partition of each pair.  D[i, j] = max over α, β of D[i − |α|, j − |β|] + log p(α → β)."""
        X, Y = (np.ascontiguousarray(word.codes.T) for word in (meant, written))  # (M, P), (J, P)
        x, y = self._places(X), self._places(Y)
        M, J, P = len(x), len(y), x.shape[1]
        D = np.full((M + 1, J + 1, P), -np.inf)
        D[0, 0] = 0
        pieces_x, pieces_y = _pieces(x), _pieces(y)
        band = int(np.abs(meant.sizes - written.sizes).max(initial=0)) + LONGEST
        for i, j in _cells(M, J, band):
            self._single_steps(D, i, j, (X, Y), (x, y))
            for (a, b), table in self.tables.items():
                if a <= i and b <= j:
                    found, log_p = table.find(pieces_x[a][i - a] << BITS * b | pieces_y[b][j - b])
                    D[i, j, found] = np.maximum(D[i, j, found], D[i - a, j - b, found] + log_p)
        best: Floats = D[meant.sizes, written.sizes, np.arange(P)]
        return best

    def _single_steps(self, D: Floats, i: int, j: int, letters: tuple[Ids, Ids], places: tuple[Ids, Ids]) -> None:
        """One letter kept, replaced, lost, added; one doubled or two written once; two exchanged."""
        (X, Y), (x, y), here = letters, places, D[i, j]
        if i and j:
            is_same = X[i - 1] == Y[j - 1]
            step = np.where(is_same, self.kept[x[i - 1]], self.replaced[x[i - 1], y[j - 1]])
            np.maximum(here, D[i - 1, j - 1] + step, out=here)
            if j > 1:
                _where(is_same & (Y[j - 2] == Y[j - 1]), D[i - 1, j - 2], self.doubled, here)
            if i > 1:
                _where(is_same & (X[i - 2] == X[i - 1]), D[i - 2, j - 1], self.doubled, here)
            if i > 1 and j > 1:
                is_swap = (X[i - 1] == Y[j - 2]) & (X[i - 2] == Y[j - 1])
                _where(is_swap, D[i - 2, j - 2], self.swapped, here)
        if i:
            np.maximum(here, D[i - 1, j] + self.lost[x[i - 1]], out=here)
        if j:
            np.maximum(here, D[i, j - 1] + self.added[y[j - 1]], out=here)


@dataclass(frozen=True, slots=True)
class _Table:
    """log p by key; a map of hashes tells at once of most keys that they are not there."""

    keys: Keys  # sorted
    log_probs: Floats
    is_used: NDArray[np.bool_]  # (2^HASH,)

    @classmethod
    def of(cls, rows: list[tuple[int, float]]) -> "_Table":
        rows = sorted(rows)
        keys = np.array([key for key, _ in rows], dtype=np.int64)
        is_used = np.zeros(1 << HASH, dtype=bool)
        is_used[_hashed(keys)] = True
        return cls(keys, np.array([log_p for _, log_p in rows]), is_used)

    def find(self, keys: Keys) -> tuple[Ids, Floats]:
        """Which of these are there, and their log p."""
        likely = np.flatnonzero(self.is_used[_hashed(keys)])
        at = np.minimum(np.searchsorted(self.keys, keys[likely]), len(self.keys) - 1)
        is_found = self.keys[at] == keys[likely]
        return likely[is_found], self.log_probs[at[is_found]]


def _hashed(keys: Keys) -> Ids:
    return (keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - HASH)).view(np.int64)


def _where(is_so: NDArray[np.bool_], before: Floats, log_p: float, here: Floats) -> None:
    """Take this step where it can be taken."""
    rows = np.flatnonzero(is_so)
    here[rows] = np.maximum(here[rows], before[rows] + log_p)


def _cells(M: int, J: int, band: int) -> Iterator[tuple[int, int]]:
    """All cells near the diagonal but the first, each after those it is made of."""
    return ((i, j) for i in range(M + 1) for j in range(J + 1) if i + j and abs(i - j) <= band)


def _key(places: Sequence[int]) -> int:
    key = 0
    for place in places:
        key = key << BITS | place
    return key


def _pieces(x: Ids) -> list[Keys]:
    """By length the keys of all pieces: (M − length + 1, P) each; −1, no key, where a character is not known."""
    M, P = x.shape
    found = [np.zeros((M + 1, P), dtype=np.int64)]
    for length in range(1, min(LONGEST, M) + 1):
        key = np.zeros((M - length + 1, P), dtype=np.int64)
        is_other = np.zeros(key.shape, dtype=bool)
        for k in range(length):
            letters = x[k : M - length + 1 + k]
            key = key << BITS | letters
            is_other |= letters == 0
        found.append(np.where(is_other, -1, key))
    return found


def _cut(words: Spelled, rows: Ids, first: Ids, last: Ids, size: int) -> Spelled:
    """These rows from `first` to `last`, moved to the left."""
    at = first[:, None] + np.arange(size)
    codes = np.where(at < last[:, None], words.padded(words.codes.shape[1] + size)[rows[:, None], at], 0)
    return Spelled(codes, last - first)
