"""Static interpolation of back-off models into a single model, as in SRILM.

The result stores every n-gram of any component with p(w | h) = Σ_i λ_i p_i(w | h), which is exactly the mixture.
For other n-grams the mixture is Σ_i λ_i α_i(h) p_i(w | h′), which in general is not a product of one weight and a
mixed lower-order probability, so the single model only approximates it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids
from chainrule.ngram.tables import (
    EPSILON,
    BackoffLevel,
    BackoffTables,
    expand_rows,
    find_ngrams,
    score_ngrams,
    take_or_default,
)
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class _Component:
    """One component model evaluated on the union of n-grams of one order."""

    row: Ids  # (M_i,)  row in the union of each of the component's n-grams
    log_prob: Floats  # (M,)  log p_i(w | h) of every n-gram of the union
    log_backoff: Floats  # (M,)  log α_i of every n-gram as a context, 0 if the component does not store it
    unseen_mass: Floats  # (C,)  Σ p_i(w | h) over the words w that are not in the union after the context h


def interpolate(
    models: Sequence[BackoffTables], weights: Sequence[float], size: int, progress: Progress = silent
) -> BackoffTables:
    """Interpolate normalized models over the same V = `size` ids; `weights` sum to 1."""
    weighted = [(tables, weight) for tables, weight in zip(models, weights, strict=True) if weight > 0]
    components, lambdas = [tables for tables, _ in weighted], np.array([weight for _, weight in weighted])
    order = max(tables.order for tables in components)
    parts = [_unigrams(tables) for tables in components]
    levels = [_level(np.arange(size), parts, lambdas)]
    suffix: Ids = np.zeros(size, dtype=np.int64)
    for n in range(2, order + 1):
        progress("interpolating", n - 2, order - 1)
        keys = [_keys(tables, n, part, size) for tables, part in zip(components, parts, strict=True)]
        key = np.unique(np.concatenate(keys))
        context, word = np.divmod(key, size)
        suffix = word if n == 2 else find_ngrams(levels[-1].key, suffix[context], word, size)
        union = [*levels, BackoffLevel(key, np.zeros(0), np.zeros(0))]
        words = expand_rows(union, n, np.flatnonzero(suffix < 0), size)  # n-grams whose suffix is not in the union
        parts = [
            _extend(tables, n, part, np.searchsorted(key, component_key), context, suffix, words)
            for tables, part, component_key in zip(components, parts, keys, strict=True)
        ]
        level = _level(key, parts, lambdas)
        log_lower = take_or_default(levels[-1].log_prob, suffix, np.zeros(len(key)))
        log_lower[suffix < 0] = score_ngrams(levels, words[:, 1:], size)
        mass = np.asarray(sum(weight * part.unseen_mass for part, weight in zip(parts, lambdas, strict=True)))
        levels[-1] = _set_backoff(levels[-1], mass, context, log_lower)
        levels.append(level)
    progress("interpolating", order - 1, order - 1)
    return BackoffTables(tuple(_to_float32(level) for level in levels))


def _unigrams(tables: BackoffTables) -> _Component:
    level = tables.levels[0]
    unseen_mass = np.zeros(1)  # every word is in the union after the empty context
    log_prob, log_backoff = level.log_prob.astype(np.float64), level.log_backoff.astype(np.float64)
    return _Component(level.key, log_prob, log_backoff, unseen_mass)


def _keys(tables: BackoffTables, n: int, below: _Component, size: int) -> Ids:
    """Return the keys of the component's n-grams of order n, with context rows of the union."""
    if n > tables.order:
        return np.zeros(0, dtype=np.int64)
    context, word = np.divmod(tables.levels[n - 1].key, size)
    return np.asarray(below.row[context] * size + word)


def _extend(
    tables: BackoffTables, n: int, below: _Component, row: Ids, context: Ids, suffix: Ids, words: Ids
) -> _Component:
    """Evaluate the component on the next order: the stored p_i, or α_i(h) p_i(w | h′)."""
    log_lower = below.log_prob[suffix]
    log_lower[suffix < 0] = score_ngrams(tables.levels, words[:, 1:], len(tables.levels[0]))
    log_prob = np.asarray(below.log_backoff[context] + log_lower)
    lower_mass = 1 - np.bincount(context, np.exp(log_lower), len(below.log_prob))
    log_backoff = np.zeros(len(context))
    if n <= tables.order:
        log_prob[row] = tables.levels[n - 1].log_prob
    if n < tables.order:
        log_backoff[row] = tables.levels[n - 1].log_backoff
    return _Component(row, log_prob, log_backoff, np.exp(below.log_backoff) * np.maximum(lower_mass, 0))


def _level(key: Ids, parts: Sequence[_Component], weights: Floats) -> BackoffLevel:
    """Return Σ_i λ_i p_i, and Σ_i λ_i α_i as provisional back-off weights."""
    log_prob = _log_mix([part.log_prob for part in parts], weights)
    return BackoffLevel(key, log_prob, _log_mix([part.log_backoff for part in parts], weights))


def _log_mix(logs: Sequence[Floats], weights: Floats) -> Floats:
    """log Σ_i λ_i exp(x_i)."""
    mixed = np.full(len(logs[0]), -np.inf)
    for x, weight in zip(logs, weights, strict=True):
        mixed = np.logaddexp(mixed, x + np.log(weight))
    return mixed


def _set_backoff(below: BackoffLevel, mass: Floats, context: Ids, log_lower: Floats) -> BackoffLevel:
    """Set α(h) = Σ p(w | h) / Σ p(w | h′) over the words not stored after h; 1 if no word is stored after h."""
    C = len(below)
    lower_mass = 1 - np.bincount(context, np.exp(log_lower), C)
    has_unseen = lower_mass > EPSILON
    with np.errstate(divide="ignore"):  # log 0 = −inf is intended
        weight = np.log(mass) - np.log(np.where(has_unseen, lower_mass, 1))
    log_backoff = np.where(has_unseen, weight, below.log_backoff)
    log_backoff[np.bincount(context, minlength=C) == 0] = 0.0
    return BackoffLevel(below.key, below.log_prob, log_backoff)


def _to_float32(level: BackoffLevel) -> BackoffLevel:
    return BackoffLevel(level.key, level.log_prob.astype(np.float32), level.log_backoff.astype(np.float32))
