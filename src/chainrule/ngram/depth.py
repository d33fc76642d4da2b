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
from chainrule.ngram.model import NgramModel, NgramState

LONGEST: Final = 0
WORD_NOT_STORED: Final = 1
CONTEXT_NOT_STORED: Final = 2
NO_MORE_WORDS: Final = 3
REASONS: Final = (
    "no longer n-grams in this model",
    "context stored, this word not after it",
    "context not stored",
    "the line has no more words before it",
)
"""Why no longer n-gram answered, by the numbers above."""


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
    tokens = _read(model, batch, state)  # (B, n−1+T)
    shape = batch.targets.shape
    stored = model.tables.levels[0].log_prob[batch.targets].astype(np.float64)
    found = np.ones(shape, dtype=np.int64)
    weights = np.zeros((*shape, model.order - 1))
    is_stored = np.zeros((*shape, model.order - 1), dtype=bool)
    has_words = _has_words(model, tokens)  # (B, T, n−1)
    for m, context in enumerate(_contexts(model, tokens, shape[1]), start=1):
        is_found, log_prob = _look_up(model, m, context, batch.targets)
        found[is_found], stored[is_found] = m + 1, log_prob[is_found]
        weights[is_found, : m - 1] = 0.0  # below what answers nothing is passed by
        weight = _weight(model, m, context, has_words[..., m - 1])
        weights[..., m - 1] = np.where(is_found, 0.0, weight)
        is_stored[..., m - 1] = _is_followed(model, m, context)
    return Depths(
        model.order, found, stored, weights, is_stored, _reasons(model.order, found, is_stored, has_words)
    )


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
    is_open = np.ones((len(tokens), T), dtype=bool)
    has_words = np.ones((*is_open.shape, n - 1), dtype=bool)
    for m in range(1, n):
        has_words[..., m - 1] = is_open
        is_open = is_open & (tokens[:, n - m : n - m + T] != model.vocabulary.bos)
    return has_words


# All that is asked of a model and its tables.


def _read(model: NgramModel, batch: Batch, state: NgramState) -> Ids:
    """(B, n−1) and (B, T) -> (B, n−1+T), the next line beginning with `<s>` where lines start anew."""
    tokens = np.concatenate([state.ids, batch.inputs.astype(np.int64)], axis=1)
    is_over = (tokens == model.vocabulary.eos) & (model.context == "line")
    return np.where(is_over, model.vocabulary.bos, tokens)


def _contexts(model: NgramModel, tokens: Ids, T: int) -> list[Ids]:
    """(B, T) rows of the contexts of 1, 2, … n−1 words before each target; −1 where not stored."""
    return [rows[:, -T:] for rows in model.tables.contexts(tokens, model.vocabulary.size)]


def _look_up(model: NgramModel, m: int, context: Ids, word: Ids) -> tuple[Mask, Floats]:
    """Whether the n-gram of these m words and this word is stored, and log p where it is."""
    level = model.tables.levels[m]
    row = level.find(context, word, model.vocabulary.size)
    log_prob = level.log_prob[row] if len(level) else np.zeros(row.shape)
    return row >= 0, log_prob


def _weight(model: NgramModel, m: int, context: Ids, has_words: Mask) -> Floats:
    """Log weight of contexts of m words; where one is not stored the same for all, and none where none can be."""
    values = model.tables.levels[m - 1].log_backoff
    missing = np.where(has_words, model.tables.log_missing, 0.0)
    return np.where(context >= 0, values[context], missing) if len(values) else missing


def _is_followed(model: NgramModel, m: int, context: Ids) -> Mask:
    """Whether any word is stored after contexts of m words."""
    first, last = model.tables.levels[m].children(context, model.vocabulary.size)
    return (context >= 0) & (last > first)
