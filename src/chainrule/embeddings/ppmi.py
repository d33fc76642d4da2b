"""The count-based baseline: positive pointwise mutual information, cut down by a truncated SVD (Levy et al. 2015).

PPMI_ij = max(0, log (X_ij · Σ_k X_k^power / (X_i · X_j^power))), X_i being the sum of row i of the co-occurrence
counts that GloVe learns from; a power below 1 lowers the figures of rare contexts. A word's vector is its row
of U·√S.
"""

import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.glove import Cooccurrences, cooccurrences
from chainrule.embeddings.method import Trained
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import MissingExtra
from chainrule.progress import Progress, as_progress, silent

SMALL: Final = 4
"""Up to this many times as many words as dimensions the whole decomposition is as cheap as a truncated one."""
TOLERANCE: Final = 1e-4
"""Of the singular values, relatively: as good as float32 in far less time."""

Matrix = NDArray[np.float32]


def train(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | bool = silent,
) -> Trained:
    """Vectors of the chosen words from their co-occurrence counts.

    Args:
        counted: The text as numbers.
        chosen: The words that get a vector.
        config: Its `window`, `memory`, `dimensions` and `power` are used.
        threads: For counting.
        seed: Of the vector that the search for singular vectors starts from.
        progress: Told what has been counted, then what is being done.

    Raises:
        InputError: There is no pair of words to count.
        MissingExtra: scipy is not installed.

    """
    progress = as_progress(progress)
    sparse = need_scipy()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="chainrule-", dir=counted.file.parent) as scratch:
        found = cooccurrences(counted, chosen, config, Path(scratch), progress, threads=threads, seed=seed)
        progress("weighing co-occurrences", 0, None)
        i, j, weights = ppmi(found, len(chosen.words), config.power)
    counting_seconds = time.perf_counter() - began
    progress("decomposing", 0, None)
    table = sparse.csr_array((weights, (i, j)), shape=(len(chosen.words),) * 2)
    matrix = decompose(table, config.dimensions, seed)
    metrics = {
        "records": found.records,
        "positive": int(table.nnz),
        "counting_seconds": counting_seconds,
        "seconds": time.perf_counter() - began,
        "threads": threads,
    }
    return Trained(matrix, None, metrics)


def ppmi(
    found: Cooccurrences, words: int, power: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """The cells above 0: row, column and PPMI of each."""
    records = found.read()
    i, j, x = records["i"], records["j"], records["x"].astype(np.float64)
    totals = np.bincount(i, x, minlength=words)  # X_i; the table is symmetric
    smoothed = np.where(totals > 0, totals, 1.0) ** power * (totals > 0)  # X_j^power
    pmi = np.log(x) + np.log(smoothed.sum()) - np.log(totals[i]) - np.log(smoothed[j])
    is_above = pmi > 0
    return i[is_above], j[is_above], pmi[is_above]


def decompose(table: Any, dimensions: int, seed: int) -> Matrix:
    """(V, V) to (V, D): U·√S of the largest singular values, largest first.

    The largest number of each column is above 0. Where there are fewer words than dimensions, or a lower rank, the
    columns left are 0.
    """
    words = table.shape[0]
    if words <= SMALL * dimensions or not table.nnz:
        U, S, _ = np.linalg.svd(table.toarray())
        U, S = U[:, :dimensions], S[:dimensions]
    else:
        start = np.random.default_rng(seed).standard_normal(words, np.float32)
        U, S, _ = need_scipy().linalg.svds(
            table.astype(np.float32), k=dimensions, v0=start, tol=TOLERANCE, return_singular_vectors="u"
        )
        U, S = U[:, ::-1], S[::-1]
    columns = np.arange(U.shape[1])
    signs = np.where(U[np.abs(U).argmax(axis=0), columns] < 0, -1.0, 1.0)
    matrix = np.zeros((words, dimensions), np.float32)
    matrix[:, : U.shape[1]] = U * signs * np.sqrt(np.maximum(S, 0))
    return matrix


def need_scipy() -> ModuleType:
    """scipy.sparse, with its linear algebra."""
    try:
        import scipy.sparse
        import scipy.sparse.linalg
    except ImportError as error:
        raise MissingExtra("PPMI vectors need scipy: pip install 'chainrule[vectors]'") from error
    module: ModuleType = scipy.sparse
    return module
