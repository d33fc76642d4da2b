"""GloVe (Pennington et al. 2014): fit vectors to the logarithms of co-occurrence counts (cpp/vectors/glove.cpp)."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import system
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import (
    POLL_SECONDS,
    Cooccurrences,
    CountedCorpus,
    TrainedVectors,
    WordVocabulary,
    count_cooccurrences,
)
from chainrule.errors import ChainruleError
from chainrule.progress import Progress, silent


def train(
    counted: CountedCorpus,
    vocabulary: WordVocabulary,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedVectors:
    """Fit w_i · w̃_j + b_i + b̃_j ≈ log X_ij by weighted least squares; the vectors are w + w̃.

    Raise ChainruleError if training diverges.
    """
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="chainrule-", dir=counted.file.parent) as scratch:
        pairs = count_cooccurrences(
            counted, vocabulary, config, Path(scratch), progress, threads=threads, seed=seed
        )
        seconds = time.perf_counter() - began
        return fit(pairs, len(vocabulary), config, seconds, threads=threads, seed=seed, progress=progress)


def fit(
    pairs: Cooccurrences,
    words: int,
    config: VectorConfig,
    counting_seconds: float,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedVectors:
    """Fit vectors to co-occurrences that were counted in `counting_seconds`."""
    trainer = system.load_extension().Glove(
        str(pairs.file),
        pairs.records,
        words,
        dimensions=config.dimensions,
        epochs=config.epochs,
        rate=config.rate,
        x_max=config.x_max,
        alpha=config.alpha,
        threads=threads,
        seed=seed,
        simd=config.simd,
    )
    metrics = _run(trainer, progress)
    matrix = trainer.result()
    metrics |= {"simd": trainer.simd, "threads": threads, "learning_rate": config.rate}
    del trainer  # closes the file
    if not np.isfinite(metrics["cost"]) or not np.isfinite(matrix).all():
        raise ChainruleError(f"the vectors grew without bound; lower vectors.learning_rate ({config.rate:g})")
    return TrainedVectors(matrix, None, metrics | {"records": pairs.records, "counting_seconds": counting_seconds})


def _run(trainer: Any, progress: Progress) -> dict[str, Any]:
    """Train to the end and return the metrics; the cost is the mean over the last epoch."""
    began, is_more = time.perf_counter(), True
    while is_more:
        is_more = trainer.run(POLL_SECONDS)
        pairs, total, cost = trainer.learnt()
        seconds = time.perf_counter() - began
        cost_text = f"cost {cost:.4f}, " if np.isfinite(cost) else ""
        progress(f"learning, {cost_text}{pairs / seconds:,.0f} pairs/s", pairs, total)
    return {"pairs": pairs, "seconds": seconds, "pairs_per_second": pairs / seconds, "cost": cost}
