"""The interpolated smoothings, one function each: how much of p(w | h) rests on (h, w) itself.

Every one of them is p(w | h) = share(h, w) + γ(h) · p(w | shorter h), with γ(h) = 1 − Σ_w share(h, w) and the
uniform distribution below order 1. A function here gives `share` for all n-grams of one order;
`estimate.py` does the rest. c is the count, c(h) = Σ_w c(h, w).
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats, Ids, Mask
from chainrule.ngram.counts import Counts, Level
from chainrule.ngram.discounts import Discounts


@dataclass(frozen=True, slots=True)
class Seen:
    """The n-grams of one order with the counts a method works on, raw or of continuations."""

    order: int  # n
    context: Ids  # (M,)  row of h one order down
    count: Ids  # (M,)  c(h, w)
    begins: Mask  # (M,)  h begins with <s>
    contexts: int  # how many rows there are one order down

    @property
    def total(self) -> Floats:
        """(M,) c(h) of each n-gram's context, and 1 where that is 0."""
        return np.asarray(np.maximum(self.context_totals, 1)[self.context])

    @property
    def context_totals(self) -> Floats:
        """(C,) c(h) of every context."""
        return np.bincount(self.context, self.count, self.contexts).astype(np.float64)

    @property
    def types(self) -> Floats:
        """(M,) how many different words follow each n-gram's context."""
        return np.asarray(np.bincount(self.context, self.count > 0, self.contexts)[self.context])


def raw(counts: Counts) -> list[Seen]:
    """Every order with the counts as they are."""
    return [_seen(counts, k, level.count) for k, level in enumerate(counts.levels)]


def continued(counts: Counts) -> list[Seen]:
    """Every order with continuation counts below the top one."""
    above = [*counts.levels[1:], None]
    return [_seen(counts, k, continuation_counts(level, above[k])) for k, level in enumerate(counts.levels)]


def _seen(counts: Counts, k: int, count: Ids) -> Seen:
    level = counts.levels[k]
    return Seen(k + 1, level.context, count, level.begins, len(counts.levels[k - 1]) if k else 1)


def maximum_likelihood(seen: Seen) -> Floats:
    """The relative frequency, c / c(h)."""
    return np.asarray(seen.count / seen.total)


def additive(seen: Seen, k: float, predictable: int, is_top: bool) -> Floats:
    """(c + k) / (c(h) + kV) = c / (c(h) + kV) + γ(h)/V: the order below is uniform, so it takes no share."""
    share = seen.count / (seen.total + k * predictable)
    return np.where(is_top | seen.begins, share, 0.0)


def witten_bell(seen: Seen) -> Floats:
    """λ c / c(h), λ = c(h) / (c(h) + types after h) (Witten & Bell 1991, method C)."""
    return np.asarray(seen.count / (seen.total + seen.types))


def absolute(seen: Seen, discount: float) -> Floats:
    """max(c − D, 0) / c(h) (Ney, Essen & Kneser 1994); Kneser–Ney is the same on continuation counts."""
    return np.asarray(np.maximum(seen.count - discount, 0) / seen.total)


def modified_kneser_ney(seen: Seen, discounts: Discounts) -> Floats:
    """(c − D(c)) / c(h), D(c) being D1, D2 or D3+ (Chen & Goodman 1999, eq. 25)."""
    return np.asarray(np.maximum(seen.count - discounts.of(seen.count), 0) / seen.total)


def continuation_counts(level: Level, above: Level | None) -> Ids:
    """N₁₊(• w_1…w_n): how many different words stand before it (Kneser & Ney 1995).

    The top order keeps its counts, and so does what begins with `<s>`: nothing stands before that.
    """
    if above is None:
        return level.count
    return np.where(level.begins, level.count, np.bincount(above.suffix, minlength=len(level)))
