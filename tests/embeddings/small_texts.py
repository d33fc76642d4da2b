"""Small texts for the tests of co-occurrences and GloVe."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import system
from chainrule.embeddings.corpus import CountedCorpus, WordVocabulary, build_vocabulary, count_blocks
from chainrule.progress import Progress, silent

CORE: Any = system.load_extension()


def count(lines: Iterable[str], file: Path, lowercase: bool = False, progress: Progress = silent) -> CountedCorpus:
    return count_blocks((f"{line}\n" for line in lines), file, lowercase, progress)


def counted_of(lines: list[str], folder: Path, min_count: int = 1) -> tuple[CountedCorpus, WordVocabulary]:
    counted = count(lines, folder / "numbers")
    return counted, build_vocabulary(counted, min_count)


def zipf_lines(lines: int, words: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"w{min(n, words)}" for n in rng.zipf(1.3, rng.integers(0, 30)).tolist()) for _ in range(lines)
    ]
