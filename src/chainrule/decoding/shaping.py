"""From the model's distribution to the one a strategy chooses from.

Lives here: which filters apply, and in which order. Not here: the filters (filters.py).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from chainrule.decoding import filters
from chainrule.decoding.settings import Decoding
from chainrule.lm import Floats, Ids, Vocabulary


def shape(log_p: Floats, texts: Sequence[filters.Text], settings: Decoding, vocabulary: Vocabulary) -> Floats:
    """(K, V) -> (K, V), what a strategy chooses from: penalties first, then temperature, then truncation.

    `texts` holds the ids of each row so far, those of the prompt included (`history` makes one that grows).
    The result sums to one, also where the model's scores do not; what is not predictable, `<s>` above all, is
    impossible in it. So is `<unk>` with `unk="exclude"`: the others are renormalised, and where there are none the
    text ends with `</s>`.
    """
    allowed = possible(log_p, vocabulary)
    if settings.unk == "exclude" and vocabulary.unk is not None:
        allowed = filters.exclude(allowed, vocabulary.unk, fallback=vocabulary.eos)
    first = allowed = filters.normalize(allowed)
    if settings.repetition_penalty != 1:
        allowed = filters.repetition_penalty(allowed, texts, settings.repetition_penalty)
    if settings.no_repeat_ngram is not None:
        allowed = filters.no_repeat_ngram(allowed, texts, settings.no_repeat_ngram)
    T = 0.0 if settings.strategy == "greedy" else settings.temperature
    if T != 1:
        allowed = filters.temperature(allowed, T)
    if settings.top_k is not None:
        allowed = filters.top_k(allowed, settings.top_k)
    if settings.top_p is not None:
        allowed = filters.top_p(allowed, settings.top_p)
    if settings.min_p is not None:
        allowed = filters.min_p(allowed, settings.min_p)
    return allowed if allowed is first else filters.normalize(allowed)


def history(words: Sequence[int], settings: Decoding) -> filters.TokenHistory:
    """Return a text that is extended by `append`; only what the settings need of it is recorded."""
    is_used = settings.repetition_penalty != 1 or settings.no_repeat_ngram is not None
    return filters.TokenHistory(words if is_used else (), settings.no_repeat_ngram)


ROUNDING: Final = 1e-6
"""Of the sum of a distribution whose log-probabilities are stored in single precision."""


def distribution(log_p: Floats, vocabulary: Vocabulary) -> Floats:
    """(K, V) what `score` gives each token that may come next, rounding errors of the sum removed.

    A row that does not sum to one, of an unnormalised or a quantised model, stays as it is.
    """
    log_p = possible(log_p, vocabulary)
    with np.errstate(over="ignore"):
        total = np.exp(log_p).sum(axis=1, keepdims=True)
    is_rounding = np.abs(total - 1) < ROUNDING
    return np.asarray(log_p - np.log(np.where(is_rounding, total, 1.0)))


def possible(log_p: Floats, vocabulary: Vocabulary) -> Floats:
    """The same without what is not predictable; most models give that no probability, and are not copied."""
    never = _unpredictable(vocabulary)
    if np.isneginf(log_p[:, never]).all():
        return log_p
    out = np.array(log_p)
    out[:, never] = -np.inf
    return out


@lru_cache(maxsize=8)
def _unpredictable(vocabulary: Vocabulary) -> Ids:
    """The few ids that may not come next, looked for among V once and not at every step."""
    return np.flatnonzero(~vocabulary.predictable)
