"""The matrices that carry a recurrent state from step to step: eigenvalues, singular values and what they bound.

Lives here: the numbers of a matrix and what they say in words. Not here: a network's own matrices
(neural/matrices.py), pictures (matrix_plot.py). Letters: D width, k steps.

A gradient that goes k steps back through h_t = φ(R h_{t−1} + …) is multiplied by k Jacobians diag(φ′) R, so its
length changes by at most (σ_max · γ)^k, γ = max φ′ (Pascanu et al. 2013).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.lm import Floats

Complexes = NDArray[np.complexfloating[Any, Any]]

STEEPEST: Final[Mapping[str, float]] = {"tanh": 1.0, "relu": 1.0, "leaky": 1.0, "sigmoid": 0.25}
"""γ = max φ′ by the name of φ."""

GATES: Final[Mapping[str, str]] = {
    "": "state",
    "i": "input gate",
    "f": "forget gate",
    "g": "candidate",
    "o": "output gate",
    "r": "reset gate",
    "z": "update gate",
    "n": "candidate",
}
"""What the letters of a cell's matrices mean; an Elman layer has one matrix and no letter."""

ON_THE_CIRCLE: Final = 1e-5
"""Moduli as near to 1 as this are 1: weights are kept in single precision."""

CANDIDATES: Final = ("", "g", "n")
"""The matrix that new content comes through, in each kind of cell."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What a square matrix does to lengths: in one step at most, and in many."""

    eigenvalues: Complexes  # (D,)
    singular_values: Floats  # (D,) the largest first

    @property
    def radius(self) -> float:
        """Spectral radius: the growth a step in the long run, max |λ|."""
        return float(np.abs(self.eigenvalues).max())

    @property
    def norm(self) -> float:
        """σ_max: the growth of one step at most; never below the radius."""
        return float(self.singular_values[0])

    @property
    def outside(self) -> float:
        """The share of eigenvalues outside the unit circle: directions that grow."""
        return float((np.abs(self.eigenvalues) > 1 + ON_THE_CIRCLE).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The recurrent matrices of one layer."""

    layer: int  # the first is 1
    spectra: Mapping[str, Spectrum]  # by the letter of its gate; of an Elman layer "" alone
    nonlinearity: str = ""  # φ of an Elman layer; empty for gated cells
    drawn: Mapping[str, Spectrum] = field(default_factory=dict)  # first weights of the same width, by their name

    @property
    def width(self) -> int:
        """D."""
        return len(self.main.eigenvalues)

    @property
    def main(self) -> Spectrum:
        """Of the matrix that new content comes through."""
        return self.spectra[self.main_gate]

    @property
    def main_gate(self) -> str:
        """The letter of that matrix."""
        return next(gate for gate in self.spectra if gate in CANDIDATES)

    @property
    def gain(self) -> float | None:
        """σ_max · γ of an Elman layer; a gated cell has paths that this does not bound: None."""
        return self.main.norm * STEEPEST[self.nonlinearity] if self.nonlinearity else None


def spectrum(R: Floats) -> Spectrum:
    """Of a square matrix (D, D).

    >>> round(spectrum(np.array([[0.0, -2.0], [2.0, 0.0]])).radius, 6)
    2.0
    """
    R = np.asarray(R, dtype=np.float64)
    return Spectrum(np.linalg.eigvals(R).astype(np.complex128), np.linalg.svd(R, compute_uv=False))


def bound(gain: float, lags: int) -> Floats:
    """(lags + 1,) at most this part of a gradient is left k steps back: gain^k, finite."""
    with np.errstate(over="ignore"):
        found: Floats = np.minimum(gain ** np.arange(lags + 1, dtype=np.float64), np.finfo(np.float64).max)
    return found


def in_words(recurrence: Recurrence) -> str:
    """What the matrices of a layer let happen to a gradient."""
    main = recurrence.main
    measured = f"spectral radius {main.radius:.2f} and largest singular value {main.norm:.2f}"
    gain = recurrence.gain
    if gain is None:
        return (
            f"the candidate's recurrent matrix of layer {recurrence.layer} has {measured}; "
            "the path through the gates is not bound by it"
        )
    begin = f"the recurrent matrix of layer {recurrence.layer} has {measured}"
    product = f"σ_max · max φ′ = {gain:.2f}"
    if gain < 1:
        left = gain**10
        return (
            f"{begin}: {product} < 1 forces the signal to vanish, after 10 tokens at most {left:.2g} of it is left"
        )
    if gain > 1:
        return f"{begin}: {product} > 1 permits the signal to explode, and does not force it"
    return f"{begin}: {product}, so the signal cannot grow and need not vanish"
