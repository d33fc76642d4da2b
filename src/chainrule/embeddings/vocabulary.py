"""Vocabulary of word vectors, sorted by frequency."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.counting import CountedCorpus


@dataclass(frozen=True, slots=True)
class WordVocabulary:
    """Words that get a vector; the index is the id."""

    words: tuple[str, ...]
    counts: NDArray[np.uint64]  # (V,)
    number_of: NDArray[np.int32]  # (types,)  id of each word number of the corpus, −1 if not in the vocabulary

    def __len__(self) -> int:
        return len(self.words)


def build_vocabulary(counted: CountedCorpus, min_count: int = 1, vocab_size: int | None = None) -> WordVocabulary:
    """Return the words with at least `min_count` occurrences, at most `vocab_size`, by count, then appearance."""
    frequent = np.flatnonzero(counted.counts >= np.uint64(min_count))
    # Negate the counts instead of reversing the order: a stable sort keeps equal words in order of appearance.
    numbers = frequent[np.argsort(np.uint64(2**64 - 1) - counted.counts[frequent], kind="stable")][:vocab_size]
    number_of = np.full(counted.types, -1, np.int32)
    number_of[numbers] = np.arange(len(numbers), dtype=np.int32)
    return WordVocabulary(tuple(counted.words_of(numbers)), counted.counts[numbers], number_of)
