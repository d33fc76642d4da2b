"""Jelinek–Mercer weights by expectation maximisation on held-out text.

p_k(w | h) = λ c(h, w)/c(h) + (1 − λ) p_{k−1}(w | shorter h), down to the uniform distribution; λ is one number
for each order, or one for each order and bucket of c(h). A context never seen has λ = 0.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Context, Floats, Ids, Mask
from chainrule.ngram.counts import Counts, with_starts
from chainrule.ngram.smoothing import raw
from chainrule.ngram.tables import find, take
from chainrule.progress import Progress, silent

BUCKETS = 24
"""Buckets of c(h) by powers of two: 1, 2–3, 4–7, …"""

DOUBT = 0.01
"""Tokens that are thought to have gone either way: no λ is 0 or 1, and nothing becomes impossible."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """For each order (n, N): the maximum-likelihood estimate of each held-out token, and its bucket."""

    estimate: Floats
    bucket: Ids
    is_seen: Mask  # the context was counted
    uniform: Floats  # (N,)


def learn(
    counts: Counts,
    held_out: Ids,
    context: Context,
    is_bucketed: bool,
    iterations: int = 500,
    progress: Progress = silent,
) -> Floats:
    """λ for each order and bucket, (n, BUCKETS), that makes `held_out` most probable."""
    data = _look_up(counts, held_out, context, is_bucketed)
    weights = np.full((counts.order, BUCKETS), 0.5)
    visited = np.zeros(weights.shape, dtype=bool)
    for i in range(iterations):
        progress("Jelinek-Mercer weights", i + 1, iterations)
        before = weights.copy()
        weights, visited = _improve(weights, data)
        if np.abs(weights - before).max() < 1e-6:
            break
    return np.stack([_fill(w, v) for w, v in zip(weights, visited, strict=True)])


def spread(counts: Counts, weights: Floats, is_bucketed: bool) -> list[Floats]:
    """λ of every context of every order."""
    return [
        weights[k][_bucket(seen.context_totals, is_bucketed)] * (seen.context_totals > 0)
        for k, seen in enumerate(raw(counts))
    ]


def _bucket(total: Floats, is_bucketed: bool) -> Ids:
    """0 for a total of 1, 1 for 2 and 3, 2 for 4 to 7, …; 0 for all where there are no buckets."""
    if not is_bucketed:
        return np.zeros(len(total), dtype=np.int64)
    return np.minimum(np.log2(np.maximum(total, 1)).astype(np.int64), BUCKETS - 1)


def _look_up(counts: Counts, held_out: Ids, context: Context, is_bucketed: bool) -> HeldOut:
    vocabulary = counts.vocabulary
    tokens = with_starts(held_out.astype(np.int64), vocabulary, context)
    is_predicted = tokens != vocabulary.bos
    before = np.zeros(len(tokens), dtype=np.int64)  # row of the context: the empty one at order 1
    estimates, buckets, seens = [], [], []
    for level, seen in zip(counts.levels, raw(counts), strict=True):
        row = find(level.context * vocabulary.size + level.word, before, tokens, vocabulary.size)
        total = take(seen.context_totals, before, np.zeros(len(before)))[is_predicted]
        count = take(level.count.astype(np.float64), row, np.zeros(len(row)))[is_predicted]
        estimates.append(count / np.maximum(total, 1))
        buckets.append(_bucket(total, is_bucketed))
        seens.append(total > 0)
        before = np.concatenate([[-1], row[:-1]])
    uniform = vocabulary.predictable[tokens[is_predicted]] / vocabulary.predictable.sum()
    return HeldOut(np.stack(estimates), np.stack(buckets), np.stack(seens), uniform)


def _improve(weights: Floats, data: HeldOut) -> tuple[Floats, Mask]:
    """One step of EM; also which λ some token had a say in."""
    order = len(weights)
    used = np.take_along_axis(weights, data.bucket, axis=1) * data.is_seen  # (n, N)
    mixed = [data.uniform]
    for k in range(order):
        mixed.append(used[k] * data.estimate[k] + (1 - used[k]) * mixed[-1])
    reached = (mixed[-1] > 0).astype(np.float64)  # how surely the choice comes down to order k
    better, visited = weights.copy(), np.zeros(weights.shape, dtype=bool)
    for k in reversed(range(order)):
        chosen = reached * used[k] * data.estimate[k] / np.maximum(mixed[k + 1], np.finfo(float).tiny)
        asked = np.bincount(data.bucket[k], reached * data.is_seen[k], BUCKETS)
        visited[k] = asked > 0
        given = np.bincount(data.bucket[k], chosen, BUCKETS)
        better[k] = np.where(visited[k], (given + DOUBT) / (asked + 2 * DOUBT), weights[k])
        reached = np.maximum(reached - chosen, 0)  # rounding must not make it negative
    return better, visited


def _fill(weights: Floats, visited: Mask) -> Floats:
    """A bucket the held-out text never met takes its neighbours' λ; 0.5 where none was met."""
    at = np.flatnonzero(visited)
    return np.interp(np.arange(len(weights)), at, weights[at]) if len(at) else weights
