"""Small texts for the tests of co-occurrences and GloVe."""

from pathlib import Path
from typing import Any

import numpy as np

from chainrule import system
from chainrule.embeddings import corpus
from chainrule.embeddings.corpus import CountedCorpus, WordVocabulary

CORE: Any = system.load_extension()


def counted_of(lines: list[str], folder: Path, min_count: int = 1) -> tuple[CountedCorpus, WordVocabulary]:
    counted = corpus.count(lines, folder / "numbers")
    return counted, corpus.build_vocabulary(counted, min_count)


def zipf_lines(lines: int, words: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"w{min(n, words)}" for n in rng.zipf(1.3, rng.integers(0, 30)).tolist()) for _ in range(lines)
    ]
