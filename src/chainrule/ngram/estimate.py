"""Estimate back-off tables from counts with any smoothing method.

Interpolated methods compute p(w | h) = α(h, w) + γ(h) p(w | h′), where h′ is h without its first word.
"""

import numpy as np

from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram import smoothing
from chainrule.ngram.config import Config
from chainrule.ngram.counts import Counts
from chainrule.ngram.discounts import absolute_discount, modified_discounts
from chainrule.ngram.katz import katz
from chainrule.ngram.smoothing import OrderCounts
from chainrule.ngram.tables import BackoffLevel, BackoffTables


def estimate(counts: Counts, config: Config, weights: list[Floats] | None = None) -> BackoffTables:
    """Estimate the tables; `weights` are the λ of Jelinek–Mercer, one array of contexts for each order."""
    masks = [level.count > cut_off for level, cut_off in zip(counts.levels, config.cut_offs(), strict=True)]
    masks[0] = np.ones(counts.vocabulary.size, dtype=bool)  # unigrams are never pruned
    if config.smoothing == "katz":
        return _to_tables(counts, *katz(counts, masks), masks)
    if config.smoothing == "stupid-backoff":
        prob = [smoothing.maximum_likelihood(order) for order in smoothing.raw_counts(counts)]
        backoff = [np.full(len(level), config.backoff) for level in counts.levels]
        return _to_tables(counts, prob, backoff, masks, missing=config.backoff)
    is_kneser_ney = config.smoothing in ("kneser-ney", "modified-kneser-ney")
    orders = smoothing.kneser_ney_counts(counts) if is_kneser_ney else smoothing.raw_counts(counts)
    alphas = [_discounted(order, config, counts, weights) for order in orders]
    return _to_tables(counts, *_interpolate(counts, alphas, masks), masks)


def _discounted(order: OrderCounts, config: Config, counts: Counts, weights: list[Floats] | None) -> Floats:
    """Return the discounted probabilities α(h, w) of one order."""
    D = config.discount
    match config.smoothing:
        case "laplace" | "add-k":
            k = 1.0 if config.smoothing == "laplace" else config.k
            V = int(counts.vocabulary.predictable.sum())
            return smoothing.additive(order, k, V, is_top=order.n == counts.order)
        case "witten-bell":
            return smoothing.witten_bell(order)
        case "absolute" | "kneser-ney":
            return smoothing.absolute(order, absolute_discount(order.count, order.n) if D is None else D)
        case "modified-kneser-ney":
            return smoothing.modified_kneser_ney(order, modified_discounts(order.count, order.n))
        case "jelinek-mercer":
            assert weights is not None, "Jelinek-Mercer needs weights from held-out text"
            return weights[order.n - 1][order.context] * smoothing.maximum_likelihood(order)
        case _:
            return smoothing.maximum_likelihood(order)


def _interpolate(counts: Counts, alphas: list[Floats], masks: list[Mask]) -> tuple[list[Floats], list[Floats]]:
    """Return p(w | h) = α(h, w) + γ(h) p(w | h′) and γ(h) of each order, starting from the uniform distribution.

    The α of pruned n-grams is added to γ.
    """
    p_shorter = _uniform(counts.vocabulary)
    prob: list[Floats] = []
    backoff: list[Floats] = []
    for level, alpha, keep in zip(counts.levels, alphas, masks, strict=True):
        contexts = len(backoff[-1]) if backoff else 1
        gamma = 1.0 - np.bincount(level.context, alpha * keep, contexts)
        gamma[np.abs(gamma) < 1e-15 * counts.vocabulary.size] = 0  # rounding error
        below = prob[-1][level.suffix] if prob else p_shorter
        prob.append(alpha * keep + gamma[level.context] * below)
        if backoff:
            backoff[-1] = gamma
        backoff.append(np.ones(len(level)))
    return prob, backoff


def _uniform(vocabulary: Vocabulary) -> Floats:
    """Return the uniform distribution (V,) over the predictable ids."""
    predictable = vocabulary.predictable
    return np.asarray(predictable / predictable.sum())


def _to_tables(
    counts: Counts, prob: list[Floats], backoff: list[Floats], masks: list[Mask], missing: float = 1.0
) -> BackoffTables:
    """Remove the pruned n-grams, renumber the others and convert to float32 logarithms."""
    V = counts.vocabulary.size
    levels: list[BackoffLevel] = []
    new_row: Ids = np.zeros(1, dtype=np.int64)  # new row of each context in the next lower order
    with np.errstate(divide="ignore"):  # log 0 = −inf is intended
        for level, p, weight, keep in zip(counts.levels, prob, backoff, masks, strict=True):
            key = new_row[level.context[keep]] * V + level.word[keep]
            log_prob, log_backoff = np.log(p[keep]), np.log(weight[keep])
            levels.append(BackoffLevel(key, log_prob.astype(np.float32), log_backoff.astype(np.float32)))
            new_row = np.cumsum(keep) - 1
        return BackoffTables(tuple(levels), float(np.float32(np.log(missing))))
