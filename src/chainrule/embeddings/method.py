"""Result type and input checks shared by the training methods of word vectors."""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import native
from chainrule.embeddings.counting import SENTENCE_BREAK, CountedCorpus
from chainrule.embeddings.vocabulary import WordVocabulary
from chainrule.errors import ChainruleWarning, InputError

Matrix = NDArray[np.float32]
POLL_SECONDS: Final = 0.2
"""Interval at which compiled training returns to Python to report progress and handle Ctrl-C."""
BLOCK_IDS: Final = 1 << 16
"""Word numbers read at a time."""
NO_PAIRS_MESSAGE: Final = "no two words with a vector stand in one line; give lines of text, or lower min_count"


@dataclass(frozen=True, slots=True)
class TrainedVectors:
    """Result of a training method."""

    matrix: Matrix  # (V, D)  word vectors; with character n-grams, the mean of the word's row and its n-grams
    buckets: Matrix | None  # (B, D)  vectors of character n-gram buckets
    metrics: dict[str, Any]


def check_vocabulary(vocabulary: WordVocabulary) -> None:
    """Raise InputError if the vocabulary is empty."""
    if not vocabulary.words:
        raise InputError("no word of the text is frequent enough for a vector; lower min_count or give more text")


def check_pairs(counted: CountedCorpus, vocabulary: WordVocabulary) -> None:
    """Raise InputError if no two vocabulary words occur in one line; stops reading at the first pair."""
    is_before = False  # a vocabulary word precedes in the same line
    for first in range(0, counted.numbers, BLOCK_IDS):
        block = np.fromfile(counted.file, np.int32, min(BLOCK_IDS, counted.numbers - first), offset=4 * first)
        is_break = block == SENTENCE_BREAK
        is_known = ~is_break & (vocabulary.number_of[np.where(is_break, 0, block)] >= 0)
        is_word = np.concatenate(
            [[is_before], is_known[is_break | is_known]]
        )  # words and breaks, without OOV words
        if (is_word[1:] & is_word[:-1]).any():
            return
        is_before = bool(is_word[-1])
    raise InputError(NO_PAIRS_MESSAGE)


@cache
def warn_missing_extension() -> None:
    """Warn once that training without the extension is slow."""
    text = (
        f"word vectors are learnt in Python, hundreds of times as slowly; for the fast way: {native.HOW_TO_BUILD}"
    )
    warnings.warn(text, ChainruleWarning, stacklevel=4)
