"""Skip-gram and CBOW with negative sampling (Mikolov et al. 2013): learning, told about as it goes.

Lives here: the settings handed over, the loop, the result. Not here: the mathematics (cpp/vectors/word2vec.cpp, or
word2vec_twin.py where the extension is absent).
"""

import time
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule import native, processors
from chainrule.embeddings import word2vec_twin
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.method import (
    STRETCH,
    Matrix,
    Trained,
    check_pairs,
    check_words,
    warn_of_slowness,
)
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ChainruleError, UsageError
from chainrule.progress import Progress, as_progress, silent

ROWS: Final = 1 << 10
"""Vectors that are looked at at a time."""
LAST_RATE: Final = 1e-4
"""The part of the learning rate that is left at the end."""


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

    def last_loss(self) -> float:
        """The mean loss of the last epoch."""
        ...

    def input(self) -> Matrix:
        """The vectors, (V + B, D)."""
        ...

    def finish(self) -> None:
        """Learning is over: words become the mean of their own row and their n-grams', the output is freed."""
        ...


def train(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    *,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | bool = silent,
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
        InputError: There is no word to learn, or none with a neighbour.
        ChainruleError: The vectors have grown without bound.

    """
    progress = as_progress(progress)
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; choose 1 or more")
    check_words(chosen)
    check_pairs(counted, chosen)
    threads = (threads or processors.threads()) if native.load() else 1
    begins, rows = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
    if config.has_subwords:
        progress("cutting words into character n-grams", 0, None)
        begins, rows = Subwords(config.shortest, config.longest, config.buckets).table(chosen.words)
    learner = _learner(counted, chosen, config, threads, seed, begins, rows)
    del begins, rows
    about = {"simd": learner.simd, "threads": threads, "learning_rate": config.rate}
    metrics: dict[str, Any] = about | _run(learner, progress)
    learner.finish()
    made, V = learner.input(), len(chosen.words)
    # Rows are padded in the core. A copy takes the place of the output; there is none for the buckets, so that
    # words with n-grams stay where they are.
    matrix, buckets = (made[:V], made[V:]) if config.has_subwords else (np.array(made), None)
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
        warn_of_slowness()
    buckets = config.buckets if config.has_subwords else 0
    told = settings(config, threads, seed)
    make = core.Word2vec if core else word2vec_twin.Word2vec
    made: Learner = make(
        told, str(counted.file), counted.numbers, chosen.number_of, chosen.counts, begins, rows, buckets
    )
    return made


def _run(learner: Learner, progress: Progress) -> dict[str, Any]:
    """Learn to the end; the loss is the mean over the last epoch."""
    began, is_more = time.perf_counter(), True
    while is_more:
        is_more = learner.run(STRETCH)
        words, of, loss, _ = learner.learnt()
        seconds = time.perf_counter() - began
        progress(f"learning, loss {loss:.2f}, {words / seconds:,.0f} words/s", words, of)
    speed = words / seconds
    return {"words": words, "seconds": seconds, "words_per_second": speed, "loss": learner.last_loss()}


def _is_finite(matrix: Matrix | None) -> bool:
    return matrix is None or all(
        bool(np.isfinite(matrix[first : first + ROWS]).all()) for first in range(0, len(matrix), ROWS)
    )
