"""Positive pointwise mutual information with a truncated SVD (Levy et al. 2015).

PPMI_ij = max(0, log (X_ij · Σ_k X_k^power / (X_i · X_j^power))), where X_i is the sum of row i of the co-occurrence
counts, the same as for GloVe; a power below 1 lowers the PPMI of rare contexts. Word vectors are the rows of U·√S.
"""

import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import (
    Cooccurrences,
    CountedCorpus,
    TrainedVectors,
    WordVocabulary,
    count_cooccurrences,
)
from chainrule.errors import MissingExtra
from chainrule.progress import Progress, silent

FULL_SVD_RATIO: Final = 4
"""A full SVD is used for up to this many words per dimension, where it is as fast as a truncated one."""
SVD_TOLERANCE: Final = 1e-4
"""Relative tolerance of the singular values, about float32 accuracy."""

Matrix = NDArray[np.float32]


def train(
    counted: CountedCorpus,
    vocabulary: WordVocabulary,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedVectors:
    """Compute word vectors from co-occurrence counts, using `window`, `memory`, `dimensions` and `power`."""
    require_scipy()
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
    """Compute word vectors from co-occurrences that were counted in `counting_seconds`."""
    sparse = require_scipy()
    began = time.perf_counter()
    progress("weighing co-occurrences", 0, None)
    i, j, weights = compute_ppmi(pairs, words, config.power)
    weighed = time.perf_counter()
    counting_seconds += weighed - began
    progress("decomposing", 0, None)
    table = sparse.csr_array((weights, (i, j)), shape=(words, words))
    matrix = decompose(table, config.dimensions, seed)
    metrics = {
        "records": pairs.records,
        "positive": int(table.nnz),
        "counting_seconds": counting_seconds,
        "seconds": counting_seconds + time.perf_counter() - weighed,
        "threads": threads,
    }
    return TrainedVectors(matrix, None, metrics)


def compute_ppmi(
    pairs: Cooccurrences, words: int, power: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Return the row, column and value of each positive PPMI cell."""
    records = pairs.read()
    i, j, x = records["i"], records["j"], records["x"].astype(np.float64)
    totals = np.bincount(i, x, minlength=words)  # X_i; the table is symmetric
    smoothed = np.where(totals > 0, totals, 1.0) ** power * (totals > 0)  # X_j^power
    pmi = np.log(x) + np.log(smoothed.sum()) - np.log(totals[i]) - np.log(smoothed[j])
    is_above = pmi > 0
    return i[is_above], j[is_above], pmi[is_above]


def decompose(table: Any, dimensions: int, seed: int) -> Matrix:
    """Return U·√S of the largest singular values, (V, V) -> (V, D), largest first.

    The sign of each column makes its entry of largest magnitude positive. Columns beyond the rank are 0.
    """
    words = table.shape[0]
    if words <= FULL_SVD_RATIO * dimensions or not table.nnz:
        U, S, _ = np.linalg.svd(table.toarray())
        U, S = U[:, :dimensions], S[:dimensions]
    else:
        start = np.random.default_rng(seed).standard_normal(words, np.float32)
        U, S, _ = require_scipy().linalg.svds(
            table.astype(np.float32), k=dimensions, v0=start, tol=SVD_TOLERANCE, return_singular_vectors="u"
        )
        U, S = U[:, ::-1], S[::-1]
    columns = np.arange(U.shape[1])
    signs = np.where(U[np.abs(U).argmax(axis=0), columns] < 0, -1.0, 1.0)
    matrix = np.zeros((words, dimensions), np.float32)
    matrix[:, : U.shape[1]] = U * signs * np.sqrt(np.maximum(S, 0))
    return matrix


def require_scipy() -> ModuleType:
    """Import scipy.sparse and scipy.sparse.linalg; raise MissingExtra if scipy is not installed."""
    try:
        import scipy.sparse
        import scipy.sparse.linalg
    except ImportError as error:
        raise MissingExtra("PPMI vectors need scipy: pip install 'chainrule[vectors]'") from error
    module: ModuleType = scipy.sparse
    return module
