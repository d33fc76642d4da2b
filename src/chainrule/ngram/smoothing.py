"""Discounted probabilities of the interpolated smoothing methods, one function per method.

Every method has the form p(w | h) = α(h, w) + γ(h) p(w | h′) with γ(h) = 1 − Σ_w α(h, w), where h′ is h without its
first word and the uniform distribution is the order below 1. Each function returns α for all n-grams of one order;
`estimate` interpolates. c is the count and c(h) = Σ_w c(h, w).
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids, Mask
from chainrule.ngram.counts import Counts, Level
from chainrule.ngram.discounts import Discounts


@dataclass(frozen=True, slots=True)
class OrderCounts:
    """Raw or continuation counts of the n-grams of one order."""

    n: int  # order
    context: Ids  # (M,)  row of h in the next lower order
    count: Ids  # (M,)  c(h, w)
    begins: Mask  # (M,)  h begins with <s>
    contexts: int  # C, number of rows of the next lower order

    @property
    def total(self) -> Floats:
        """max(c(h), 1) of each n-gram's context, (M,)."""
        return np.asarray(np.maximum(self.context_totals, 1)[self.context])

    @property
    def context_totals(self) -> Floats:
        """c(h) of every context, (C,)."""
        return np.bincount(self.context, self.count, self.contexts).astype(np.float64)

    @property
    def types(self) -> Floats:
        """N₁₊(h •), the number of distinct words after each n-gram's context, (M,)."""
        return np.asarray(np.bincount(self.context, self.count > 0, self.contexts)[self.context])


def raw_counts(counts: Counts) -> list[OrderCounts]:
    """Return the raw counts of every order."""
    return [_order_counts(counts, k, level.count) for k, level in enumerate(counts.levels)]


def kneser_ney_counts(counts: Counts) -> list[OrderCounts]:
    """Return raw counts for the highest order and continuation counts for the lower orders."""
    above = [*counts.levels[1:], None]
    return [_order_counts(counts, k, continuation_counts(level, above[k])) for k, level in enumerate(counts.levels)]


def _order_counts(counts: Counts, k: int, count: Ids) -> OrderCounts:
    level = counts.levels[k]
    return OrderCounts(k + 1, level.context, count, level.begins, len(counts.levels[k - 1]) if k else 1)


def maximum_likelihood(order: OrderCounts) -> Floats:
    """Relative frequency, c / c(h)."""
    return np.asarray(order.count / order.total)


def additive(order: OrderCounts, k: float, predictable: int, is_top: bool) -> Floats:
    """Additive smoothing, (c + k) / (c(h) + kV) = c / (c(h) + kV) + γ(h)/V.

    α is nonzero only for the top order and for the shorter contexts at the start of a line, so that these are
    interpolated with the uniform distribution.
    """
    alpha = order.count / (order.total + k * predictable)
    return np.where(is_top | order.begins, alpha, 0.0)


def witten_bell(order: OrderCounts) -> Floats:
    """λ c / c(h) with λ = c(h) / (c(h) + N₁₊(h •)) (Witten & Bell 1991, method C)."""
    return np.asarray(order.count / (order.total + order.types))


def absolute(order: OrderCounts, discount: float) -> Floats:
    """max(c − D, 0) / c(h) (Ney, Essen & Kneser 1994); Kneser–Ney is the same on continuation counts."""
    return np.asarray(np.maximum(order.count - discount, 0) / order.total)


def modified_kneser_ney(order: OrderCounts, discounts: Discounts) -> Floats:
    """(c − D(c)) / c(h), D(c) being D1, D2 or D3+ (Chen & Goodman 1999, eq. 25)."""
    return np.asarray(np.maximum(order.count - discounts.of(order.count), 0) / order.total)


def continuation_counts(level: Level, above: Level | None) -> Ids:
    """Return N₁₊(• w_1…w_n), the number of distinct words before each n-gram (Kneser & Ney 1995).

    The raw count is used for the top order and for n-grams that begin with `<s>`.
    """
    if above is None:
        return level.count
    return np.where(level.begins, level.count, np.bincount(above.suffix, minlength=len(level)))
