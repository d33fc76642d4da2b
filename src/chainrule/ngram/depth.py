"""How far an n-gram model backed off for each token, and why.

Lives here: the path of each token through the tables, as numbers. Not here: the model (model.py), pictures and
words (inspection/depth.py).

The n-gram that answers a token is the longest one stored that ends in it; log p is what is stored with it plus the
weights of the longer contexts passed by. In back-off smoothings (Katz, stupid backoff) what is stored rests on the
count of that n-gram alone. In interpolated ones (Kneser–Ney, Witten–Bell, Jelinek–Mercer, add-k) it is already
mixed with all shorter orders, so "answered" means the longest n-gram with a share of its own, not the only one.

Stored is what the tables hold, which may be less than the training text had: pruning drops rare n-grams, and a file
of another program may have been pruned. A context is called stored where any word is stored after it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.lm import Batch, Floats, Ids, Mask
from chainrule.ngram.model import NgramModel
from chainrule.ngram.table_model import NgramState

LONGEST: Final = 0
WORD_NOT_STORED: Final = 1
CONTEXT_NOT_STORED: Final = 2
NO_MORE_WORDS: Final = 3
REASONS: Final = (
    "full order: the model has no longer n-grams",
    "backed off: context seen, word not seen after it",
    "backed off: context not seen",
    "beginning of the line: no more words before it",
)
"""Why no longer n-gram was used, by the numbers above; an n-gram that was pruned counts as not seen."""


@dataclass(frozen=True, slots=True)
class Depths:
    """The path of (B, T) tokens; what stands where the batch's mask is False means nothing."""

    order: int  # n, of the model
    found: Ids  # (B, T)  words in the n-gram that answered, 1 to n
    stored: Floats  # (B, T)  log p stored with it
    weights: (
        Floats  # (B, T, n−1)  log back-off weight of the context of m words at [m−1]; 0 where none was passed by
    )
    is_stored: Mask  # (B, T, n−1)  whether any word is stored after the context of m words
    reason: Ids  # (B, T)  why no longer one answered: a place in REASONS

    @property
    def log_prob(self) -> Floats:
        """(B, T) log p put together again, in the order in which `score` adds."""
        total = self.stored.copy()
        for m in range(1, self.order):
            total += self.weights[..., m - 1]
        return total


def depths(model: NgramModel, batch: Batch, state: NgramState) -> Depths:
    """Follow each target from single words up to the longest n-gram stored."""
    tokens = model.read(state, batch.inputs)  # (B, n−1+T)
    targets = np.ascontiguousarray(batch.targets, dtype=np.int32)
    lengths, stored, weights, is_stored = model.engine.depth(tokens, targets)
    found = lengths.astype(np.int64)
    reason = _reasons(model.order, found, is_stored, _has_words(model, tokens))
    return Depths(model.order, found, stored, weights, is_stored, reason)


def _reasons(order: int, found: Ids, is_stored: Mask, has_words: Mask) -> Ids:
    """What was amiss with the context one word longer than that of the n-gram that answered."""
    if order == 1:
        return np.full(found.shape, LONGEST)
    next_longer = np.minimum(found, order - 1)[..., None] - 1  # a context of as many words as the n-gram has

    def of_next(values: Mask) -> Mask:
        return np.asarray(np.take_along_axis(values, next_longer, axis=-1)[..., 0])

    why = np.where(of_next(is_stored), WORD_NOT_STORED, CONTEXT_NOT_STORED)
    why = np.where(of_next(has_words), why, NO_MORE_WORDS)
    return np.where(found == order, LONGEST, why)


def _has_words(model: NgramModel, tokens: Ids) -> Mask:
    """(B, T, n−1) whether a context of m words can be had: `<s>`, where there is one, is its first word."""
    n = model.order
    T = tokens.shape[1] - (n - 1)
    is_begin = tokens == model.vocabulary.bos
    if model.context == "line":
        is_begin |= tokens == model.vocabulary.eos  # the next line begins
    is_open = np.ones((len(tokens), T), dtype=bool)
    has_words = np.ones((*is_open.shape, n - 1), dtype=bool)
    for m in range(1, n):
        has_words[..., m - 1] = is_open
        is_open = is_open & ~is_begin[:, n - m : n - m + T]
    return has_words
