"""Estimate discounts from counts of counts n_r, the number of n-grams that occur r times."""

import warnings
from dataclasses import dataclass

import numpy as np

from chainrule.errors import ChainruleWarning
from chainrule.lm import Floats, Ids

FALLBACK = (0.5, 1.0, 1.5)
"""Default D1, D2, D3+ for texts whose counts of counts do not give valid discounts."""


def counts_of_counts(count: Ids, most: int) -> Ids:
    """Return n_0 … n_most; n_0 is not used.

    >>> counts_of_counts(np.array([1, 1, 2, 5, 0]), 3).tolist()
    [1, 2, 1, 0]
    """
    return np.bincount(count[count <= most], minlength=most + 1)


def absolute_discount(count: Ids, order: int) -> float:
    """D = n_1 / (n_1 + 2 n_2) (Ney, Essen & Kneser 1994)."""
    _, n1, n2 = (int(n) for n in counts_of_counts(count, 2))
    if n1 == 0 or n2 == 0:
        _warn(order, f"n1={n1}, n2={n2}", "the default discount 0.5")
        return FALLBACK[0]
    return n1 / (n1 + 2 * n2)


@dataclass(frozen=True, slots=True)
class Discounts:
    """Discounts of modified Kneser–Ney for counts of 1, 2, and 3 or more."""

    one: float
    two: float
    three: float

    def of(self, count: Ids) -> Floats:
        """Return D(c) for each count; D(0) = 0."""
        return np.array([0.0, self.one, self.two, self.three])[np.minimum(count, 3)]


def modified_discounts(count: Ids, order: int) -> Discounts:
    """D1, D2, D3+ (Chen & Goodman 1999, eq. 26): Y = n_1/(n_1+2n_2), D_r = r − (r+1) Y n_{r+1}/n_r."""
    n = [int(x) for x in counts_of_counts(count, 4)]
    if min(n[1:]) == 0:
        _warn(order, ", ".join(f"n{r}={n[r]}" for r in range(1, 5)), "default discounts 0.5, 1, 1.5")
        return Discounts(*FALLBACK)
    Y = n[1] / (n[1] + 2 * n[2])
    D = [r - (r + 1) * Y * n[r + 1] / n[r] for r in (1, 2, 3)]
    if not all(0 <= d <= r for r, d in enumerate(D, start=1)):
        _warn(order, f"D1, D2, D3+ come out as {D[0]:.3g}, {D[1]:.3g}, {D[2]:.3g}", "default discounts 0.5, 1, 1.5")
        return Discounts(*FALLBACK)
    return Discounts(*D)


def good_turing_ratios(count: Ids, order: int, most: int = 5) -> Floats:
    """Return the discount ratios d_0 … d_{most+1} of Katz (1987); counts above `most` are not discounted.

    c* = (c+1) n_{c+1}/n_c, A = (k+1) n_{k+1}/n_1, d_c = (c*/c − A)/(1 − A); d_c = 1 if c* ≥ c or d_c ∉ (0, 1).
    """
    n = counts_of_counts(count, most + 1).astype(np.float64)
    d = np.ones(most + 2)
    if n[1] == 0 or (most + 1) * n[most + 1] >= n[1]:
        _warn(order, f"n1={int(n[1])}, n{most + 1}={int(n[most + 1])}", "no discount")
        return d
    A = (most + 1) * n[most + 1] / n[1]
    for c in range(1, most + 1):
        expected = (c + 1) * n[c + 1] / n[c] if n[c] else 0.0
        ratio = (expected / c - A) / (1 - A)
        if expected < c and 0 < ratio < 1:
            d[c] = ratio
    if (d == 1).all():
        _warn(order, ", ".join(f"n{r}={int(n[r])}" for r in range(1, most + 2)), "no discount")
    return d


def _warn(order: int, why: str, used: str) -> None:
    warnings.warn(fallback_message(order, used, why), ChainruleWarning, stacklevel=2)


def fallback_message(order: int, used: str, why: str) -> str:
    """Return the warning for an order whose discounts cannot be estimated."""
    return f"order {order}: using {used}: discounts cannot be estimated from this text ({why})"
