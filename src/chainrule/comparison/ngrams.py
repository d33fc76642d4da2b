"""Which n-gram models are tried: a grid for words, rising orders for shorter tokens."""

import math
from collections.abc import Callable, Iterator
from typing import Final

from chainrule import families
from chainrule.comparison.planning import Candidate, row_name
from chainrule.comparison.tokenized import Tokenized
from chainrule.ngram.config import Config

HIGHEST_ORDER: Final = {"char": 12, "byte": 12, "bpe": 8, "unigram": 8, "wordpiece": 8}
"""By kind of tokenizer; words have the grid of the family's candidates."""
OTHER_SMOOTHINGS: Final = ("kneser-ney", "absolute", "witten-bell")
"""Tried at the best order of modified Kneser-Ney."""

ValidBits = Callable[[str], float]
"""Bits per byte of the validation text by name of a finished model; NaN if it was not trained or not measured."""


def ngram_candidates(tokenized: Tokenized, valid_bits: ValidBits, is_labelled: bool) -> Iterator[Candidate]:
    """Candidates in order; each must be trained before the next is asked for.

    For words, every candidate of the family. For characters, bytes and sub-words, modified Kneser-Ney by rising
    order until the validation text needs more bits than at the order before, then other smoothings at the best.
    """
    label = tokenized.label if is_labelled else ""

    def candidate(config: Config) -> Candidate:
        return Candidate(tokenized, "ngram", config, row_name("ngram", config, label))

    highest = HIGHEST_ORDER.get(tokenized.kind)
    if highest is None:
        for config in families.get("ngram").candidates():
            yield candidate(config)
        return
    best_order, best_bits = 1, math.inf
    for order in range(1, highest + 1):
        current = candidate(Config(order=order))
        yield current
        bits = valid_bits(current.name)
        if bits >= best_bits:
            break
        if not math.isnan(bits):
            best_order, best_bits = order, bits
    for smoothing in OTHER_SMOOTHINGS:
        yield candidate(Config(order=best_order, smoothing=smoothing))
