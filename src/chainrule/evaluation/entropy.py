"""Entropy, cross-entropy, Kullback–Leibler divergence and perplexity of distributions, in bits."""

import numpy as np
from numpy.typing import ArrayLike

from chainrule.errors import InputError
from chainrule.lm import Floats


def entropy(p: ArrayLike) -> float:
    """H(p) = −Σ p log₂ p.

    >>> round(entropy([0.5, 0.3, 0.2]), 4)
    1.4855
    """
    return cross_entropy(p, p)


def cross_entropy(p: ArrayLike, q: ArrayLike) -> float:
    """H(p, q) = −Σ p log₂ q = H(p) + KL(p‖q); infinite if q = 0 and p > 0 for some outcome."""
    p_, q_ = _distribution(p, "p"), _distribution(q, "q")
    if p_.shape != q_.shape:
        raise InputError(f"p has {p_.size} outcomes and q has {q_.size}; they must have the same")
    is_possible = p_ > 0
    with np.errstate(divide="ignore"):
        return float(-(p_[is_possible] * np.log2(q_[is_possible])).sum())


def kl_divergence(p: ArrayLike, q: ArrayLike) -> float:
    """KL(p‖q) = H(p, q) − H(p) ≥ 0, up to rounding."""
    return cross_entropy(p, q) - entropy(p)


def perplexity(bits_per_token: float) -> float:
    """2^H, for H in bits.

    Ten equally likely digits:

    >>> round(perplexity(entropy([0.1] * 10)), 6)
    10.0
    """
    return float(np.exp2(bits_per_token))


def _distribution(p: ArrayLike, name: str) -> Floats:
    array = np.asarray(p, dtype=np.float64)
    if array.ndim != 1 or not np.all(array >= 0) or abs(array.sum() - 1) > 1e-6:
        raise InputError(f"{name} is not a distribution: its values must be ≥ 0 and sum to 1, not to {array.sum()}")
    return array
