"""Skip-gram and CBOW with negative sampling (Mikolov et al. 2013): learning, told about as it goes.

Lives here: the settings handed over, the loop, the result. Not here: the mathematics (cpp/word2vec.cpp, or
word2vec_twin.py where the extension is absent).
"""

import os
import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule import native
from chainrule.embeddings import word2vec_twin
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ChainruleError, ChainruleWarning, InputError, UsageError
from chainrule.progress import Progress, silent

Matrix = NDArray[np.float32]
STRETCH: Final = 0.2
"""Seconds learnt between two looks at the keyboard."""
ROWS: Final = 1 << 10
"""Words whose vectors are put together at a time."""
LAST_RATE: Final = 1e-4
"""The part of the learning rate that is left at the end."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a method has learnt."""

    matrix: Matrix  # (V, D)  a word's vector; with character n-grams the mean of its own and theirs
    buckets: Matrix | None  # (B, D)  the vectors of character n-grams
    metrics: dict[str, Any]


class Learner(Protocol):
    """What learns, compiled or not."""

    @property
    def simd(self) -> str:
        """The vector instructions in use."""
        ...

    def run(self, seconds: float) -> bool:
        """Learn for so long; whether there is more."""
        ...

    def learnt(self) -> tuple[int, int, float, float]:
        """Words learnt, of how many, the loss since the last time, the rate now."""
        ...

    def input(self) -> Matrix:
        """The vectors, (V + B, D)."""
        ...

    def forget_output(self) -> None:
        """Learning is over: the output vectors are not needed."""
        ...


def train(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    *,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Trained:
    """Learn vectors of the chosen words.

    Args:
        counted: The text as numbers.
        chosen: The words that get a vector.
        config: `method` is skipgram or cbow.
        threads: All processors where None; with one thread the same seed gives the same vectors, bit by bit.
        seed: Of the first vectors and of all draws.
        progress: Told the words learnt, of how many.

    Raises:
        InputError: There is no word to learn.
        ChainruleError: The vectors have grown without bound.

    """
    if not chosen.words:
        raise InputError("no word of the text is frequent enough for a vector; lower min_count or give more text")
    threads = _threads(threads)
    begins, rows = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
    if config.has_subwords:
        progress("cutting words into character n-grams", 0, None)
        begins, rows = Subwords(config.shortest, config.longest, config.buckets).table(chosen.words)
    learner = _learner(counted, chosen, config, threads, seed, begins, rows)
    metrics: dict[str, Any] = {"simd": learner.simd, "threads": threads} | _run(learner, config.epochs, progress)
    learner.forget_output()
    made = learner.input()
    matrix = _put_together(made, len(chosen.words), begins, rows)
    del begins, rows
    buckets = np.array(made[len(chosen.words) :]) if config.has_subwords else None
    if not np.isfinite(metrics["loss"]) or not all(map(_is_finite, (matrix, buckets))):
        raise ChainruleError(f"the vectors grew without bound; lower vectors.learning_rate ({config.rate:g})")
    return Trained(matrix, buckets, metrics)


def settings(config: VectorConfig, threads: int, seed: int) -> dict[str, Any]:
    """What a learner is told."""
    return {
        "method": config.method,
        "dimensions": config.dimensions,
        "window": config.window,
        "negative": config.negative,
        "epochs": config.epochs,
        "rate": config.rate,
        "last_rate": config.rate * LAST_RATE,
        "sample": config.sample,
        "power": config.power,
        "threads": threads,
        "seed": seed,
        "simd": config.simd,
    }


def _threads(wanted: int | None) -> int:
    if wanted is not None and wanted < 1:
        raise UsageError(f"threads is {wanted}; choose 1 or more")
    if not native.load():
        return 1
    return wanted or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _learner(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    threads: int,
    seed: int,
    begins: NDArray[np.uint64],
    rows: NDArray[np.uint32],
) -> Learner:
    core: Any = native.load()
    if not core:
        _warn_of_slowness()
    buckets = config.buckets if config.has_subwords else 0
    told = settings(config, threads, seed)
    make = core.Word2vec if core else word2vec_twin.Word2vec
    made: Learner = make(
        told, str(counted.file), counted.numbers, chosen.number_of, chosen.counts, begins, rows, buckets
    )
    return made


@cache
def _warn_of_slowness() -> None:
    """Say once that there is a faster way."""
    text = (
        f"word vectors are learnt in Python, hundreds of times as slowly; for the fast way: {native.HOW_TO_BUILD}"
    )
    warnings.warn(text, ChainruleWarning, stacklevel=4)


def _run(learner: Learner, epochs: int, progress: Progress) -> dict[str, Any]:
    """Learn to the end; the loss is the mean over the last epoch."""
    began, before, is_more = time.perf_counter(), 0, True
    total_loss, weight = 0.0, 0
    while is_more:
        is_more = learner.run(STRETCH)
        words, of, loss, _ = learner.learnt()
        seconds = time.perf_counter() - began
        progress(f"learning, loss {loss:.2f}, {words / seconds:,.0f} words/s", words, of)
        if loss:
            is_last = words > of * (epochs - 1) // epochs
            total_loss, weight = (total_loss, weight) if is_last else (0.0, 0)
            total_loss, weight = total_loss + loss * (words - before), weight + words - before
        before = words
    mean = total_loss / weight if weight else 0.0
    return {"words": words, "seconds": seconds, "words_per_second": words / seconds, "loss": mean}


def _put_together(made: Matrix, words: int, begins: NDArray[np.uint64], rows: NDArray[np.uint32]) -> Matrix:
    """The vector of each word: its own, or the mean of that and of its n-grams': (V + B, D) -> (V, D)."""
    matrix = np.array(made[:words])
    if not len(begins):
        return matrix
    for first in range(0, words, ROWS):
        last = min(first + ROWS, words)
        edges = begins[first : last + 1].astype(np.int64)
        sizes = np.diff(edges)
        with_grams = np.flatnonzero(sizes)  # a sum from one such word to the next is that of its n-grams
        if len(with_grams):
            grams = made[rows[edges[0] : edges[-1]]]
            matrix[first + with_grams] += np.add.reduceat(grams, (edges[:-1] - edges[0])[with_grams], axis=0)
        matrix[first:last] /= (1 + sizes)[:, None].astype(np.float32)
    return matrix


def _is_finite(matrix: Matrix | None) -> bool:
    return matrix is None or all(
        bool(np.isfinite(matrix[first : first + ROWS]).all()) for first in range(0, len(matrix), ROWS)
    )
