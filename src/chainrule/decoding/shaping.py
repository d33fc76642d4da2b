"""Apply the configured filters to next-token distributions."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from chainrule.decoding import filters
from chainrule.decoding.settings import Decoding
from chainrule.lm import Floats, Ids, Vocabulary


def apply_filters(
    log_p: Floats, texts: Sequence[filters.TokenSequence], settings: Decoding, vocabulary: Vocabulary
) -> Floats:
    """Apply penalties, temperature and truncation, in this order, (K, V) -> (K, V).

    `texts` holds the ids of each row so far, including the prompt (see `make_history`). The result is normalised
    even if the model's scores are not. Tokens that are not predictable, such as `<s>`, are impossible, and so is
    `<unk>` with `unk="exclude"`; if no other token is possible, `</s>` gets probability 1.
    """
    allowed = mask_unpredictable(log_p, vocabulary)
    if settings.unk == "exclude" and vocabulary.unk is not None:
        allowed = filters.exclude(allowed, vocabulary.unk, fallback=vocabulary.eos)
    normalized = allowed = filters.normalize(allowed)
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
    return allowed if allowed is normalized else filters.normalize(allowed)


def make_history(words: Sequence[int], settings: Decoding) -> filters.TokenHistory:
    """Return a token history with the indexes that the settings need."""
    is_used = settings.repetition_penalty != 1 or settings.no_repeat_ngram is not None
    return filters.TokenHistory(words if is_used else (), settings.no_repeat_ngram)


ROUNDING: Final = 1e-6
"""Largest deviation from 1 of the sum of a distribution that is treated as float32 rounding."""


def next_token_distribution(log_p: Floats, vocabulary: Vocabulary) -> Floats:
    """Return log p of each possible next token, (K, V), corrected for rounding of the sum.

    Rows of unnormalised or quantised models, which do not sum to one, are unchanged.
    """
    log_p = mask_unpredictable(log_p, vocabulary)
    with np.errstate(over="ignore"):
        total = np.exp(log_p).sum(axis=1, keepdims=True)
    is_rounding = np.abs(total - 1) < ROUNDING
    return np.asarray(log_p - np.log(np.where(is_rounding, total, 1.0)))


def mask_unpredictable(log_p: Floats, vocabulary: Vocabulary) -> Floats:
    """Set unpredictable tokens to -inf; returns the input itself if they already are."""
    unpredictable = _unpredictable(vocabulary)
    if np.isneginf(log_p[:, unpredictable]).all():
        return log_p
    out = np.array(log_p)
    out[:, unpredictable] = -np.inf
    return out


@lru_cache(maxsize=8)
def _unpredictable(vocabulary: Vocabulary) -> Ids:
    """Return the ids that are never predicted; cached, because it scans the vocabulary."""
    return np.flatnonzero(~vocabulary.predictable)
