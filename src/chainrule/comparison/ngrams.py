"""N-gram candidates: a grid of orders and smoothings for words, increasing orders for shorter tokens."""

import math
from collections.abc import Callable, Iterator
from typing import Final

from chainrule import families
from chainrule.comparison.planning import Candidate, row_name
from chainrule.comparison.tokenized import Tokenized
from chainrule.ngram.config import Config

MAX_ORDER: Final = {"char": 12, "byte": 12, "bpe": 8, "unigram": 8, "wordpiece": 8}
"""Maximum order by tokenizer kind; word tokenizers use the candidate grid of the family."""
OTHER_SMOOTHINGS: Final = ("kneser-ney", "absolute", "witten-bell")
"""Smoothings tried at the best order of modified Kneser-Ney."""

ValidBits = Callable[[str], float]
"""Maps the name of a model to its validation bits per byte; NaN if unknown."""


def ngram_candidates(tokenized: Tokenized, valid_bits: ValidBits, is_labelled: bool) -> Iterator[Candidate]:
    """Yield candidates; each must be trained before the next is requested.

    For words, all candidates of the family. For characters, bytes and sub-words, modified Kneser-Ney with
    increasing order until validation bits rise, then other smoothings at the best order.
    """
    label = tokenized.label if is_labelled else ""

    def candidate(config: Config) -> Candidate:
        return Candidate(tokenized, "ngram", config, row_name("ngram", config, label))

    highest = MAX_ORDER.get(tokenized.kind)
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
