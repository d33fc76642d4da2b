"""From counts to back-off tables, by any of the smoothings.

The one place that knows which counts, which discounts and which lower order each method takes.
"""

import numpy as np

from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram import smoothing
from chainrule.ngram.config import Config
from chainrule.ngram.counts import Counts
from chainrule.ngram.discounts import absolute_discount, modified_discounts
from chainrule.ngram.katz import katz
from chainrule.ngram.smoothing import Seen
from chainrule.ngram.tables import BackoffLevel, BackoffTables


def estimate(counts: Counts, config: Config, weights: list[Floats] | None = None) -> BackoffTables:
    """Smooth `counts` as `config` says; `weights` are Jelinek–Mercer's λ, one for each context of each order."""
    kept = [level.count > cut for level, cut in zip(counts.levels, config.cut_offs(), strict=True)]
    kept[0] = np.ones(counts.vocabulary.size, dtype=bool)  # every id keeps its unigram, seen or not
    if config.smoothing == "katz":
        return _pack(counts, *katz(counts, kept), kept)
    if config.smoothing == "stupid-backoff":
        prob = [smoothing.maximum_likelihood(seen) for seen in smoothing.raw(counts)]
        backoff = [np.full(len(level), config.backoff) for level in counts.levels]
        return _pack(counts, prob, backoff, kept, missing=config.backoff)
    is_continued = config.smoothing in ("kneser-ney", "modified-kneser-ney")
    orders = smoothing.continued(counts) if is_continued else smoothing.raw(counts)
    shares = [_share(seen, config, counts, weights) for seen in orders]
    return _pack(counts, *_interpolate(counts, shares, kept), kept)


def _share(seen: Seen, config: Config, counts: Counts, weights: list[Floats] | None) -> Floats:
    """share(h, w) of one order by the configured method."""
    D = config.discount
    match config.smoothing:
        case "laplace" | "add-k":
            k = 1.0 if config.smoothing == "laplace" else config.k
            V = int(counts.vocabulary.predictable.sum())
            return smoothing.additive(seen, k, V, is_top=seen.order == counts.order)
        case "witten-bell":
            return smoothing.witten_bell(seen)
        case "absolute" | "kneser-ney":
            return smoothing.absolute(seen, absolute_discount(seen.count, seen.order) if D is None else D)
        case "modified-kneser-ney":
            return smoothing.modified_kneser_ney(seen, modified_discounts(seen.count, seen.order))
        case "jelinek-mercer":
            assert weights is not None, "Jelinek-Mercer needs weights from held-out text"
            return weights[seen.order - 1][seen.context] * smoothing.maximum_likelihood(seen)
        case _:
            return smoothing.maximum_likelihood(seen)


def _interpolate(counts: Counts, shares: list[Floats], kept: list[Mask]) -> tuple[list[Floats], list[Floats]]:
    """p(w | h) = share(h, w) + γ(h) p(w | shorter h), from the uniform distribution up; pruned shares go to γ."""
    p_shorter = _uniform(counts.vocabulary)
    prob: list[Floats] = []
    backoff: list[Floats] = []
    for level, share, keep in zip(counts.levels, shares, kept, strict=True):
        contexts = len(backoff[-1]) if backoff else 1
        gamma = 1.0 - np.bincount(level.context, share * keep, contexts)
        gamma[np.abs(gamma) < 1e-15 * counts.vocabulary.size] = 0  # a sum that is 1 but for rounding
        below = prob[-1][level.suffix] if prob else p_shorter
        prob.append(share * keep + gamma[level.context] * below)
        if backoff:
            backoff[-1] = gamma
        backoff.append(np.ones(len(level)))
    return prob, backoff


def _uniform(vocabulary: Vocabulary) -> Floats:
    """(V,) 1/V over what can be predicted."""
    predictable = vocabulary.predictable
    return np.asarray(predictable / predictable.sum())


def _pack(
    counts: Counts, prob: list[Floats], backoff: list[Floats], kept: list[Mask], missing: float = 1.0
) -> BackoffTables:
    """Leave out what is pruned, number the rest anew, take logarithms in single precision."""
    V = counts.vocabulary.size
    levels: list[BackoffLevel] = []
    new_row: Ids = np.zeros(1, dtype=np.int64)  # of each context, in the table one order down
    with np.errstate(divide="ignore"):  # log 0 = −inf is meant
        for level, p, weight, keep in zip(counts.levels, prob, backoff, kept, strict=True):
            key = new_row[level.context[keep]] * V + level.word[keep]
            log_prob, log_backoff = np.log(p[keep]), np.log(weight[keep])
            levels.append(BackoffLevel(key, log_prob.astype(np.float32), log_backoff.astype(np.float32)))
            new_row = np.cumsum(keep) - 1
        return BackoffTables(tuple(levels), float(np.float32(np.log(missing))))
