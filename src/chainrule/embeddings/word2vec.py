"""Skip-gram and CBOW with negative sampling (Mikolov et al. 2013), computed in cpp/vectors/word2vec.cpp."""

import time
from typing import Any, Final

import numpy as np

from chainrule import system
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import (
    POLL_SECONDS,
    CountedCorpus,
    Matrix,
    TrainedVectors,
    WordVocabulary,
    check_pairs,
)
from chainrule.embeddings.subwords import Subwords
from chainrule.errors import ChainruleError
from chainrule.progress import Progress, silent

ROWS_PER_CHECK: Final = 1 << 10
"""Rows checked at a time for non-finite values."""
FINAL_RATE_FRACTION: Final = 1e-4
"""Final learning rate as a fraction of the initial one."""


def train(
    counted: CountedCorpus,
    vocabulary: WordVocabulary,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedVectors:
    """Train skip-gram or CBOW vectors; raise ChainruleError if training diverges."""
    check_pairs(counted, vocabulary)
    begins, rows = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
    if config.has_subwords:
        progress("cutting words into character n-grams", 0, None)
        begins, rows = Subwords(config.shortest, config.longest, config.buckets).table(vocabulary.words)
    trainer = system.load_extension().Word2vec(
        core_settings(config, threads, seed),
        str(counted.file),
        counted.numbers,
        vocabulary.number_of,
        vocabulary.counts,
        begins,
        rows,
        config.buckets if config.has_subwords else 0,
    )
    del begins, rows
    about = {"simd": trainer.simd, "threads": threads, "learning_rate": config.rate}
    metrics: dict[str, Any] = about | _run(trainer, progress)
    trainer.finish()
    vectors, V = trainer.input(), len(vocabulary.words)
    # The core pads its rows. Without n-grams a compact copy fits in the memory of the freed output vectors; with
    # n-grams, views avoid copying the buckets.
    matrix, buckets = (vectors[:V], vectors[V:]) if config.has_subwords else (np.array(vectors), None)
    if not np.isfinite(metrics["loss"]) or not all(map(_is_finite, (matrix, buckets))):
        raise ChainruleError(f"the vectors grew without bound; lower vectors.learning_rate ({config.rate:g})")
    return TrainedVectors(matrix, buckets, metrics)


def core_settings(config: VectorConfig, threads: int, seed: int) -> dict[str, Any]:
    """Return the settings dictionary of the compiled trainer."""
    return {
        "method": config.method,
        "dimensions": config.dimensions,
        "window": config.window,
        "negative": config.negative,
        "epochs": config.epochs,
        "rate": config.rate,
        "last_rate": config.rate * FINAL_RATE_FRACTION,
        "sample": config.sample,
        "power": config.power,
        "threads": threads,
        "seed": seed,
        "simd": config.simd,
    }


def _run(trainer: Any, progress: Progress) -> dict[str, Any]:
    """Train to the end and return the metrics; the loss is the mean over the last epoch."""
    began, is_more = time.perf_counter(), True
    while is_more:
        is_more = trainer.run(POLL_SECONDS)
        words, total, loss, _ = trainer.learnt()
        seconds = time.perf_counter() - began
        progress(f"learning, loss {loss:.2f}, {words / seconds:,.0f} words/s", words, total)
    speed = words / seconds
    return {"words": words, "seconds": seconds, "words_per_second": speed, "loss": trainer.last_loss()}


def _is_finite(matrix: Matrix | None) -> bool:
    return matrix is None or all(
        bool(np.isfinite(matrix[first : first + ROWS_PER_CHECK]).all())
        for first in range(0, len(matrix), ROWS_PER_CHECK)
    )
