"""Entropy pruning: leave out the n-grams that the model can best do without (Stolcke 1998).

An n-gram (h, w) that is left out gets α′(h) p(w | h′) instead of p(w | h), h′ being h without its first word.
What that costs is the divergence of the two models, D(p ‖ p′), and the perplexity grows by the factor exp(D).
Lives here: D of every n-gram, the choice, the new back-off weights. Not here: pruning by counts (estimate.py).
"""

from dataclasses import dataclass, replace

import numpy as np

from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram.rows import EPSILON, shorter_log_probs, suffixes
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class _Order:
    """What pruning knows of the n-grams of one order."""

    context: Ids  # (M,)  row of h one order down
    suffix: Ids  # (M,)  row of (h′, w) one order down, −1 where not stored
    log_p: Floats  # (M,)  log p(w | h)
    log_shorter: Floats  # (M,)  log p(w | h′)
    left: Floats  # (C,)  Σ p(v | h) over the words v that are not stored after h
    left_shorter: Floats  # (C,)  Σ p(v | h′) over the same words


def entropy_prune(
    tables: BackoffTables, vocabulary: Vocabulary, threshold: float, progress: Progress = silent
) -> BackoffTables:
    """Leave out every n-gram whose loss raises the perplexity by less than the factor 1 + `threshold`.

    From the highest order down; an n-gram that a longer one has as its context stays, and so does every word.
    The probabilities of what stays are as they were, the weights are such that all still sums to 1.
    """
    if threshold <= 0:
        return tables  # nothing costs less than nothing
    orders = _orders(tables, vocabulary.size, progress)
    kept = _choose(tables, orders, vocabulary, threshold)
    return _rebuild(tables, orders, kept, vocabulary.size)


def divergences(tables: BackoffTables, vocabulary: Vocabulary) -> list[Floats]:
    """D(p ‖ p′) of each n-gram of order 2, 3, … when it alone is left out, in nats."""
    orders = _orders(tables, vocabulary.size, silent)
    histories = _history_log_probs(tables, orders, vocabulary)
    return [_divergence(order, log_p_h) for order, log_p_h in zip(orders, histories, strict=True)]


def _orders(tables: BackoffTables, V: int, progress: Progress) -> list[_Order]:
    """Orders 2 to n."""
    orders: list[_Order] = []
    for n, suffix in enumerate(suffixes(tables.levels, V)[1:], start=2):
        progress("entropy pruning", n - 2, tables.order - 1)
        level, below = tables.levels[n - 1], tables.levels[n - 2]
        context = level.key // V
        log_shorter = shorter_log_probs(tables.levels, n, suffix, np.arange(len(level)), V)
        left_shorter = np.maximum(1 - np.bincount(context, np.exp(log_shorter), len(below)), 0)
        left = np.exp(below.log_backoff.astype(np.float64)) * left_shorter
        orders.append(_Order(context, suffix, level.log_prob.astype(np.float64), log_shorter, left, left_shorter))
    return orders


def _history_log_probs(tables: BackoffTables, orders: list[_Order], vocabulary: Vocabulary) -> list[Floats]:
    """log p(h) of the rows of orders 1 to n−1, by the chain rule: every beginning of a stored n-gram is stored."""
    first = tables.levels[0].log_prob.astype(np.float64)
    first[vocabulary.bos] = first[vocabulary.eos]  # a line begins as often as one ends
    found: list[Floats] = [first]
    for order in orders[:-1]:
        found.append(found[-1][order.context] + order.log_p)
    return found[: len(orders)]


def _divergence(order: _Order, log_p_h: Floats) -> Floats:
    """D = −p(h) { p(w | h) [log p(w | h′) + log α′ − log p(w | h)] + [log α′ − log α] Σ_{v not stored} p(v | h) }.

    α = left / left_shorter, and α′ the same with w among the words that are not stored.
    """
    h = order.context
    p, p_shorter = np.exp(order.log_p), np.exp(order.log_shorter)
    left, left_shorter = order.left[h], order.left_shorter[h]
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 · log 0 is 0
        log_new_weight = np.log(left + p) - np.log(left_shorter + p_shorter)
        of_word = p * (order.log_shorter + log_new_weight - order.log_p)
        of_others = left * (log_new_weight - (np.log(left) - np.log(left_shorter)))
    cost = np.where(p > 0, of_word, 0.0) + np.where(left > 0, of_others, 0.0)
    D = -np.exp(log_p_h[h]) * cost
    return np.asarray(np.maximum(np.nan_to_num(D, nan=0.0, posinf=np.inf), 0.0))  # below 0 by rounding alone


def _choose(tables: BackoffTables, orders: list[_Order], vocabulary: Vocabulary, threshold: float) -> list[Mask]:
    """Which rows of each order stay."""
    histories = _history_log_probs(tables, orders, vocabulary)
    kept: list[Mask] = []
    needed = np.zeros(len(tables.levels[-1]), dtype=bool)  # as the context of what stays one order up
    for order, log_p_h in zip(reversed(orders), reversed(histories), strict=True):
        # Where every word is stored after h, any one of them could go for nothing, but not all: they stay.
        is_full = order.left_shorter[order.context] <= EPSILON
        keep = needed | is_full | (np.expm1(_divergence(order, log_p_h)) >= threshold)
        kept.insert(0, keep)
        needed = np.zeros(len(log_p_h), dtype=bool)
        needed[order.context[keep]] = True
    return [np.ones(len(tables.levels[0]), dtype=bool), *kept]


def _rebuild(tables: BackoffTables, orders: list[_Order], kept: list[Mask], V: int) -> BackoffTables:
    """The kept rows numbered anew, with weights from the bottom up: those of order n need all below it."""
    levels = [tables.levels[0]]
    new_row: Ids = np.arange(V)  # of each row one order down, −1 where it is left out
    for n, (order, keep) in enumerate(zip(orders, kept[1:], strict=True), start=2):
        level = tables.levels[n - 1]
        key = new_row[order.context[keep]] * V + level.key[keep] % V
        levels.append(BackoffLevel(key, level.log_prob[keep], level.log_backoff[keep]))
        suffix = np.where(order.suffix[keep] >= 0, new_row[order.suffix[keep]], -1)
        log_shorter = shorter_log_probs(levels, n, suffix, np.arange(len(key)), V)
        levels[-2], levels[-1] = _reweigh(levels[-2], levels[-1], order, keep, new_row, log_shorter)
        new_row = np.where(keep, np.cumsum(keep) - 1, -1)
    return replace(tables, levels=tuple(levels))


def _reweigh(
    below: BackoffLevel, level: BackoffLevel, order: _Order, keep: Mask, new_row: Ids, log_shorter: Floats
) -> tuple[BackoffLevel, BackoffLevel]:
    """The contexts of `below` with weights that fit what is left of `level`; both as they come out.

    α(h) = Σ_{v not stored} p(v | h) / Σ_{v not stored} p(v | h′). A context of which nothing changed keeps
    its weight as it is.
    """
    C, size = len(new_row), len(below)
    at = new_row >= 0  # (C,)  contexts that are still there
    lost = np.bincount(order.context, np.exp(order.log_p) * ~keep, C)[at]
    is_changed = np.bincount(order.context[~keep], minlength=C)[at] > 0
    context = new_row[order.context[keep]]
    is_changed |= np.bincount(context, log_shorter != order.log_shorter[keep], size) > 0
    left = order.left[at] + lost
    left_shorter = 1 - np.bincount(context, np.exp(log_shorter), size)
    has_heirs = left_shorter > EPSILON
    with np.errstate(divide="ignore"):
        weight = np.log(left / np.where(has_heirs, left_shorter, 1))
        # Nobody to give the rest to: those that stay share it.
        surplus = np.where(is_changed & ~has_heirs, -np.log(np.maximum(1 - left, EPSILON)), 0.0)
    weight[np.bincount(context, minlength=size) == 0] = 0.0  # no context any more
    log_backoff = np.where(is_changed & has_heirs, weight, below.log_backoff).astype(np.float32)
    log_prob = (level.log_prob + surplus[context]).astype(np.float32)
    return (
        BackoffLevel(below.key, below.log_prob, log_backoff),
        BackoffLevel(level.key, log_prob, level.log_backoff),
    )
