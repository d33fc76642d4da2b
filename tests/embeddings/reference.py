"""NumPy reference of the compiled word-vector training, with the same random draws in the same order.

The classes have the interface of those of the extension, so that a test can put this module in its place
(`monkeypatch.setattr(system, "load_extension", lambda: reference)`). Values are float32, as in C++;
sums may be in another order.
"""

import math
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.corpus import RECORD, SENTENCE_BREAK
from chainrule.errors import ChainruleError
from chainrule.tokenizers.tokenizer import split_words

Floats = NDArray[np.float32]
GROUP: Final = 6  # targets per update
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
    """Walker's alias table: cell i keeps `keep[i]` of 2^32 for itself, the rest belongs to `other[i]`."""

    def __init__(self, weights: Sequence[float]) -> None:
        total = 0.0
        for weight in weights:  # sequential sum, with the rounding of the C++ loop
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
        """Draw one index in proportion to the weights."""
        i = random.below(len(self.keep))
        return i if random.next() < self.keep[i] else self.other[i]


END: Final = 8.0  # the tables cover −8 to 8
CELLS: Final = 1024


@cache
def _tables() -> tuple[Floats, Floats]:
    """σ and −log σ at the centre of each cell."""
    x = ((np.arange(CELLS) + 0.5) * 2 / CELLS - 1) * END
    return (1 / (1 + np.exp(-x))).astype(np.float32), np.log1p(np.exp(-x)).astype(np.float32)


def _cells(x: Floats) -> NDArray[np.int64]:
    bounded = np.where(x > -END, np.minimum(x, np.float32(END)), np.float32(-END)).astype(np.float32)
    scaled = (bounded + np.float32(END)) * np.float32(CELLS / (2 * END))
    return np.minimum(scaled.astype(np.int64), CELLS - 1)


def _errors(x: Floats, y: Floats, has_word: bool, rate: float) -> tuple[Floats, float]:
    """Update factors and the loss: (A, D), (M, D) -> (A, M).

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
        for a, row in enumerate(x):  # sequentially: a row may occur twice
            now = inputs[row].copy()
            inputs[row] = now + e[a] @ before
            after += e[a][:, None] * now
        outputs[group] = after
    return loss


def bag(inputs: Floats, outputs: Floats, x: Sequence[int], y: Sequence[int], rate: float) -> float:
    """One step of CBOW in place: the mean of the rows x is the input, and each row gets the full gradient."""
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
    one = np.ones(1, np.float32)  # a bias is the weight of a constant 1
    g_w, g_v = g * np.append(v[:-1], one), g * np.append(w[:-1], one)
    w -= g_w / np.sqrt(w_squares)
    v -= g_v / np.sqrt(v_squares)
    w_squares += g_w**2
    v_squares += g_v**2
    return float(np.float32(0.5) * np.float32(weight) * difference * difference)


class WordCounter:
    """Word counter of cpp/vectors/corpus.cpp; text may be split between any two bytes."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)
        self.words = self.numbers = 0
        self._numbers: dict[str, int] = {}
        self._counts = array("Q")
        self._rest = b""  # incomplete word at the end of the last piece
        self._is_within = False  # inside a sentence that has words
        self._write(array("i"), "wb")

    def feed(self, text: bytes) -> None:
        """Count all complete words of the next piece of text."""
        end = 1 + max(map(text.rfind, (b" ", b"\t", b"\n")))
        if not end:
            self._rest += text
            return
        complete, self._rest = self._rest + text[:end], text[end:]
        *lines, last = complete.decode("utf-8").split("\n")
        numbers = array("i")
        for line in lines:
            self._count(line, numbers)
            self._end_sentence(numbers)
        self._count(last, numbers)
        self._write(numbers)

    def finish(self) -> None:
        """Count the last word."""
        numbers = array("i")
        self._count(self._rest.decode("utf-8"), numbers)
        self._end_sentence(numbers)
        self._rest = b""
        self._write(numbers)

    def counts(self) -> NDArray[np.uint64]:
        """Return the count of each word number."""
        return np.array(self._counts, np.uint64)

    def words_of(self, numbers: NDArray[np.int64], /) -> list[str]:
        """Return the words with these numbers."""
        words = list(self._numbers)
        return [words[number] for number in numbers.tolist()]

    def _count(self, line: str, numbers: "array[int]") -> None:
        words = split_words(line)
        for word in words:
            number = self._numbers.setdefault(word, len(self._numbers))
            if number == len(self._counts):
                self._counts.append(0)
            self._counts[number] += 1
            numbers.append(number)
        self._is_within = self._is_within or bool(words)
        self.words += len(words)

    def _end_sentence(self, numbers: "array[int]") -> None:
        if self._is_within:
            numbers.append(SENTENCE_BREAK)
        self._is_within = False

    def _write(self, numbers: "array[int]", mode: str = "ab") -> None:
        self.numbers += len(numbers)
        try:
            with self.file.open(mode) as out:
                out.write(numbers.tobytes())
        except OSError as error:
            raise ChainruleError(f"{self.file} cannot be written: {error.strerror}") from error


BLOCK: Final = 1 << 15  # numbers read at a time
LONGEST: Final = 1000  # words of a sentence; a longer one is split
RATE_EVERY: Final = 10_000  # words between updates of the learning rate
LOSS_EVERY: Final = 16  # windows


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
    """Trainer on one thread."""

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
        self._epoch_loss, self._epoch_pairs = 0.0, 0  # since the epoch began
        self._sentences = self._read()

    def run(self, seconds: float) -> bool:
        """Train for this many seconds, at least one sentence; return whether work remains."""
        end = time.monotonic() + seconds
        for sentence in self._sentences:
            self._learn(sentence)
            if time.monotonic() >= end:
                return True
        return False

    def learnt(self) -> tuple[int, int, float, float]:
        """Words processed, words in total, loss per pair since the last call, learning rate."""
        loss = self._loss / self._pairs if self._pairs else 0.0
        self._loss, self._pairs = 0.0, 0
        return self._seen, self._total, loss, float(self._rate)

    def last_loss(self) -> float:
        """Loss per pair of the last or current epoch."""
        return self._epoch_loss / self._epoch_pairs if self._epoch_pairs else 0.0

    def input(self) -> Floats:
        """The vectors, (V + B, D)."""
        return self._input

    def output(self) -> Floats:
        """The output vectors, (V, D)."""
        return self._output

    def finish(self) -> None:
        """Replace each word by the mean of its own row and those of its n-grams."""
        self._output = np.zeros((0, self._output.shape[1]), np.float32)
        for word in range(len(self._begins) - 1):
            self._input[word] = self._input[self._parts(word)].sum(axis=0) / np.float32(len(self._parts(word)))
        self._begins = []

    def _read(self) -> Iterator[list[int]]:
        """Sentences of all epochs, with frequent words subsampled."""
        for _ in range(self._settings["epochs"]):
            self._windows = 0
            sentence: list[int] = []
            for number in self._read_numbers():
                if number >= len(self._number_of) or number < SENTENCE_BREAK:
                    raise ChainruleError(f"{self._file} contains a word id that is out of range")
                word = -1 if number == SENTENCE_BREAK else self._number_of[number]
                if word >= 0:
                    self._seen += 1
                    keep = self._keep[word]
                    if keep == ALL or self._random.next() <= keep:
                        sentence.append(word)
                if sentence and (number == SENTENCE_BREAK or len(sentence) == LONGEST):
                    yield sentence
                    sentence = []
            if sentence:
                yield sentence

    def _read_numbers(self) -> Iterator[int]:
        for first in range(0, self._numbers, BLOCK):
            size = min(BLOCK, self._numbers - first)
            block = np.fromfile(self._file, np.int32, size, offset=4 * first)
            if len(block) < size:
                raise ChainruleError(f"{self._file} was truncated while it was being read; run the command again")
            yield from block.tolist()

    def _learn(self, sentence: list[int]) -> None:
        if self._seen - self._told >= RATE_EVERY:
            self._told = self._seen
            remaining = np.float32(1) - np.float32(self._seen / (self._total + 1))
            first, last = np.float32(self._settings["rate"]), np.float32(self._settings["last_rate"])
            self._rate = max(last, first * remaining)
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
        if not self._windows:
            self._epoch_loss, self._epoch_pairs = 0.0, 0
        if self._windows % LOSS_EVERY == 0:
            self._loss, self._pairs = self._loss + loss, self._pairs + pairs
            self._epoch_loss, self._epoch_pairs = self._epoch_loss + loss, self._epoch_pairs + pairs
        self._windows += 1

    def _step_in_parts(self, context: list[int], targets: list[int], rate: float) -> float:
        """Step with character n-grams: the mean of a word's rows is its vector; each row gets the whole update."""
        parts = [self._parts(word) for word in context]
        before = np.stack([self._input[rows].sum(axis=0) / np.float32(len(rows)) for rows in parts])
        after = before.copy()
        loss = window(after, self._output, range(len(context)), targets, rate)
        for rows, moved in zip(parts, after - before, strict=True):
            np.add.at(self._input, rows, moved)
        return loss

    def _parts(self, word: int) -> list[int]:
        """Rows of a word: its own and those of its n-grams."""
        grams = self._rows[self._begins[word] : self._begins[word + 1]].tolist() if self._begins else []
        return [word, *grams]


def _first_vectors(seed: int, rows: int, dimensions: int) -> Floats:
    """Uniform in (−0.5, 0.5) / D."""
    random = Random(seed)
    size = rows * dimensions
    draws = np.fromiter((random.next() >> 8 for _ in range(size)), np.float32, size)
    scale = np.float32(1) / np.float32(dimensions)
    return ((draws / np.float32(1 << 24) - np.float32(0.5)) * scale).reshape(rows, dimensions)


EXACT: Final = 22
"""The widest window whose distances all divide a number below 2^32."""

Whole = NDArray[np.uint64]


def unit_of(window: int) -> int:
    """Denominator of the counts: a multiple of all distances, so that sums are exact up to a window of 22 words.

    >>> unit_of(5), unit_of(23) == 2**32
    (60, True)
    """
    return math.lcm(*range(1, window + 1)) if window <= EXACT else 1 << 32


def mixed(pairs: Whole, seed: int) -> Whole:
    """splitmix64's finalizer (Steele et al. 2014), a bijection that shuffles the pairs."""
    z = pairs + np.uint64((seed * 0x9E3779B97F4A7C15) & MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def count_pairs(numbers: NDArray[np.int32], number_of: NDArray[np.int32], window: int) -> tuple[Whole, Whole]:
    """Each pair i ≤ j as i·2^32 + j, in order, and its Σ 1/distance in units of `unit_of(window)`."""
    is_break = numbers == SENTENCE_BREAK
    words = np.where(is_break, -1, number_of[np.where(is_break, 0, numbers)]) if len(number_of) else numbers[:0]
    has_vector = words >= 0
    sentence = np.cumsum(is_break)[: len(words)][has_vector]
    word = words[has_vector].astype(np.uint64)
    unit = unit_of(window)
    pairs, amounts = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for d in range(1, min(window, max(0, len(word) - 1)) + 1):
        is_near = sentence[d:] == sentence[:-d]
        a, b = word[:-d][is_near], word[d:][is_near]
        pairs.append(np.minimum(a, b) << np.uint64(32) | np.maximum(a, b))
        amounts.append(np.full(len(a), (unit + d // 2) // d, np.uint64))
    unique_pairs, place = np.unique(np.concatenate(pairs), return_inverse=True)
    sums = np.zeros(len(unique_pairs), np.uint64)
    np.add.at(sums, place, np.concatenate(amounts))
    return unique_pairs, sums


def make_records(pairs: Whole, sums: Whole, unit: int, seed: int) -> NDArray[np.void]:
    """Both directions of each pair, in shuffled order; a word next to itself has one with twice the count."""
    order = np.argsort(mixed(pairs, seed))
    i, j = (pairs >> np.uint64(32))[order].astype(np.int32), pairs[order].astype(np.uint32).astype(np.int32)
    is_same = i == j
    x = (np.where(is_same, sums[order] * np.uint64(2), sums[order]) / unit).astype(np.float32)
    records = np.zeros((len(pairs), 2), RECORD)
    records["x"] = x[:, None]
    records["i"], records["j"] = np.stack([i, j], axis=1), np.stack([j, i], axis=1)
    is_wanted = np.ones(records.shape, bool)
    is_wanted[is_same, 1] = False
    return np.asarray(records[is_wanted])


class Cooccurrence:
    """Counter that holds the whole text in memory."""

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
        """Count the whole text at once."""
        numbers = np.fromfile(self._file, np.int32, self._numbers)
        records = make_records(
            *count_pairs(numbers, self._number_of, self._window), unit_of(self._window), self._seed
        )
        records.tofile(self._out)
        self.records, self._done = len(records), self._numbers
        return False

    def counted(self) -> tuple[bool, int, int]:
        """Whether counts are being merged, work done, work in total."""
        return False, self._done, self._numbers


class Glove:
    """Trainer on one thread."""

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
        self._costs: list[float] = []  # of completed epochs
        self._steps = self._learn()

    def run(self, seconds: float) -> bool:
        """Train for this many seconds, at least one pair; return whether work remains."""
        end = time.monotonic() + seconds
        return any(time.monotonic() >= end for _ in self._steps)

    def learnt(self) -> tuple[int, int, float]:
        """Pairs processed, pairs in total, mean cost of the last full epoch."""
        cost = self._costs[-1] / len(self._records) if self._costs and len(self._records) else math.nan
        return self._pairs, len(self._records) * self._epochs, cost

    def result(self) -> Floats:
        """w + w̃, (V, D)."""
        return np.asarray(self._rows[:, 0, :-1] + self._rows[:, 1, :-1])

    def _learn(self) -> Iterator[None]:
        """Train on one record after the other."""
        for _ in range(self._epochs):
            cost = 0.0
            for i, j, x in self._records.tolist():
                weight = min(1.0, (x / self._x_max) ** self._alpha)  # f(X)
                w, v, G_w, G_v = self._rows[i, 0], self._rows[j, 1], self._squares[i, 0], self._squares[j, 1]
                cost += fit(w, v, G_w, G_v, weight, math.log(x), self._rate)
                self._pairs += 1
                yield
            self._costs.append(cost)
