"""Entropy pruning of back-off models (Stolcke 1998).

Removing an n-gram (h, w) replaces p(w | h) by α′(h) p(w | h′), where h′ is h without its first word. The cost is
the divergence of the two models, D(p ‖ p′): perplexity grows by the factor exp(D).
"""

from dataclasses import dataclass, replace

import numpy as np

from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram.tables import EPSILON, BackoffLevel, BackoffTables, find_suffixes, lower_order_log_probs
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class _Order:
    """N-grams of one order: M n-grams over C contexts."""

    context: Ids  # (M,)  row of h in the next lower order
    suffix: Ids  # (M,)  row of (h′, w) in the next lower order, −1 if not stored
    log_p: Floats  # (M,)  log p(w | h)
    log_lower: Floats  # (M,)  log p(w | h′)
    unseen_mass: Floats  # (C,)  Σ p(v | h) over the words v that are not stored after h
    lower_unseen_mass: Floats  # (C,)  Σ p(v | h′) over the same words


def entropy_prune(
    tables: BackoffTables, vocabulary: Vocabulary, threshold: float, progress: Progress = silent
) -> BackoffTables:
    """Remove every n-gram whose removal multiplies perplexity by less than 1 + `threshold`.

    Orders are pruned from the highest down. Unigrams and contexts of remaining n-grams are never removed. The
    probabilities of the remaining n-grams do not change; back-off weights are recomputed so that each context still
    sums to 1.
    """
    if threshold <= 0:
        return tables
    orders = _orders(tables, vocabulary.size, progress)
    masks = _choose(tables, orders, vocabulary, threshold)
    return _rebuild(tables, orders, masks, vocabulary.size)


def divergences(tables: BackoffTables, vocabulary: Vocabulary) -> list[Floats]:
    """Return D(p ‖ p′) in nats of removing each n-gram alone, one array for each order from 2 on."""
    orders = _orders(tables, vocabulary.size, silent)
    histories = _history_log_probs(tables, orders, vocabulary)
    return [_divergence(order, log_p_h) for order, log_p_h in zip(orders, histories, strict=True)]


def _orders(tables: BackoffTables, V: int, progress: Progress) -> list[_Order]:
    """Return the n-grams of orders 2 to n with their pruning quantities."""
    orders: list[_Order] = []
    for n, suffix in enumerate(find_suffixes(tables.levels, V)[1:], start=2):
        progress("entropy pruning", n - 2, tables.order - 1)
        level, below = tables.levels[n - 1], tables.levels[n - 2]
        context = level.key // V
        log_lower = lower_order_log_probs(tables.levels, n, suffix, np.arange(len(level)), V)
        lower_unseen_mass = np.maximum(1 - np.bincount(context, np.exp(log_lower), len(below)), 0)
        unseen_mass = np.exp(below.log_backoff.astype(np.float64)) * lower_unseen_mass
        orders.append(
            _Order(context, suffix, level.log_prob.astype(np.float64), log_lower, unseen_mass, lower_unseen_mass)
        )
    return orders


def _history_log_probs(tables: BackoffTables, orders: list[_Order], vocabulary: Vocabulary) -> list[Floats]:
    """Return log p(h) of the rows of orders 1 to n−1 by the chain rule; all prefixes of n-grams are stored."""
    first = tables.levels[0].log_prob.astype(np.float64)
    first[vocabulary.bos] = first[vocabulary.eos]  # there are as many line starts as line ends
    log_p_h: list[Floats] = [first]
    for order in orders[:-1]:
        log_p_h.append(log_p_h[-1][order.context] + order.log_p)
    return log_p_h[: len(orders)]


def _divergence(order: _Order, log_p_h: Floats) -> Floats:
    """D = −p(h) { p(w | h) [log p(w | h′) + log α′ − log p(w | h)] + [log α′ − log α] Σ_{v not stored} p(v | h) }.

    α = unseen_mass / lower_unseen_mass; α′ is the same ratio with w counted as not stored.
    """
    h = order.context
    p, p_shorter = np.exp(order.log_p), np.exp(order.log_lower)
    unseen_mass, lower_unseen_mass = order.unseen_mass[h], order.lower_unseen_mass[h]
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 · log 0 is 0
        log_new_weight = np.log(unseen_mass + p) - np.log(lower_unseen_mass + p_shorter)
        word_term = p * (order.log_lower + log_new_weight - order.log_p)
        unseen_term = unseen_mass * (log_new_weight - (np.log(unseen_mass) - np.log(lower_unseen_mass)))
    cost = np.where(p > 0, word_term, 0.0) + np.where(unseen_mass > 0, unseen_term, 0.0)
    D = -np.exp(log_p_h[h]) * cost
    return np.asarray(np.maximum(np.nan_to_num(D, nan=0.0, posinf=np.inf), 0.0))  # negative only by rounding


def _choose(tables: BackoffTables, orders: list[_Order], vocabulary: Vocabulary, threshold: float) -> list[Mask]:
    """Return the mask of remaining rows of each order."""
    histories = _history_log_probs(tables, orders, vocabulary)
    masks: list[Mask] = []
    is_context = np.zeros(len(tables.levels[-1]), dtype=bool)  # row is the context of a remaining longer n-gram
    for order, log_p_h in zip(reversed(orders), reversed(histories), strict=True):
        # If every word is stored after h, removing any single one is free but removing all is not: keep them all.
        is_full = order.lower_unseen_mass[order.context] <= EPSILON
        keep = is_context | is_full | (np.expm1(_divergence(order, log_p_h)) >= threshold)
        masks.insert(0, keep)
        is_context = np.zeros(len(log_p_h), dtype=bool)
        is_context[order.context[keep]] = True
    return [np.ones(len(tables.levels[0]), dtype=bool), *masks]


def _rebuild(tables: BackoffTables, orders: list[_Order], masks: list[Mask], V: int) -> BackoffTables:
    """Renumber the remaining rows and recompute back-off weights from the lowest order up."""
    levels = [tables.levels[0]]
    new_row: Ids = np.arange(V)  # new row of each row of the next lower order, −1 if removed
    for n, (order, keep) in enumerate(zip(orders, masks[1:], strict=True), start=2):
        level = tables.levels[n - 1]
        key = new_row[order.context[keep]] * V + level.key[keep] % V
        levels.append(BackoffLevel(key, level.log_prob[keep], level.log_backoff[keep]))
        suffix = np.where(order.suffix[keep] >= 0, new_row[order.suffix[keep]], -1)
        log_lower = lower_order_log_probs(levels, n, suffix, np.arange(len(key)), V)
        levels[-2], levels[-1] = _update_backoff(levels[-2], levels[-1], order, keep, new_row, log_lower)
        new_row = np.where(keep, np.cumsum(keep) - 1, -1)
    return replace(tables, levels=tuple(levels))


def _update_backoff(
    below: BackoffLevel, level: BackoffLevel, order: _Order, keep: Mask, new_row: Ids, log_lower: Floats
) -> tuple[BackoffLevel, BackoffLevel]:
    """Return `below` with new back-off weights for the remaining n-grams of `level`, and `level` itself.

    α(h) = Σ_{v not stored} p(v | h) / Σ_{v not stored} p(v | h′). Weights of unchanged contexts stay the same.
    """
    C, size = len(new_row), len(below)
    is_present = new_row >= 0  # (C,)  contexts that were not removed
    removed_mass = np.bincount(order.context, np.exp(order.log_p) * ~keep, C)[is_present]
    is_changed = np.bincount(order.context[~keep], minlength=C)[is_present] > 0
    context = new_row[order.context[keep]]
    is_changed |= np.bincount(context, log_lower != order.log_lower[keep], size) > 0
    unseen_mass = order.unseen_mass[is_present] + removed_mass
    lower_unseen_mass = 1 - np.bincount(context, np.exp(log_lower), size)
    has_unseen = lower_unseen_mass > EPSILON
    with np.errstate(divide="ignore"):
        weight = np.log(unseen_mass / np.where(has_unseen, lower_unseen_mass, 1))
        # Without unseen words, the remaining n-grams are scaled up to sum to 1.
        surplus = np.where(is_changed & ~has_unseen, -np.log(np.maximum(1 - unseen_mass, EPSILON)), 0.0)
    weight[np.bincount(context, minlength=size) == 0] = 0.0  # no longer a context
    log_backoff = np.where(is_changed & has_unseen, weight, below.log_backoff).astype(np.float32)
    log_prob = (level.log_prob + surplus[context]).astype(np.float32)
    return (
        BackoffLevel(below.key, below.log_prob, log_backoff),
        BackoffLevel(level.key, log_prob, level.log_backoff),
    )
