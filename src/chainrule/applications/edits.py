"""Vectorised channel model: log p(written | meant) of many word pairs at once.

For each pair the best partition max Π p(α_i → β_i) is found by dynamic programming. The common prefix and suffix of
a pair are scored directly, so that only the characters around edits are searched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.channel import BEGIN, END, MAX_SUBSTITUTION, Channel
from chainrule.applications.spelled import CodePoints, to_code_points
from chainrule.lm import Floats, Ids

CHARACTER_BITS: Final = 10  # bits per character in a key: 6 characters take 60
LENGTHS: Final = MAX_SUBSTITUTION + 1
MAX_ALPHABET: Final = (1 << CHARACTER_BITS) - 1  # number of distinguishable characters; 0 stands for all others
CONTEXT: Final = MAX_SUBSTITUTION
"""Characters searched on either side of an edit: one more than a substitution reaches, for doubled letters."""
HASH_BITS: Final = 19  # bits of the hash filter
PAIRS_AT_ONCE: Final = 1 << 14
TABLE_SHAPES: Final = tuple((a, b) for a in range(1, LENGTHS) for b in range(1, LENGTHS) if a + b > 2)
"""Lengths of (α, β) stored in lookup tables."""

Keys = NDArray[np.int64]


@dataclass(frozen=True)
class ChannelTables:
    """Channel probabilities as arrays; characters are indices into the sorted alphabet, from 1."""

    alphabet: Ids  # code points, sorted
    match: Floats  # (A + 1,) log p(a → a); index 0: any other character
    deletion: Floats  # (A + 1,) log p(a → ε)
    insertion: Floats  # (A + 1,) log p(ε → b)
    substitution: Floats  # (A + 1, A + 1) log p(a → b)
    doubling: float
    transposition: float
    tables: dict[tuple[int, int], "_Table"]  # learnt substitutions by lengths (|α|, |β|)

    @classmethod
    def of(cls, channel: Channel) -> "ChannelTables":
        """Compile a channel into arrays."""
        table = channel.log_table
        used = {c for alpha, beta in table for c in alpha + beta} | set(channel.occurrences) | {BEGIN, END}
        letters = sorted(c for c in used if len(c) == 1)[:MAX_ALPHABET]
        A = len(letters)
        index = {c: i for i, c in enumerate(letters, start=1)}
        match = np.array([channel.log_match(c) for c in ("", *letters)])
        deletion = np.full(A + 1, channel.log_prior_edit("x", ""))
        insertion = np.full(A + 1, channel.log_prior_edit("", "x"))
        substitution = np.full((A + 1, A + 1), channel.log_prior_edit("x", "y"))
        rows: dict[tuple[int, int], list[tuple[int, float]]] = {shape: [] for shape in TABLE_SHAPES}
        for (alpha, beta), log_p in table.items():
            if not all(c in index for c in alpha + beta):
                continue
            a, b = (tuple(index[c] for c in side) for side in (alpha, beta))
            if len(a) + len(b) == 1:
                (deletion if a else insertion)[(a or b)[0]] = log_p
            elif len(a) == len(b) == 1:
                substitution[a[0], b[0]] = log_p
            if (len(a), len(b)) in rows:
                rows[len(a), len(b)].append((_key((*a, *b)), log_p))
        match[[index[BEGIN], index[END]]] = 0.0
        for edit in (deletion, insertion):
            edit[[index[BEGIN], index[END]]] = -np.inf
        tables = {shape: _Table.of(entries) for shape, entries in rows.items() if entries}
        codes = np.array([ord(c) for c in letters], dtype=np.int64)
        return cls(
            codes,
            match,
            deletion,
            insertion,
            substitution,
            channel.log_prior_edit("x", "xx"),
            channel.log_prior_edit("xy", "yx"),
            tables,
        )

    def log_probs(self, meant: Sequence[str], written: Sequence[str]) -> Floats:
        """log p(written | meant) of each pair, given that the word was misspelt."""
        log_p = np.zeros(len(meant))
        for first in range(0, len(meant), PAIRS_AT_ONCE):
            part = slice(first, first + PAIRS_AT_ONCE)
            ends = (
                to_code_points([f"{BEGIN}{word.lower()}{END}" for word in side[part]]) for side in (meant, written)
            )
            log_p[part] = self._log_probs(*ends)
        return log_p

    def _log_probs(self, meant: CodePoints, written: CodePoints) -> Floats:
        log_common, first, last_x, last_y = self._trim(meant, written)
        sizes = np.maximum(last_x, last_y) - first
        log_p = np.empty(len(sizes))
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            x = _slice(meant, rows, first[rows], last_x[rows], int(size))
            y = _slice(written, rows, first[rows], last_y[rows], int(size))
            log_p[rows] = log_common[rows] + self._best_partition(x, y)
        return log_p

    def _trim(self, meant: CodePoints, written: CodePoints) -> tuple[Floats, Ids, Ids, Ids]:
        """log p of the common prefix and suffix, the start of the rest, and its end in either word."""
        width = max(meant.codes.shape[1], written.codes.shape[1])
        x, y = meant.padded(width), written.padded(width)
        shorter = np.minimum(meant.sizes, written.sizes)
        prefix = np.minimum(np.logical_and.accumulate(x == y, axis=1).sum(axis=1), shorter)
        x_end, y_end = meant.reversed(width), written.reversed(width)
        suffix = np.minimum(np.logical_and.accumulate(x_end == y_end, axis=1).sum(axis=1), shorter - prefix)
        first = np.maximum(prefix - CONTEXT, 0)
        suffix = np.maximum(suffix - CONTEXT, 0)
        last_x, last_y = meant.sizes - suffix, written.sizes - suffix
        log_match = np.zeros((len(x), width + 1))
        np.cumsum(np.where(x > 0, self.match[self._indices(x)], 0), axis=1, out=log_match[:, 1:])
        rows = np.arange(len(x))
        log_common = log_match[rows, first] + log_match[rows, meant.sizes] - log_match[rows, last_x]
        return log_common, first, last_x, last_y

    def _indices(self, codes: Ids) -> Ids:
        """Indices into the alphabet; 0 for unknown characters."""
        at = np.minimum(np.searchsorted(self.alphabet, codes), len(self.alphabet) - 1)
        return np.where(self.alphabet[at] == codes, at + 1, 0)

    def _best_partition(self, meant: CodePoints, written: CodePoints) -> Floats:
        """(P,) log p of the best partition of each pair: D[i, j] = max_{α,β} D[i − |α|, j − |β|] + log p(α → β)."""
        X, Y = (np.ascontiguousarray(word.codes.T) for word in (meant, written))  # (M, P), (J, P)
        x, y = self._indices(X), self._indices(Y)
        M, J, P = len(x), len(y), x.shape[1]
        D = np.full((M + 1, J + 1, P), -np.inf)
        D[0, 0] = 0
        keys_x, keys_y = _substring_keys(x), _substring_keys(y)
        band = int(np.abs(meant.sizes - written.sizes).max(initial=0)) + MAX_SUBSTITUTION
        for i, j in _cells(M, J, band):
            self._apply_single_edits(D, i, j, (X, Y), (x, y))
            for (a, b), table in self.tables.items():
                if a <= i and b <= j:
                    rows, log_p = table.find(keys_x[a][i - a] << CHARACTER_BITS * b | keys_y[b][j - b])
                    D[i, j, rows] = np.maximum(D[i, j, rows], D[i - a, j - b, rows] + log_p)
        best: Floats = D[meant.sizes, written.sizes, np.arange(P)]
        return best

    def _apply_single_edits(
        self, D: Floats, i: int, j: int, codes: tuple[Ids, Ids], indices: tuple[Ids, Ids]
    ) -> None:
        """Apply matches, substitutions, deletions, insertions, doublings and transpositions to cell (i, j)."""
        (X, Y), (x, y), cell = codes, indices, D[i, j]
        if i and j:
            is_same = X[i - 1] == Y[j - 1]
            step = np.where(is_same, self.match[x[i - 1]], self.substitution[x[i - 1], y[j - 1]])
            np.maximum(cell, D[i - 1, j - 1] + step, out=cell)
            if j > 1:
                _update_where(is_same & (Y[j - 2] == Y[j - 1]), D[i - 1, j - 2], self.doubling, cell)
            if i > 1:
                _update_where(is_same & (X[i - 2] == X[i - 1]), D[i - 2, j - 1], self.doubling, cell)
            if i > 1 and j > 1:
                is_swap = (X[i - 1] == Y[j - 2]) & (X[i - 2] == Y[j - 1])
                _update_where(is_swap, D[i - 2, j - 2], self.transposition, cell)
        if i:
            np.maximum(cell, D[i - 1, j] + self.deletion[x[i - 1]], out=cell)
        if j:
            np.maximum(cell, D[i, j - 1] + self.insertion[y[j - 1]], out=cell)


@dataclass(frozen=True, slots=True)
class _Table:
    """log p by key, with a hash filter that rejects most absent keys."""

    keys: Keys  # sorted
    log_probs: Floats
    is_used: NDArray[np.bool_]  # (2^HASH_BITS,)

    @classmethod
    def of(cls, rows: list[tuple[int, float]]) -> "_Table":
        rows = sorted(rows)
        keys = np.array([key for key, _ in rows], dtype=np.int64)
        is_used = np.zeros(1 << HASH_BITS, dtype=bool)
        is_used[_hash(keys)] = True
        return cls(keys, np.array([log_p for _, log_p in rows]), is_used)

    def find(self, keys: Keys) -> tuple[Ids, Floats]:
        """Indices of the keys that are present, and their log p."""
        likely = np.flatnonzero(self.is_used[_hash(keys)])
        at = np.minimum(np.searchsorted(self.keys, keys[likely]), len(self.keys) - 1)
        is_found = self.keys[at] == keys[likely]
        return likely[is_found], self.log_probs[at[is_found]]


def _hash(keys: Keys) -> Ids:
    return (keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - HASH_BITS)).view(np.int64)


def _update_where(condition: NDArray[np.bool_], before: Floats, log_p: float, cell: Floats) -> None:
    """Update the cell with this edit where the condition holds."""
    rows = np.flatnonzero(condition)
    cell[rows] = np.maximum(cell[rows], before[rows] + log_p)


def _cells(M: int, J: int, band: int) -> Iterator[tuple[int, int]]:
    """Cells within `band` of the diagonal except (0, 0), in order of computation."""
    return ((i, j) for i in range(M + 1) for j in range(J + 1) if i + j and abs(i - j) <= band)


def _key(indices: Sequence[int]) -> int:
    key = 0
    for index in indices:
        key = key << CHARACTER_BITS | index
    return key


def _substring_keys(x: Ids) -> list[Keys]:
    """Keys of all substrings by length, (M − length + 1, P) each; −1 if a character is unknown."""
    M, P = x.shape
    keys = [np.zeros((M + 1, P), dtype=np.int64)]
    for length in range(1, min(MAX_SUBSTITUTION, M) + 1):
        key = np.zeros((M - length + 1, P), dtype=np.int64)
        is_other = np.zeros(key.shape, dtype=bool)
        for k in range(length):
            letters = x[k : M - length + 1 + k]
            key = key << CHARACTER_BITS | letters
            is_other |= letters == 0
        keys.append(np.where(is_other, -1, key))
    return keys


def _slice(words: CodePoints, rows: Ids, first: Ids, last: Ids, size: int) -> CodePoints:
    """Characters `first` to `last` of these rows, left-aligned."""
    columns = first[:, None] + np.arange(size)
    codes = np.where(columns < last[:, None], words.padded(words.codes.shape[1] + size)[rows[:, None], columns], 0)
    return CodePoints(codes, last - first)
