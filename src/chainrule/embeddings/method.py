"""What the methods of learning word vectors share: their result, what they refuse, what they warn of."""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import native
from chainrule.embeddings.counting import BREAK, Counted
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ChainruleWarning, InputError

Matrix = NDArray[np.float32]
STRETCH: Final = 0.2
"""Seconds of work between two looks at the keyboard."""
BLOCK: Final = 1 << 16
"""Numbers of a text read at a time."""
NO_PAIR: Final = "no two words with a vector stand in one line; give lines of text, or lower min_count"


@dataclass(frozen=True, slots=True)
class Trained:
    """What a method has learnt."""

    matrix: Matrix  # (V, D)  a word's vector; with character n-grams the mean of its own and theirs
    buckets: Matrix | None  # (B, D)  the vectors of character n-grams
    metrics: dict[str, Any]


def check_words(chosen: Chosen) -> None:
    """Refuse a text without a word to learn."""
    if not chosen.words:
        raise InputError("no word of the text is frequent enough for a vector; lower min_count or give more text")


def check_pairs(counted: Counted, chosen: Chosen) -> None:
    """Refuse a text in which no word has a neighbour; most are read no further than their first line."""
    is_before = False  # whether a chosen word stands before, in the same line
    for first in range(0, counted.numbers, BLOCK):
        block = np.fromfile(counted.file, np.int32, min(BLOCK, counted.numbers - first), offset=4 * first)
        is_break = block == BREAK
        is_chosen = ~is_break & (chosen.number_of[np.where(is_break, 0, block)] >= 0)
        kept = np.concatenate([[is_before], is_chosen[is_break | is_chosen]])
        if (kept[1:] & kept[:-1]).any():
            return
        is_before = bool(kept[-1])
    raise InputError(NO_PAIR)


@cache
def warn_of_slowness() -> None:
    """Say once that there is a faster way."""
    text = (
        f"word vectors are learnt in Python, hundreds of times as slowly; for the fast way: {native.HOW_TO_BUILD}"
    )
    warnings.warn(text, ChainruleWarning, stacklevel=4)
