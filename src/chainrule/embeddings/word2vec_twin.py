"""The readable twin of cpp/vectors/word2vec.cpp: a whole training on one thread with the same draws in order.

Lives here: reading, sub-sampling, windows, the falling rate. Not here: the steps themselves (twin.py).
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.corpus import SENTENCE_BREAK
from chainrule.embeddings.twin import ALL, Floats, Noise, Random, bag, window
from chainrule.errors import ChainruleError

BLOCK: Final = 1 << 15  # numbers read at a time
LONGEST: Final = 1000  # words of a sentence; a longer one is cut
RATE_EVERY: Final = 10_000  # words after which the rate is set anew
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
        self._epoch_loss, self._epoch_pairs = 0.0, 0  # since the epoch began
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

    def last_loss(self) -> float:
        """Nats a pair over the last epoch, or the one under way."""
        return self._epoch_loss / self._epoch_pairs if self._epoch_pairs else 0.0

    def input(self) -> Floats:
        """The vectors, (V + B, D)."""
        return self._input

    def output(self) -> Floats:
        """The output vectors, (V, D)."""
        return self._output

    def finish(self) -> None:
        """Learning is over: each word becomes the mean of its own row and those of its n-grams."""
        self._output = np.zeros((0, self._output.shape[1]), np.float32)
        for word in range(len(self._begins) - 1):
            self._input[word] = self._input[self._parts(word)].sum(axis=0) / np.float32(len(self._parts(word)))
        self._begins = []

    def _read(self) -> Iterator[list[int]]:
        """The sentences of all epochs, frequent words thinned out."""
        for _ in range(self._settings["epochs"]):
            self._windows = 0
            sentence: list[int] = []
            for there in self._read_numbers():
                if there >= len(self._number_of) or there < SENTENCE_BREAK:
                    raise ChainruleError(f"{self._file} holds a number of no word")
                word = -1 if there == SENTENCE_BREAK else self._number_of[there]
                if word >= 0:
                    self._seen += 1
                    keep = self._keep[word]
                    if keep == ALL or self._random.next() <= keep:
                        sentence.append(word)
                if sentence and (there == SENTENCE_BREAK or len(sentence) == LONGEST):
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
        if not self._windows:
            self._epoch_loss, self._epoch_pairs = 0.0, 0
        if self._windows % LOSS_EVERY == 0:
            self._loss, self._pairs = self._loss + loss, self._pairs + pairs
            self._epoch_loss, self._epoch_pairs = self._epoch_loss + loss, self._epoch_pairs + pairs
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
