"""Katz back-off with Good–Turing discounts: unseen words share what the seen ones gave up, no more."""

import numpy as np

from chainrule.lm import Floats, Mask, Vocabulary
from chainrule.ngram.counts import Counts
from chainrule.ngram.discounts import good_turing_ratios
from chainrule.ngram.smoothing import Seen, raw


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
        left = 1 - np.bincount(seen.context, p, seen.contexts)
        left_shorter = 1 - np.bincount(seen.context, p_shorter, seen.contexts)
        backoff.append(np.maximum(left, 0) / np.maximum(left_shorter, np.finfo(float).tiny))
        prob.append(p)
    return prob, [*backoff, np.ones(len(counts.levels[-1]))]


def _discounted(seen: Seen) -> Floats:
    """d_c c / c(h); where nothing was taken off, 1 is added to c(h), so that the unseen get something."""
    ratios = good_turing_ratios(seen.count, seen.order)
    d = ratios[np.minimum(seen.count, len(ratios) - 1)]
    kept_mass = np.bincount(seen.context, d * seen.count, seen.contexts)
    is_full = kept_mass >= seen.context_totals * (1 - 1e-12)
    return np.asarray(d * seen.count / (seen.total + is_full[seen.context]))


def _unigrams(seen: Seen, vocabulary: Vocabulary) -> Floats:
    """Discounted like the rest; what is left goes to the words never seen, or to all where there are none."""
    p = _discounted(seen)
    unseen = vocabulary.predictable & (seen.count == 0)
    heirs = unseen if unseen.any() else vocabulary.predictable
    return np.asarray(p + heirs * ((1 - p.sum()) / heirs.sum()))
