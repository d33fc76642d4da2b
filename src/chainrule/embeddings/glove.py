"""GloVe (Pennington et al. 2014): co-occurrence counts of a text, and vectors whose products are their logarithms.

Lives here: the settings handed over, the two loops, the result. Not here: counting and learning themselves
(glove_twin.py, and cpp/vectors/cooccurrence.cpp and cpp/vectors/glove.cpp where the extension is present).
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule import native
from chainrule.embeddings import glove_twin
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.glove_twin import RECORD
from chainrule.embeddings.method import NO_PAIR, STRETCH, Trained, warn_of_slowness
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ChainruleError, InputError
from chainrule.progress import Progress, as_progress, silent


@dataclass(frozen=True, slots=True)
class Cooccurrences:
    """A file of records (i, j, X_ij), both directions of every pair, in an order shuffled for learning."""

    file: Path
    records: int

    def read(self) -> NDArray[np.void]:
        """(records,)  all of it, with the fields i, j and x."""
        return np.fromfile(self.file, RECORD, self.records)


class Counting(Protocol):
    """What counts, compiled or not."""

    @property
    def records(self) -> int:
        """How many records the file has."""
        ...

    def run(self, seconds: float) -> bool:
        """Count for so long; whether there is more to do."""
        ...

    def counted(self) -> tuple[bool, int, int]:
        """Whether counts are being merged, how much is done, of how much."""
        ...


class Learner(Protocol):
    """What learns, compiled or not."""

    @property
    def simd(self) -> str:
        """The vector instructions in use."""
        ...

    def run(self, seconds: float) -> bool:
        """Learn for so long; whether there is more."""
        ...

    def learnt(self) -> tuple[int, int, float]:
        """Pairs learnt, of how many, the mean cost of the last full epoch."""
        ...

    def result(self) -> NDArray[np.float32]:
        """w + w̃, (V, D)."""
        ...


def cooccurrences(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    folder: Path,
    progress: Progress | bool = silent,
    *,
    threads: int = 1,
    seed: int = 0,
) -> Cooccurrences:
    """Count X_ij = Σ 1/distance over all places where i and j stand within `window` words of one sentence.

    Words that are not chosen count as if they were not there. The file, in `folder`, is the same whatever the
    memory and the threads; `seed` is of its order. The compiled counting takes about `config.memory`, the one in
    Python as much as the text needs.

    Raises:
        InputError: No two chosen words stand in one sentence.

    """
    progress = as_progress(progress)
    core: Any = native.load()
    file = folder / "cooccurrences"
    make: Any = core.Cooccurrence if core else glove_twin.Cooccurrence
    counting: Counting = make(
        str(counted.file),
        counted.numbers,
        chosen.number_of,
        len(chosen.words),
        str(file),
        window=config.window,
        bytes=config.memory_bytes,
        threads=threads,
        seed=seed,
    )
    is_more = True
    while is_more:
        is_more = counting.run(STRETCH)
        is_merging, done, of = counting.counted()
        progress("merging co-occurrences" if is_merging else "counting co-occurrences", done, of)
    if not counting.records:
        raise InputError(NO_PAIR)
    return Cooccurrences(file, counting.records)


def train(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | bool = silent,
) -> Trained:
    """Learn w_i · w̃_j + b_i + b̃_j ≈ log X_ij; the result is w + w̃.

    Args:
        counted: The text as numbers.
        chosen: The words that get a vector.
        config: All of it but what is for word2vec alone (`negative`, `sample`, `power`, n-grams).
        threads: With one the same seed gives the same vectors, bit by bit.
        seed: Of the order of the pairs and of the first vectors.
        progress: Told what has been counted, then the pairs learnt, of how many.

    Raises:
        InputError: There is no pair of words to learn from.
        ChainruleError: The vectors have grown without bound.

    """
    progress = as_progress(progress)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="chainrule-", dir=counted.file.parent) as scratch:
        found = cooccurrences(counted, chosen, config, Path(scratch), progress, threads=threads, seed=seed)
        counting_seconds = time.perf_counter() - began
        learner = _learner(found, len(chosen.words), config, threads, seed)
        metrics = _run(learner, progress)
        matrix = learner.result()
        metrics |= {"simd": learner.simd, "threads": threads if native.load() else 1}
        metrics["learning_rate"] = config.rate
        del learner  # it reads the file
    if not np.isfinite(metrics["cost"]) or not np.isfinite(matrix).all():
        raise ChainruleError(f"the vectors grew without bound; lower vectors.learning_rate ({config.rate:g})")
    return Trained(matrix, None, metrics | {"records": found.records, "counting_seconds": counting_seconds})


def _learner(found: Cooccurrences, words: int, config: VectorConfig, threads: int, seed: int) -> Learner:
    core: Any = native.load()
    if not core:
        warn_of_slowness()
    make: Any = core.Glove if core else glove_twin.Glove
    made: Learner = make(
        str(found.file),
        found.records,
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
    return made


def _run(learner: Learner, progress: Progress) -> dict[str, Any]:
    """Learn to the end; the cost is the mean of the last epoch."""
    began, is_more = time.perf_counter(), True
    while is_more:
        is_more = learner.run(STRETCH)
        pairs, of, cost = learner.learnt()
        seconds = time.perf_counter() - began
        said = f"cost {cost:.4f}, " if np.isfinite(cost) else ""
        progress(f"learning, {said}{pairs / seconds:,.0f} pairs/s", pairs, of)
    return {"pairs": pairs, "seconds": seconds, "pairs_per_second": pairs / seconds, "cost": cost}
