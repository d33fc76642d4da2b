"""Interpolation into one model: a mixture of back-off models as a single one (the static mix of SRILM).

It stores every n-gram that some component stores, with p(w | h) = Σ_i λ_i p_i(w | h), and one weight for each
context. For these n-grams it is the mixture itself. Elsewhere the mixture gives Σ_i λ_i α_i(h) p_i(w | h′), which
is no product of a weight and a mixed probability unless the components agree, so that it only comes close.
Not here: finding λ (mixture.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids
from chainrule.ngram.rows import EPSILON, log_probs, spell
from chainrule.ngram.tables import BackoffLevel, BackoffTables, find, take
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class _Part:
    """One component over the n-grams of one order of the union."""

    row: Ids  # (M_i,)  where the component's own n-grams of this order stand in the union
    log_prob: Floats  # (M,)  log p_i(w | h) of every n-gram of the union
    log_backoff: Floats  # (M,)  log α_i of every n-gram as a context, 0 where the component never saw it
    left: Floats  # (C,)  Σ p_i(w | h) over the words that are not in the union after a context one order down


def interpolate(
    models: Sequence[BackoffTables], weights: Sequence[float], size: int, progress: Progress = silent
) -> BackoffTables:
    """One model of normalised components over the same V = `size` ids; `weights` sum to 1."""
    chosen = [(tables, weight) for tables, weight in zip(models, weights, strict=True) if weight > 0]
    components, kept = [tables for tables, _ in chosen], np.array([weight for _, weight in chosen])
    order = max(tables.order for tables in components)
    parts = [_unigrams(tables) for tables in components]
    levels = [_level(np.arange(size), parts, kept)]
    suffix: Ids = np.zeros(size, dtype=np.int64)
    for n in range(2, order + 1):
        progress("interpolating", n - 2, order - 1)
        keys = [_keys(tables, n, part, size) for tables, part in zip(components, parts, strict=True)]
        key = np.unique(np.concatenate(keys))
        context, word = np.divmod(key, size)
        suffix = word if n == 2 else find(levels[-1].key, suffix[context], word, size)
        union = [*levels, BackoffLevel(key, np.zeros(0), np.zeros(0))]
        spelled = spell(union, n, np.flatnonzero(suffix < 0), size)  # those without a suffix in the union
        parts = [
            _extend(tables, n, part, np.searchsorted(key, own), context, suffix, spelled)
            for tables, part, own in zip(components, parts, keys, strict=True)
        ]
        level = _level(key, parts, kept)
        log_shorter = take(levels[-1].log_prob, suffix, np.zeros(len(key)))
        log_shorter[suffix < 0] = log_probs(levels, spelled[:, 1:], size)
        left = np.asarray(sum(weight * part.left for part, weight in zip(parts, kept, strict=True)))
        levels[-1] = _weigh(levels[-1], left, context, log_shorter)
        levels.append(level)
    progress("interpolating", order - 1, order - 1)
    return BackoffTables(tuple(_single(level) for level in levels))


def _unigrams(tables: BackoffTables) -> _Part:
    level = tables.levels[0]
    whole = np.zeros(1)  # every word is in the union after the empty context
    return _Part(level.key, level.log_prob.astype(np.float64), level.log_backoff.astype(np.float64), whole)


def _keys(tables: BackoffTables, n: int, below: _Part, size: int) -> Ids:
    """The component's n-grams of order n by their context's row in the union."""
    if n > tables.order:
        return np.zeros(0, dtype=np.int64)
    context, word = np.divmod(tables.levels[n - 1].key, size)
    return np.asarray(below.row[context] * size + word)


def _extend(
    tables: BackoffTables, n: int, below: _Part, row: Ids, context: Ids, suffix: Ids, spelled: Ids
) -> _Part:
    """One order up: p_i as stored, or α_i(h) p_i(w | h′), which the order below has ready."""
    log_shorter = below.log_prob[suffix]
    log_shorter[suffix < 0] = log_probs(tables.levels, spelled[:, 1:], len(tables.levels[0]))
    log_prob = np.asarray(below.log_backoff[context] + log_shorter)
    left_shorter = 1 - np.bincount(context, np.exp(log_shorter), len(below.log_prob))
    log_backoff = np.zeros(len(context))
    if n <= tables.order:
        log_prob[row] = tables.levels[n - 1].log_prob
    if n < tables.order:
        log_backoff[row] = tables.levels[n - 1].log_backoff
    return _Part(row, log_prob, log_backoff, np.exp(below.log_backoff) * np.maximum(left_shorter, 0))


def _level(key: Ids, parts: Sequence[_Part], weights: Floats) -> BackoffLevel:
    """Σ_i λ_i p_i, and Σ_i λ_i α_i for the contexts that `_weigh` finds nothing better for."""
    log_prob = _mix([part.log_prob for part in parts], weights)
    return BackoffLevel(key, log_prob, _mix([part.log_backoff for part in parts], weights))


def _mix(logs: Sequence[Floats], weights: Floats) -> Floats:
    """log Σ_i λ_i exp(x_i)."""
    mixed = np.full(len(logs[0]), -np.inf)
    for x, weight in zip(logs, weights, strict=True):
        mixed = np.logaddexp(mixed, x + np.log(weight))
    return mixed


def _weigh(below: BackoffLevel, left: Floats, context: Ids, log_shorter: Floats) -> BackoffLevel:
    """α(h) = Σ p(w | h) / Σ p(w | h′), the sums over what is not stored after h; 1 where nothing is stored."""
    C = len(below)
    left_shorter = 1 - np.bincount(context, np.exp(log_shorter), C)
    is_open = left_shorter > EPSILON
    with np.errstate(divide="ignore"):  # log 0 = −inf is meant
        weight = np.log(left) - np.log(np.where(is_open, left_shorter, 1))
    log_backoff = np.where(is_open, weight, below.log_backoff)
    log_backoff[np.bincount(context, minlength=C) == 0] = 0.0
    return BackoffLevel(below.key, below.log_prob, log_backoff)


def _single(level: BackoffLevel) -> BackoffLevel:
    return BackoffLevel(level.key, level.log_prob.astype(np.float32), level.log_backoff.astype(np.float32))
