"""Text with two clusters of words that training must separate."""

from collections.abc import Iterator

import numpy as np


def clusters(sentences: int, length: int = 10, seed: int = 0) -> Iterator[str]:
    """Sentences of words of one cluster, a or b, with a frequent word that is in both."""
    rng = np.random.default_rng(seed)
    for i in range(sentences):
        words = rng.integers(0, 8, length)
        yield " ".join("the" if word == 0 else f"{'ab'[i % 2]}{word}" for word in words)
