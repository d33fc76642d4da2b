"""The readable twin of the compiled learning of word vectors: the same draws, the same steps, the same order.

Lives here: the generator (cpp/base/random.hpp), the noise (cpp/vectors/noise.cpp) and the three kernels
(cpp/vectors/kernels/impl.hpp).
Not here: whole learnings (word2vec_twin.py, glove_twin.py). Numbers are float32 as there; the order of sums may be
another.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ChainruleError

Floats = NDArray[np.float32]
GROUP: Final = 6  # targets learnt at once
ALL: Final = 0xFFFFFFFF
MASK: Final = (1 << 64) - 1


class Random:
    """xorshift64 (Marsaglia 2003) behind a splitmix64 start."""

    def __init__(self, seed: int) -> None:
        z = (seed + 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        self.state = (z ^ (z >> 31)) | 1

    def next(self) -> int:
        """The next 32 bits."""
        s = self.state
        s ^= (s << 13) & MASK
        s ^= s >> 7
        s ^= (s << 17) & MASK
        self.state = s
        return (s >> 16) & ALL

    def below(self, n: int) -> int:
        """A number from 0 to n − 1."""
        return (self.next() * n) >> 32


class Noise:
    """Walker's alias table: cell i keeps `keep[i]` of 2^32 for itself, the rest is `other[i]`'s."""

    def __init__(self, weights: Sequence[float]) -> None:
        total = 0.0
        for weight in weights:  # one after the other: no better rounding than the twin's
            total += weight
        if not total > 0 or not math.isfinite(total):
            raise ChainruleError("noise needs words, with weights above 0 whose sum is finite")
        share = [weight / total * len(weights) for weight in weights]
        small = [i for i, part in enumerate(share) if part < 1]
        large = [i for i, part in enumerate(share) if not part < 1]
        self.keep, self.other = [ALL] * len(share), list(range(len(share)))
        while small and large:
            low, high = small.pop(), large[-1]
            self.keep[low], self.other[low] = int(share[low] * ALL), high
            share[high] -= 1 - share[low]
            if share[high] < 1:
                small.append(large.pop())

    def draw(self, random: Random) -> int:
        """One number, in proportion to the weights."""
        i = random.below(len(self.keep))
        return i if random.next() < self.keep[i] else self.other[i]


END: Final = 8.0  # the tables go from −8 to 8
CELLS: Final = 1024


@cache
def _tables() -> tuple[Floats, Floats]:
    """σ and −log σ in the middle of each cell."""
    x = ((np.arange(CELLS) + 0.5) * 2 / CELLS - 1) * END
    return (1 / (1 + np.exp(-x))).astype(np.float32), np.log1p(np.exp(-x)).astype(np.float32)


def _cells(x: Floats) -> NDArray[np.int64]:
    bounded = np.where(x > -END, np.minimum(x, np.float32(END)), np.float32(-END)).astype(np.float32)
    scaled = (bounded + np.float32(END)) * np.float32(CELLS / (2 * END))
    return np.minimum(scaled.astype(np.int64), CELLS - 1)


def _errors(x: Floats, y: Floats, has_word: bool, rate: float) -> tuple[Floats, float]:
    """The step's factors and the loss: (A, D), (M, D) -> (A, M).

    e_ak = rate ([k = 0] − σ(x_a · y_k));  loss = Σ_a (−log σ(x_a · y_0) − Σ_{k>0} log σ(−x_a · y_k)).
    """
    sigmoid, minus_log = _tables()
    dots = x @ y.T
    is_word = np.zeros(len(y), bool)
    is_word[0] = has_word
    e = np.float32(rate) * (is_word.astype(np.float32) - sigmoid[_cells(dots)])
    return e, float(minus_log[_cells(np.where(is_word, dots, -dots))].sum(dtype=np.float64))


def window(inputs: Floats, outputs: Floats, x: Sequence[int], y: Sequence[int], rate: float) -> float:
    """One step of skip-gram in place, GROUP targets after the other; returns the loss.

    Args:
        inputs: (·, D), of which rows x (A of them, some perhaps twice) are the context.
        outputs: (·, D), of which rows y (each once) are the word itself, then noise.
        x: Rows.
        y: Rows.
        rate: The learning rate.

    """
    loss = 0.0
    for first in range(0, len(y), GROUP):
        group = list(y[first : first + GROUP])
        before = outputs[group]
        after = before.copy()
        e, part = _errors(inputs[list(x)], before, first == 0, rate)
        loss += part
        for a, row in enumerate(x):  # one after the other: the same row may come again
            now = inputs[row].copy()
            inputs[row] = now + e[a] @ before
            after += e[a][:, None] * now
        outputs[group] = after
    return loss


def bag(inputs: Floats, outputs: Floats, x: Sequence[int], y: Sequence[int], rate: float) -> float:
    """One step of CBOW in place: the mean of the rows x is the input, and each gets its whole gradient."""
    rows = list(x)
    h = inputs[rows].sum(axis=0) * np.float32(1 / np.float32(len(rows)))
    gradient = np.zeros_like(h)
    loss = 0.0
    for first in range(0, len(y), GROUP):
        group = list(y[first : first + GROUP])
        before = outputs[group]
        e, part = _errors(h[None], before, first == 0, rate)
        loss += part
        gradient += e[0] @ before
        outputs[group] = before + e[0][:, None] * h
    np.add.at(inputs, rows, gradient)
    return loss


def fit(
    w: Floats, v: Floats, w_squares: Floats, v_squares: Floats, weight: float, log_x: float, rate: float
) -> float:
    """One step of GloVe in place on f(X) (w · v + b_w + b_v − log X)² / 2 by AdaGrad; returns that before the step.

    Each row is a vector and, last, its bias; `…_squares` are AdaGrad's sums, above 0.
    """
    difference = w[:-1] @ v[:-1] + w[-1] + v[-1] - np.float32(log_x)
    g = np.float32(rate) * np.float32(weight) * difference
    one = np.ones(1, np.float32)  # a bias is the weight of a 1
    g_w, g_v = g * np.append(v[:-1], one), g * np.append(w[:-1], one)
    w -= g_w / np.sqrt(w_squares)
    v -= g_v / np.sqrt(v_squares)
    w_squares += g_w**2
    v_squares += g_v**2
    return float(np.float32(0.5) * np.float32(weight) * difference * difference)
