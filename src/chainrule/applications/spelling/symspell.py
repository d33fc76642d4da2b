"""SymSpell index (symmetric deletes, Garbe): vocabulary words within two edits of many spellings at once.

Two words at distance d share a string that each becomes by deleting at most d letters. Only the first PREFIX
letters are indexed; candidates are verified by their full edit distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.lm import Ids

PREFIX: Final = 7
MAX_INDEXED_LENGTH: Final = 32  # longer words are not indexed
MAX_DISTANCE: Final = 2
MAX_PAIRS: Final = 1 << 18
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CodePoints:
    """Words as rows of code points, padded with 0 on the right."""

    codes: Ids  # (N, L) code points
    sizes: Ids  # (N,) word lengths

    def padded(self, width: int) -> Ids:
        """(N, width) code points; `width` must not be smaller than L."""
        return np.pad(self.codes, ((0, 0), (0, width - self.codes.shape[1])))

    def reversed(self, width: int) -> Ids:
        """(N, width) code points of the reversed words."""
        columns = self.sizes[:, None] - 1 - np.arange(width)
        return np.where(columns >= 0, np.take_along_axis(self.padded(width), np.maximum(columns, 0), axis=1), 0)


def to_code_points(words: Sequence[str]) -> CodePoints:
    """Convert words to code points; no word may contain U+0000."""
    sizes = np.array([len(word) for word in words], dtype=np.int64)
    width = int(sizes.max(initial=1))
    letters = np.frombuffer("".join(words).encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    codes = np.zeros((len(words), width), dtype=np.int32)
    codes[np.arange(width) < sizes[:, None]] = letters
    return CodePoints(codes, sizes)


@dataclass(frozen=True)
class SymSpellIndex:
    """Index of vocabulary words by their deletion variants."""

    spelled: CodePoints
    letters: Hashes  # (V,) letter set of each word as a bit mask
    levels: Sequence[tuple[Hashes, Ids]]  # [d − 1]: sorted hashes of at most d deletions, and their words

    @classmethod
    def of(cls, words: Sequence[str]) -> "SymSpellIndex":
        """Build the index."""
        spelled = to_code_points([word if len(word) <= MAX_INDEXED_LENGTH else "" for word in words])
        levels = []
        for distance in range(1, MAX_DISTANCE + 1):
            hashes, owners = _deletion_hashes(spelled, distance)
            order = np.argsort(hashes, kind="stable")
            levels.append((hashes[order], owners[order].astype(np.int32)))
        return cls(spelled, _letter_masks(spelled), levels)

    def find(self, spellings: Sequence[str], distance: int) -> tuple[Ids, Ids, Ids]:
        """Pairs (spelling index, word index) within `distance`, and their edit distances."""
        queries = to_code_points([word if len(word) <= MAX_INDEXED_LENGTH else "" for word in spellings])
        indexed, owners = self.levels[distance - 1]
        hashes, query_rows = _deletion_hashes(queries, distance)
        first = np.searchsorted(indexed, hashes, side="left")
        counts = np.searchsorted(indexed, hashes, side="right") - first
        letters = _letter_masks(queries)
        parts = []
        for part in _slices(counts):
            begins = np.cumsum(counts[part]) - counts[part]
            matches = np.repeat(first[part] - begins, counts[part]) + np.arange(int(counts[part].sum()))
            rows, words = np.repeat(query_rows[part], counts[part]), owners[matches].astype(np.int64)
            parts.append(self._verify(queries, letters, rows, words, distance))
        rows, words, edits = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(rows * len(self.spelled.sizes) + words, kind="stable")
        rows, words, edits = rows[order], words[order], edits[order]
        is_first = np.ones(len(rows), dtype=bool)
        is_first[1:] = (np.diff(rows) != 0) | (np.diff(words) != 0)
        return rows[is_first], words[is_first], edits[is_first]

    def _verify(
        self, queries: CodePoints, letters: Hashes, rows: Ids, words: Ids, distance: int
    ) -> tuple[Ids, Ids, Ids]:
        """Distinct pairs within `distance`; one edit changes at most two bits of the letter set."""
        is_near = np.bitwise_count(letters[rows] ^ self.letters[words]) <= 2 * distance
        is_near &= np.abs(queries.sizes[rows] - self.spelled.sizes[words]) <= distance
        V = len(self.spelled.sizes)
        pairs = np.sort(rows[is_near] * V + words[is_near])
        pairs = pairs[np.concatenate([[True], np.diff(pairs) != 0])[: len(pairs)]]
        rows, words = pairs // V, pairs % V
        edits = edit_distances(_select_rows(queries, rows), _select_rows(self.spelled, words), distance)
        is_near = edits <= distance
        return rows[is_near], words[is_near], edits[is_near]


def edit_distances(x: CodePoints, y: CodePoints, most: int) -> Ids:
    """(P,) Damerau–Levenshtein distances of pairs; values above `most` are inexact."""
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
    result: Ids = D[x.sizes, y.sizes, np.arange(P)]
    return result


def _select_rows(words: CodePoints, rows: Ids) -> CodePoints:
    sizes = words.sizes[rows]
    return CodePoints(words.codes[rows, : int(sizes.max(initial=0))], sizes)


def _letter_masks(words: CodePoints) -> Hashes:
    """(N,) letter set of each word as a bit mask; code points equal modulo 64 share a bit."""
    bits = np.where(words.codes > 0, np.uint64(1) << (words.codes & 63).astype(np.uint64), np.uint64(0))
    masks: Hashes = np.bitwise_or.reduce(bits, axis=1)
    return masks


def _slices(counts: Ids) -> list[slice]:
    """Slices of queries with about MAX_PAIRS pairs each."""
    part = np.cumsum(counts) // MAX_PAIRS
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(counts)]
    return [slice(first, last) for first, last in pairwise(cuts)]


def _deletion_hashes(words: CodePoints, distance: int) -> tuple[Hashes, Ids]:
    """Hashes of each word prefix with at most `distance` letters deleted, and the row of each hash."""
    sizes = np.minimum(words.sizes, PREFIX)
    hashes, owners = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for size in range(1, PREFIX + 1):
        rows = np.flatnonzero(sizes == size)
        if not len(rows):
            continue
        letters = words.codes[rows, :size].astype(np.uint64)
        for count in range(min(distance, size) + 1):
            for deleted in combinations(range(size), count):
                hashes.append(_hash(np.delete(letters, deleted, axis=1)))
                owners.append(rows)
    return np.concatenate(hashes), np.concatenate(owners)


def _hash(letters: Hashes) -> Hashes:
    """Multiplicative hash: (N, k) -> (N,)."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    value = np.full(len(letters), letters.shape[1] + 1, dtype=np.uint64)
    for column in letters.T:
        value = (value ^ column) * odd
        value ^= value >> np.uint64(29)
    return value
