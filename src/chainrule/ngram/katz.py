"""Katz back-off with Good–Turing discounts: unseen words share what the seen ones gave up, no more."""

import numpy as np

from chainrule.lm import Floats, Mask, Vocabulary
from chainrule.ngram.counts import Counts
from chainrule.ngram.discounts import good_turing_ratios
from chainrule.ngram.smoothing import Seen, raw

EPSILON = 1e-12
"""A mass as small as this is rounding."""


def katz(counts: Counts, kept: list[Mask]) -> tuple[list[Floats], list[Floats]]:
    """Probabilities and back-off weights of every order (Katz 1987).

    p(w | h) = d_c c / c(h) where seen, else α(h) p(w | shorter h); α(h) makes the sum 1.
    """
    first, *longer = raw(counts)
    prob = [_unigrams(first, counts.vocabulary)]
    backoff: list[Floats] = []
    for seen, level, keep in zip(longer, counts.levels[1:], kept[1:], strict=True):
        p = np.where(keep, _discounted(seen), 0.0)
        p_shorter = np.where(keep, prob[-1][level.suffix], 0.0)
        mass = np.bincount(seen.context, p, seen.contexts)
        left_shorter = 1 - np.bincount(seen.context, p_shorter, seen.contexts)
        has_heirs = left_shorter > EPSILON
        backoff.append(np.where(has_heirs, (1 - mass) / np.where(has_heirs, left_shorter, 1), 0))
        # Where every word was seen after h, what was taken off goes back to them.
        prob.append(p / np.where(has_heirs, 1, mass)[seen.context])
    return prob, [*backoff, np.ones(len(counts.levels[-1]))]


def _discounted(seen: Seen) -> Floats:
    """d_c c / c(h); where nothing was taken off, 1 is added to c(h), so that the unseen get something."""
    ratios = good_turing_ratios(seen.count, seen.order)
    d = ratios[np.minimum(seen.count, len(ratios) - 1)]
    kept_mass = np.bincount(seen.context, d * seen.count, seen.contexts)
    is_full = kept_mass >= seen.context_totals * (1 - EPSILON)
    return np.asarray(d * seen.count / (seen.total + is_full[seen.context]))


def _unigrams(seen: Seen, vocabulary: Vocabulary) -> Floats:
    """Discounted like the rest; what is left goes to the words never seen, or to all where there are none."""
    p = _discounted(seen)
    unseen = vocabulary.predictable & (seen.count == 0)
    heirs = unseen if unseen.any() else vocabulary.predictable
    return np.asarray(p + heirs * ((1 - p.sum()) / heirs.sum()))
