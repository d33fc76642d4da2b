"""The readable twin of the compiled co-occurrence counting and GloVe: the same file, the same steps.

Lives here: what cpp/vectors/cooccurrence.cpp and cpp/vectors/glove.cpp do, on one thread and with the whole text in
memory; the two classes have the surface of the compiled ones. Not here: one step of AdaGrad (twin.py).
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.corpus import SENTENCE_BREAK
from chainrule.embeddings.twin import Floats, Random, fit

RECORD: Final = np.dtype([("i", "<i4"), ("j", "<i4"), ("x", "<f4")])
EXACT: Final = 22
"""The widest window whose distances all divide a number below 2^32."""
MASK: Final = (1 << 64) - 1

Whole = NDArray[np.uint64]


def unit_of(window: int) -> int:
    """Parts that a count is made of: all distances divide it, so that sums are exact, up to a window of 22 words.

    >>> unit_of(5), unit_of(23) == 2**32
    (60, True)
    """
    return math.lcm(*range(1, window + 1)) if window <= EXACT else 1 << 32


def mixed(pairs: Whole, seed: int) -> Whole:
    """splitmix64's finalizer (Steele et al. 2014), a bijection: in its order pairs are shuffled."""
    z = pairs + np.uint64((seed * 0x9E3779B97F4A7C15) & MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def count(numbers: NDArray[np.int32], number_of: NDArray[np.int32], window: int) -> tuple[Whole, Whole]:
    """Each pair i ≤ j as i·2^32 + j, in order, and Σ 1/distance of it in parts of `unit_of(window)`."""
    is_break = numbers == SENTENCE_BREAK
    words = np.where(is_break, -1, number_of[np.where(is_break, 0, numbers)]) if len(number_of) else numbers[:0]
    kept = words >= 0
    sentence = np.cumsum(is_break)[: len(words)][kept]
    word = words[kept].astype(np.uint64)
    unit = unit_of(window)
    pairs, amounts = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for d in range(1, min(window, max(0, len(word) - 1)) + 1):
        is_near = sentence[d:] == sentence[:-d]
        a, b = word[:-d][is_near], word[d:][is_near]
        pairs.append(np.minimum(a, b) << np.uint64(32) | np.maximum(a, b))
        amounts.append(np.full(len(a), (unit + d // 2) // d, np.uint64))
    found, place = np.unique(np.concatenate(pairs), return_inverse=True)
    sums = np.zeros(len(found), np.uint64)
    np.add.at(sums, place, np.concatenate(amounts))
    return found, sums


def records(pairs: Whole, sums: Whole, unit: int, seed: int) -> NDArray[np.void]:
    """Both directions of each pair, in the order of learning; a word beside itself is met in both at once."""
    order = np.argsort(mixed(pairs, seed))
    i, j = (pairs >> np.uint64(32))[order].astype(np.int32), pairs[order].astype(np.uint32).astype(np.int32)
    is_same = i == j
    x = (np.where(is_same, sums[order] * np.uint64(2), sums[order]) / unit).astype(np.float32)
    made = np.zeros((len(pairs), 2), RECORD)
    made["x"] = x[:, None]
    made["i"], made["j"] = np.stack([i, j], axis=1), np.stack([j, i], axis=1)
    is_wanted = np.ones(made.shape, bool)
    is_wanted[is_same, 1] = False
    return np.asarray(made[is_wanted])


class Cooccurrence:
    """The surface of the compiled class; the memory is what it takes."""

    runs = 0

    def __init__(
        self,
        file: str,
        numbers: int,
        number_of: NDArray[np.int32],
        words: int,
        out: str,
        *,
        window: int,
        bytes: int,
        threads: int,
        seed: int,
    ) -> None:
        self._file, self._numbers, self._number_of, self._out = file, numbers, number_of, out
        self._window, self._seed = window, seed
        self.records = self._done = 0

    def run(self, seconds: float) -> bool:
        """All of it at once, however long it takes."""
        numbers = np.fromfile(self._file, np.int32, self._numbers)
        made = records(*count(numbers, self._number_of, self._window), unit_of(self._window), self._seed)
        made.tofile(self._out)
        self.records, self._done = len(made), self._numbers
        return False

    def counted(self) -> tuple[bool, int, int]:
        """Whether counts are being merged, how much is done, of how much."""
        return False, self._done, self._numbers


class Glove:
    """The surface of the compiled class, on one thread."""

    simd = "python"

    def __init__(
        self,
        file: str,
        records: int,
        words: int,
        *,
        dimensions: int,
        epochs: int,
        rate: float,
        x_max: float,
        alpha: float,
        threads: int,
        seed: int,
        simd: str,
    ) -> None:
        self._records = np.fromfile(Path(file), RECORD, records)
        self._epochs, self._rate, self._x_max, self._alpha = epochs, rate, x_max, alpha
        random = Random(seed)
        draws = np.array([random.next() >> 8 for _ in range(words * 2 * (dimensions + 1))], np.float32)
        first = (draws / np.float32(1 << 24) - np.float32(0.5)) * (np.float32(1) / np.float32(dimensions + 1))
        self._rows: Floats = first.reshape(words, 2, dimensions + 1)  # of w and w̃, the bias last
        self._squares: Floats = np.ones_like(self._rows)
        self._pairs = 0
        self._costs: list[float] = []  # of the epochs that are over
        self._steps = self._learn()

    def run(self, seconds: float) -> bool:
        """Learn for so long, a pair at least; whether there is more to learn."""
        end = time.monotonic() + seconds
        return any(time.monotonic() >= end for _ in self._steps)

    def learnt(self) -> tuple[int, int, float]:
        """Pairs learnt, of how many, the mean cost of the last full epoch."""
        cost = self._costs[-1] / len(self._records) if self._costs and len(self._records) else math.nan
        return self._pairs, len(self._records) * self._epochs, cost

    def result(self) -> Floats:
        """w + w̃, (V, D)."""
        return np.asarray(self._rows[:, 0, :-1] + self._rows[:, 1, :-1])

    def _learn(self) -> Iterator[None]:
        """One pair after the other."""
        for _ in range(self._epochs):
            cost = 0.0
            for i, j, x in self._records.tolist():
                weight = min(1.0, (x / self._x_max) ** self._alpha)  # f(X)
                w, v, G_w, G_v = self._rows[i, 0], self._rows[j, 1], self._squares[i, 0], self._squares[j, 1]
                cost += fit(w, v, G_w, G_v, weight, math.log(x), self._rate)
                self._pairs += 1
                yield
            self._costs.append(cost)
