"""The readable twin of the compiled learning of word vectors: the same draws, the same steps, the same order.

Lives here: the generator (cpp/random.hpp), the noise (cpp/noise.cpp), the three kernels (cpp/kernels_impl.hpp), a
whole learning on one thread (cpp/word2vec.cpp). Numbers are float32 as there; sums may be taken in another order.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.counting import BREAK
from chainrule.errors import ChainruleError

Floats = NDArray[np.float32]
GROUP: Final = 6  # targets learnt at once
BLOCK: Final = 1 << 15  # numbers read at a time
LONGEST: Final = 1000  # words of a sentence; a longer one is cut
RATE_EVERY: Final = 10_000  # words after which the rate is set anew
LOSS_EVERY: Final = 16  # windows
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


def keep_shares(counts: Sequence[int], sample: float) -> list[int]:
    """How many of 2^32 occurrences of each word are kept: (√f + 1) / f with f = n / (sample · Σ n).

    >>> [round(share / 2**32, 4) for share in keep_shares([1, 399], 0.01)]  # f is 0.25 and 99.75
    [1.0, 0.1102]
    """
    words = float(sum(counts))
    shares = []
    for n in counts:
        f = n / (sample * words) if sample > 0 else 0.0
        keep = (math.sqrt(f) + 1) / f if f > 0 else 1.0
        shares.append(ALL if keep >= 1 else int(keep * ALL))
    return shares


class Word2vec:
    """The surface of the compiled class, on one thread."""

    simd = "python"

    def __init__(
        self,
        settings: Mapping[str, Any],
        file: str,
        numbers: int,
        number_of: NDArray[np.int32],
        counts: NDArray[np.uint64],
        begins: NDArray[np.uint64],
        rows: NDArray[np.uint32],
        buckets: int,
    ) -> None:
        self._settings, self._begins, self._rows = settings, begins.tolist(), rows
        self._file, self._numbers = file, numbers
        self._number_of = number_of.tolist()
        amounts = [int(n) for n in counts]
        self._noise = Noise([math.pow(n, settings["power"]) for n in amounts])
        self._keep = keep_shares(amounts, settings["sample"])
        self._total = sum(amounts) * settings["epochs"]
        D = settings["dimensions"]
        self._input = _first_vectors(settings["seed"], len(amounts) + buckets, D)
        self._output = np.zeros((len(amounts), D), np.float32)
        self._random = Random(settings["seed"] + (1 << 32))
        self._seen = self._told = self._windows = self._pairs = 0
        self._loss, self._rate = 0.0, np.float32(settings["rate"])
        self._sentences = self._read()

    def run(self, seconds: float) -> bool:
        """Learn for so long, a sentence at least; whether there is more to learn."""
        end = time.monotonic() + seconds
        for sentence in self._sentences:
            self._learn(sentence)
            if time.monotonic() >= end:
                return True
        return False

    def learnt(self) -> tuple[int, int, float, float]:
        """Words learnt, of how many, nats a pair since the last time, the rate now."""
        loss = self._loss / self._pairs if self._pairs else 0.0
        self._loss, self._pairs = 0.0, 0
        return self._seen, self._total, loss, float(self._rate)

    def input(self) -> Floats:
        """The vectors, (V + B, D)."""
        return self._input

    def output(self) -> Floats:
        """The output vectors, (V, D)."""
        return self._output

    def forget_output(self) -> None:
        """Learning is over."""
        self._output = np.zeros((0, self._output.shape[1]), np.float32)

    def _read(self) -> Iterator[list[int]]:
        """The sentences of all epochs, frequent words thinned out."""
        for _ in range(self._settings["epochs"]):
            sentence: list[int] = []
            for there in self._read_numbers():
                if there >= len(self._number_of) or there < BREAK:
                    raise ChainruleError(f"{self._file} holds a number of no word")
                word = -1 if there == BREAK else self._number_of[there]
                if word >= 0:
                    self._seen += 1
                    keep = self._keep[word]
                    if keep == ALL or self._random.next() <= keep:
                        sentence.append(word)
                if sentence and (there == BREAK or len(sentence) == LONGEST):
                    yield sentence
                    sentence = []
            if sentence:
                yield sentence

    def _read_numbers(self) -> Iterator[int]:
        for first in range(0, self._numbers, BLOCK):
            size = min(BLOCK, self._numbers - first)
            block = np.fromfile(self._file, np.int32, size, offset=4 * first)
            if len(block) < size:
                raise ChainruleError(f"{self._file} is shorter than it was")
            yield from block.tolist()

    def _learn(self, sentence: list[int]) -> None:
        if self._seen - self._told >= RATE_EVERY:
            self._told = self._seen
            left = np.float32(1) - np.float32(self._seen / (self._total + 1))
            first, last = np.float32(self._settings["rate"]), np.float32(self._settings["last_rate"])
            self._rate = max(last, first * left)
        for i, word in enumerate(sentence):
            reach = self._settings["window"] - self._random.below(self._settings["window"])
            targets = [word]
            for _ in range(self._settings["negative"]):
                other = self._noise.draw(self._random)
                if other not in targets:
                    targets.append(other)
            context = sentence[max(0, i - reach) : i] + sentence[i + 1 : i + reach + 1]
            if context:
                self._step(context, targets)

    def _step(self, context: list[int], targets: list[int]) -> None:
        rate = float(self._rate)
        if self._settings["method"] == "cbow":
            rows = [row for word in context for row in self._parts(word)]
            loss, pairs = bag(self._input, self._output, rows, targets, rate), 1
        elif self._begins:
            loss, pairs = self._step_in_parts(context, targets, rate), len(context)
        else:
            loss, pairs = window(self._input, self._output, context, targets, rate), len(context)
        if self._windows % LOSS_EVERY == 0:
            self._loss += loss
            self._pairs += pairs
        self._windows += 1

    def _step_in_parts(self, context: list[int], targets: list[int], rate: float) -> float:
        """Words read by their parts: the mean of the rows stands in for the word, each row gets its whole step."""
        parts = [self._parts(word) for word in context]
        before = np.stack([self._input[rows].sum(axis=0) / np.float32(len(rows)) for rows in parts])
        after = before.copy()
        loss = window(after, self._output, range(len(context)), targets, rate)
        for rows, moved in zip(parts, after - before, strict=True):
            np.add.at(self._input, rows, moved)
        return loss

    def _parts(self, word: int) -> list[int]:
        """The rows a word is read by: its own and those of its n-grams."""
        grams = self._rows[self._begins[word] : self._begins[word + 1]].tolist() if self._begins else []
        return [word, *grams]


def _first_vectors(seed: int, rows: int, dimensions: int) -> Floats:
    """Uniform in (−0.5, 0.5) / D."""
    random = Random(seed)
    size = rows * dimensions
    draws = np.fromiter((random.next() >> 8 for _ in range(size)), np.float32, size)
    scale = np.float32(1) / np.float32(dimensions)
    return ((draws / np.float32(1 << 24) - np.float32(0.5)) * scale).reshape(rows, dimensions)
