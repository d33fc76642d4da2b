"""Which words get a vector, and in which order: the most frequent first."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.counting import Counted


@dataclass(frozen=True, slots=True)
class Chosen:
    """The words that are learnt; their final number is their place here."""

    words: tuple[str, ...]
    counts: NDArray[np.uint64]  # (V,)
    number_of: NDArray[np.int32]  # (types,)  the final number of each word that was counted, or −1

    def __len__(self) -> int:
        return len(self.words)


def choose(counted: Counted, min_count: int = 1, vocab_size: int | None = None) -> Chosen:
    """The words seen `min_count` times or more, at most `vocab_size`, by count, then by first appearance."""
    frequent = np.flatnonzero(counted.counts >= np.uint64(min_count))
    # Counts are turned round, not the order: a stable sort keeps the first of equals first.
    places = frequent[np.argsort(np.uint64(2**64 - 1) - counted.counts[frequent], kind="stable")][:vocab_size]
    number_of = np.full(counted.types, -1, np.int32)
    number_of[places] = np.arange(len(places), dtype=np.int32)
    return Chosen(tuple(counted.words_of(places)), counted.counts[places], number_of)
