"""GloVe (Pennington et al. 2014): count co-occurrences and fit vectors to their logarithms.

The work is done in cpp/vectors/cooccurrence.cpp and cpp/vectors/glove.cpp.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import (
    NO_PAIRS_MESSAGE,
    POLL_SECONDS,
    CountedCorpus,
    TrainedVectors,
    WordVocabulary,
)
from chainrule.errors import ChainruleError, InputError
from chainrule.progress import Progress, silent

RECORD: Final = np.dtype([("i", "<i4"), ("j", "<i4"), ("x", "<f4")])


@dataclass(frozen=True, slots=True)
class Cooccurrences:
    """File of records (i, j, X_ij), both directions of every pair, in shuffled order."""

    file: Path
    records: int

    def read(self) -> NDArray[np.void]:
        """Return all records, a structured array (records,) with the fields i, j and x."""
        return np.fromfile(self.file, RECORD, self.records)


def count_cooccurrences(
    counted: CountedCorpus,
    vocabulary: WordVocabulary,
    config: VectorConfig,
    folder: Path,
    progress: Progress = silent,
    *,
    threads: int = 1,
    seed: int = 0,
) -> Cooccurrences:
    """Count X_ij = Σ 1/distance over all occurrences of i and j within `window` words of one sentence.

    Words outside the vocabulary are removed first. The file, in `folder`, does not depend on the memory limit or
    the number of threads; `seed` determines the order of its records. Counting uses about `config.memory` bytes.
    Raise InputError if no two words of the vocabulary occur in one sentence.
    """
    file = folder / "cooccurrences"
    counter = system.load_extension().Cooccurrence(
        str(counted.file),
        counted.numbers,
        vocabulary.number_of,
        len(vocabulary.words),
        str(file),
        window=config.window,
        bytes=config.memory_bytes,
        threads=threads,
        seed=seed,
    )
    is_more = True
    while is_more:
        is_more = counter.run(POLL_SECONDS)
        is_merging, done, total = counter.counted()
        progress("merging co-occurrences" if is_merging else "counting co-occurrences", done, total)
    if not counter.records:
        raise InputError(NO_PAIRS_MESSAGE)
    return Cooccurrences(file, counter.records)


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
        counting_seconds = time.perf_counter() - began
        trainer = system.load_extension().Glove(
            str(pairs.file),
            pairs.records,
            len(vocabulary.words),
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
