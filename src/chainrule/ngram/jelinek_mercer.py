"""Estimate Jelinek–Mercer weights by expectation maximisation on held-out text.

p_k(w | h) = λ c(h, w)/c(h) + (1 − λ) p_{k−1}(w | h′), down to the uniform distribution, where h′ is h without its
first word. There is one λ per order, or one per order and bucket of c(h). An unseen context has λ = 0.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Context, Floats, Ids, Mask
from chainrule.ngram.counts import Counts, insert_bos
from chainrule.ngram.smoothing import raw_counts
from chainrule.ngram.tables import find_ngrams, take_or_default
from chainrule.progress import Progress, silent

BUCKETS = 24
"""Buckets of c(h) by powers of two: 1, 2–3, 4–7, …"""

PSEUDO_COUNT = 0.01
"""Added to the expected counts of both outcomes, so that no λ becomes 0 or 1."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Statistics of N held-out tokens under the counts of n orders."""

    estimate: Floats  # (n, N)  maximum-likelihood estimate c(h, w)/c(h)
    bucket: Ids  # (n, N)  bucket of c(h)
    is_seen: Mask  # (n, N)  c(h) > 0
    uniform: Floats  # (N,)  probability under the uniform distribution


def estimate_lambdas(
    counts: Counts,
    held_out: Ids,
    context: Context,
    is_bucketed: bool,
    iterations: int = 500,
    progress: Progress = silent,
) -> Floats:
    """Return the λ of each order and bucket, (n, BUCKETS), that maximise the likelihood of `held_out`."""
    data = _lookup(counts, held_out, context, is_bucketed)
    weights = np.full((counts.order, BUCKETS), 0.5)
    visited = np.zeros(weights.shape, dtype=bool)
    for i in range(iterations):
        progress("Jelinek-Mercer weights", i + 1, iterations)
        before = weights.copy()
        weights, visited = _em_step(weights, data)
        if np.abs(weights - before).max() < 1e-6:
            break
    return np.stack([_fill_unvisited(w, v) for w, v in zip(weights, visited, strict=True)])


def expand_lambdas(counts: Counts, weights: Floats, is_bucketed: bool) -> list[Floats]:
    """Return the λ of every context of every order."""
    return [
        weights[k][_bucket(order.context_totals, is_bucketed)] * (order.context_totals > 0)
        for k, order in enumerate(raw_counts(counts))
    ]


def _bucket(total: Floats, is_bucketed: bool) -> Ids:
    """Return the bucket floor(log2(total)), or 0 for all if not bucketed."""
    if not is_bucketed:
        return np.zeros(len(total), dtype=np.int64)
    return np.minimum(np.log2(np.maximum(total, 1)).astype(np.int64), BUCKETS - 1)


def _lookup(counts: Counts, held_out: Ids, context: Context, is_bucketed: bool) -> HeldOut:
    vocabulary = counts.vocabulary
    tokens = insert_bos(held_out.astype(np.int64), vocabulary, context)
    is_predicted = tokens != vocabulary.bos
    before = np.zeros(len(tokens), dtype=np.int64)  # row of the context; the empty context at order 1
    estimates, buckets, is_seen = [], [], []
    for level, order in zip(counts.levels, raw_counts(counts), strict=True):
        row = find_ngrams(level.context * vocabulary.size + level.word, before, tokens, vocabulary.size)
        total = take_or_default(order.context_totals, before, np.zeros(len(before)))[is_predicted]
        count = take_or_default(level.count.astype(np.float64), row, np.zeros(len(row)))[is_predicted]
        estimates.append(count / np.maximum(total, 1))
        buckets.append(_bucket(total, is_bucketed))
        is_seen.append(total > 0)
        before = np.concatenate([[-1], row[:-1]])
    uniform = vocabulary.predictable[tokens[is_predicted]] / vocabulary.predictable.sum()
    return HeldOut(np.stack(estimates), np.stack(buckets), np.stack(is_seen), uniform)


def _em_step(weights: Floats, data: HeldOut) -> tuple[Floats, Mask]:
    """Run one step of EM; return the new λ and the mask of those that some token uses."""
    n = len(weights)
    token_weights = np.take_along_axis(weights, data.bucket, axis=1) * data.is_seen  # (n, N)
    mixed = [data.uniform]
    for k in range(n):
        mixed.append(token_weights[k] * data.estimate[k] + (1 - token_weights[k]) * mixed[-1])
    reach = (mixed[-1] > 0).astype(np.float64)  # (N,)  posterior probability of backing off to order k
    new_weights, visited = weights.copy(), np.zeros(weights.shape, dtype=bool)
    for k in reversed(range(n)):
        posterior = reach * token_weights[k] * data.estimate[k] / np.maximum(mixed[k + 1], np.finfo(float).tiny)
        trials = np.bincount(data.bucket[k], reach * data.is_seen[k], BUCKETS)
        visited[k] = trials > 0
        successes = np.bincount(data.bucket[k], posterior, BUCKETS)
        smoothed = (successes + PSEUDO_COUNT) / (trials + 2 * PSEUDO_COUNT)
        new_weights[k] = np.where(visited[k], smoothed, weights[k])
        reach = np.maximum(reach - posterior, 0)  # rounding must not make it negative
    return new_weights, visited


def _fill_unvisited(weights: Floats, visited: Mask) -> Floats:
    """Interpolate the λ of buckets without held-out tokens from their neighbours; unchanged if none has any."""
    at = np.flatnonzero(visited)
    return np.interp(np.arange(len(weights)), at, weights[at]) if len(at) else weights
