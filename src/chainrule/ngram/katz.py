"""Katz back-off with Good–Turing discounts (Katz 1987)."""

import numpy as np

from chainrule.lm import Floats, Mask, Vocabulary
from chainrule.ngram.counts import Counts
from chainrule.ngram.discounts import good_turing_ratios
from chainrule.ngram.smoothing import OrderCounts, raw_counts

EPSILON = 1e-12
"""Probability mass below this value is treated as rounding error."""


def katz(counts: Counts, masks: list[Mask]) -> tuple[list[Floats], list[Floats]]:
    """Return the probabilities and back-off weights of every order; `masks` select the n-grams that are not pruned.

    p(w | h) = d_c c / c(h) if (h, w) was seen, otherwise α(h) p(w | h′), where h′ is h without its first word.
    """
    first, *longer = raw_counts(counts)
    prob = [_unigrams(first, counts.vocabulary)]
    backoff: list[Floats] = []
    for order, level, keep in zip(longer, counts.levels[1:], masks[1:], strict=True):
        p = np.where(keep, _discounted(order), 0.0)
        p_lower = np.where(keep, prob[-1][level.suffix], 0.0)
        mass = np.bincount(order.context, p, order.contexts)
        unseen_mass = 1 - np.bincount(order.context, p_lower, order.contexts)  # Σ p(w | h′) of the unseen words
        has_unseen = unseen_mass > EPSILON
        backoff.append(np.where(has_unseen, (1 - mass) / np.where(has_unseen, unseen_mass, 1), 0))
        # If every word was seen after h, the discounted probabilities are rescaled to sum to 1.
        prob.append(p / np.where(has_unseen, 1, mass)[order.context])
    return prob, [*backoff, np.ones(len(counts.levels[-1]))]


def _discounted(order: OrderCounts) -> Floats:
    """Return d_c c / c(h); if no count after h is discounted, c(h) + 1 leaves mass for unseen words."""
    ratios = good_turing_ratios(order.count, order.n)
    d = ratios[np.minimum(order.count, len(ratios) - 1)]
    kept_mass = np.bincount(order.context, d * order.count, order.contexts)
    is_full = kept_mass >= order.context_totals * (1 - EPSILON)
    return np.asarray(d * order.count / (order.total + is_full[order.context]))


def _unigrams(order: OrderCounts, vocabulary: Vocabulary) -> Floats:
    """Return discounted unigrams; the remaining mass is shared by the unseen words, or by all if there are none."""
    p = _discounted(order)
    is_unseen = vocabulary.predictable & (order.count == 0)
    receivers = is_unseen if is_unseen.any() else vocabulary.predictable
    return np.asarray(p + receivers * ((1 - p.sum()) / receivers.sum()))
