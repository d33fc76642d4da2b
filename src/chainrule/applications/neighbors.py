"""Which words of a vocabulary are within two edits of a spelling, for many spellings at once.

Lives here: the index by what is left when letters are struck out (Garbe's symmetric deletes), and the distance that
settles it. Not here: how probable a slip is (channel.py), other ways to a candidate (candidates.py).

Two words at distance d share a string that each becomes by striking out at most d of its letters. The first PREFIX
letters alone are indexed; what they find is measured in full.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.spelled import Spelled, spell
from chainrule.lm import Ids

PREFIX: Final = 7
LONGEST_WORD: Final = 32  # longer ones have no neighbours
FURTHEST: Final = 2
PAIRS_AT_ONCE: Final = 1 << 18

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Level:
    """Hashes of what is left of the words after at most d letters are struck out, sorted, and whose they are."""

    hashes: Hashes
    owners: Ids

    @classmethod
    def of(cls, words: Spelled, distance: int) -> "_Level":
        hashes, owners = _struck(words, distance)
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], owners[order].astype(np.int32))


@dataclass(frozen=True)
class Neighbors:
    """The words of a vocabulary, to be found by spellings near them."""

    spelled: Spelled
    letters: Hashes  # (V,) which letters a word has, as bits
    levels: tuple[_Level, ...]  # [d − 1] for distance d

    @classmethod
    def of(cls, words: Sequence[str]) -> "Neighbors":
        """The index of these words."""
        spelled = spell([word if len(word) <= LONGEST_WORD else "" for word in words])
        return cls(spelled, _letters(spelled), tuple(_Level.of(spelled, d) for d in range(1, FURTHEST + 1)))

    def find(self, spellings: Sequence[str], distance: int) -> tuple[Ids, Ids, Ids]:
        """Pairs of a spelling and a word at most so many edits apart, by their places, and the edits."""
        asked = spell([word if len(word) <= LONGEST_WORD else "" for word in spellings])
        level = self.levels[distance - 1]
        hashes, askers = _struck(asked, distance)
        first = np.searchsorted(level.hashes, hashes, side="left")
        counts = np.searchsorted(level.hashes, hashes, side="right") - first
        letters = _letters(asked)
        parts = []
        for part in _slices(counts):
            begins = np.cumsum(counts[part]) - counts[part]
            at = np.repeat(first[part] - begins, counts[part]) + np.arange(int(counts[part].sum()))
            rows, words = np.repeat(askers[part], counts[part]), level.owners[at].astype(np.int64)
            parts.append(self._measured(asked, letters, rows, words, distance))
        rows, words, edits = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(rows * len(self.spelled.sizes) + words, kind="stable")
        rows, words, edits = rows[order], words[order], edits[order]
        is_first = np.ones(len(rows), dtype=bool)
        is_first[1:] = (np.diff(rows) != 0) | (np.diff(words) != 0)
        return rows[is_first], words[is_first], edits[is_first]

    def _measured(
        self, asked: Spelled, letters: Hashes, rows: Ids, words: Ids, distance: int
    ) -> tuple[Ids, Ids, Ids]:
        """Those of the pairs that are near, each once; an edit changes at most two of a word's letters."""
        is_near = np.bitwise_count(letters[rows] ^ self.letters[words]) <= 2 * distance
        is_near &= np.abs(asked.sizes[rows] - self.spelled.sizes[words]) <= distance
        V = len(self.spelled.sizes)
        pairs = np.sort(rows[is_near] * V + words[is_near])
        pairs = pairs[np.concatenate([[True], np.diff(pairs) != 0])[: len(pairs)]]
        rows, words = pairs // V, pairs % V
        edits = distances(_rows(asked, rows), _rows(self.spelled, words), distance)
        is_near = edits <= distance
        return rows[is_near], words[is_near], edits[is_near]


def distances(x: Spelled, y: Spelled, most: int) -> Ids:
    """(P,) edits from each x to its y, neighbouring letters exchanged counting one; those above `most` inexact."""
    P, M, J = len(x.sizes), int(x.sizes.max(initial=0)), int(y.sizes.max(initial=0))
    far = most + 1
    D = np.full((M + 1, J + 1, P), far, dtype=np.int8)
    D[: far + 1, 0] = np.arange(min(far, M) + 1, dtype=np.int8)[:, None]
    D[0, : far + 1] = np.arange(min(far, J) + 1, dtype=np.int8)[:, None]
    X, Y = (np.ascontiguousarray(word.codes.T) for word in (x, y))
    for i in range(1, M + 1):
        for j in range(max(1, i - most), min(J, i + most) + 1):
            best = np.minimum(D[i - 1, j], D[i, j - 1]) + np.int8(1)
            np.minimum(best, D[i - 1, j - 1] + (X[i - 1] != Y[j - 1]), out=best)
            if i > 1 and j > 1:
                swapped = (X[i - 1] == Y[j - 2]) & (X[i - 2] == Y[j - 1])
                np.minimum(best, np.where(swapped, D[i - 2, j - 2] + np.int8(1), far), out=best, casting="unsafe")
            D[i, j] = np.minimum(best, far)
    found: Ids = D[x.sizes, y.sizes, np.arange(P)]
    return found


def _rows(words: Spelled, rows: Ids) -> Spelled:
    sizes = words.sizes[rows]
    return Spelled(words.codes[rows, : int(sizes.max(initial=0))], sizes)


def _letters(words: Spelled) -> Hashes:
    """(N,) a bit for each letter that a word has, letters 64 apart sharing one."""
    bits = np.where(words.codes > 0, np.uint64(1) << (words.codes & 63).astype(np.uint64), np.uint64(0))
    found: Hashes = np.bitwise_or.reduce(bits, axis=1)
    return found


def _slices(counts: Ids) -> list[slice]:
    """Runs of questions that give at most about PAIRS_AT_ONCE pairs each."""
    part = np.cumsum(counts) // PAIRS_AT_ONCE
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(counts)]
    return [slice(first, last) for first, last in pairwise(cuts)]


def _struck(words: Spelled, distance: int) -> tuple[Hashes, Ids]:
    """Hashes of each word's first letters with at most `distance` of them struck out, and whose they are."""
    sizes = np.minimum(words.sizes, PREFIX)
    hashes, owners = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for size in range(1, PREFIX + 1):
        rows = np.flatnonzero(sizes == size)
        if not len(rows):
            continue
        letters = words.codes[rows, :size].astype(np.uint64)
        for count in range(min(distance, size) + 1):
            for struck in combinations(range(size), count):
                hashes.append(_hash(np.delete(letters, struck, axis=1)))
                owners.append(rows)
    return np.concatenate(hashes), np.concatenate(owners)


def _hash(letters: Hashes) -> Hashes:
    """(N, k) -> (N,): a polynomial in an odd number, its bits stirred."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    value = np.full(len(letters), letters.shape[1] + 1, dtype=np.uint64)
    for column in letters.T:
        value = (value ^ column) * odd
        value ^= value >> np.uint64(29)
    return value
