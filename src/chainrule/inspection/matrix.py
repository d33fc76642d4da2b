"""Recurrent weight matrices: eigenvalues, singular values, and the gradient bound they imply. D width, k steps.

A gradient going k steps back through h_t = φ(R h_{t−1} + …) is multiplied by k Jacobians diag(φ′) R, so its norm
changes by at most (σ_max · γ)^k, γ = max φ′ (Pascanu et al. 2013). The bound covers the path along the states of
one layer. Below the top layer, or with attention over past states, gradients also return along other paths, and
the product is not a bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.lm import Floats

Complexes = NDArray[np.complexfloating[Any, Any]]

MAX_SLOPE: Final[Mapping[str, float]] = {"tanh": 1.0, "relu": 1.0, "leaky": 1.0, "sigmoid": 0.25}
"""γ = max φ′ by the name of the activation φ."""

GATE_NAMES: Final[Mapping[str, str]] = {
    "": "state",
    "i": "input gate",
    "f": "forget gate",
    "g": "candidate",
    "o": "output gate",
    "r": "reset gate",
    "z": "update gate",
    "n": "candidate",
}
"""Names of the gates by letter; an Elman layer has one matrix and no letter."""

UNIT_TOLERANCE: Final = 1e-5
"""Moduli within this distance of 1 count as 1: weights are single precision."""

CANDIDATES: Final = ("", "g", "n")
"""The letter of the candidate matrix in each kind of cell."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Eigenvalues and singular values of a square matrix."""

    eigenvalues: Complexes  # (D,)
    singular_values: Floats  # (D,) descending

    @property
    def radius(self) -> float:
        """Spectral radius max |λ|: asymptotic growth per step."""
        return float(np.abs(self.eigenvalues).max())

    @property
    def norm(self) -> float:
        """Spectral norm σ_max: largest growth in one step, at least the spectral radius."""
        return float(self.singular_values[0])

    @property
    def outside(self) -> float:
        """Share of eigenvalues outside the unit circle."""
        return float((np.abs(self.eigenvalues) > 1 + UNIT_TOLERANCE).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The recurrent matrices of one layer."""

    layer: int  # the first is 1
    spectra: Mapping[str, Spectrum]  # by gate letter; "" for an Elman layer
    nonlinearity: str = ""  # φ of an Elman layer; empty for gated cells
    other_paths: str = ""  # other backward paths, such as "the layers above it"
    random_spectra: Mapping[str, Spectrum] = field(default_factory=dict)  # initializations of the same width

    @property
    def width(self) -> int:
        """D."""
        return len(self.main.eigenvalues)

    @property
    def main(self) -> Spectrum:
        """The spectrum of the candidate matrix."""
        return self.spectra[self.main_gate]

    @property
    def main_gate(self) -> str:
        """The letter of the candidate matrix."""
        return next(gate for gate in self.spectra if gate in CANDIDATES)

    @property
    def gain(self) -> float | None:
        """σ_max · γ of an Elman layer; None for gated cells, where it is not a bound."""
        return self.main.norm * MAX_SLOPE[self.nonlinearity] if self.nonlinearity else None

    @property
    def is_bound(self) -> bool:
        """Whether gain^k bounds the gradient: an Elman layer whose states are the only backward path."""
        return self.gain is not None and not self.other_paths


def gradient_bound(gain: float, lags: int) -> Floats:
    """Return the upper bound gain^k on the gradient k steps back, (lags + 1,), finite."""
    with np.errstate(over="ignore", under="ignore"):
        powers: Floats = np.minimum(gain ** np.arange(lags + 1, dtype=np.float64), np.finfo(np.float64).max)
    return powers


def describe(recurrence: Recurrence) -> str:
    """Describe what the matrices of a layer imply for the gradient."""
    main = recurrence.main
    measured = f"spectral radius {main.radius:.2f} and largest singular value {main.norm:.2f}"
    gain = recurrence.gain
    if gain is None:
        return (
            f"the candidate's recurrent matrix of layer {recurrence.layer} has {measured}; "
            "the path through the gates is not bounded by it"
        )
    clause = f"the recurrent matrix of layer {recurrence.layer} has {measured}"
    if not recurrence.is_bound:
        return (
            f"{clause}: along this layer alone {_product(gain)}; gradients also return through "
            f"{recurrence.other_paths}, which this does not bound"
        )
    return f"{clause}: {describe_gain(gain)}"


def describe_gain(gain: float) -> str:
    """Describe the effect of σ_max · max φ′ on a gradient without other backward paths.

    >>> describe_gain(1.000001)
    'σ_max · max φ′ = 1.00: the gradient need not vanish and cannot explode'
    """
    if abs(gain - 1) <= UNIT_TOLERANCE:
        return f"{_product(gain)}: the gradient need not vanish and cannot explode"
    if gain < 1:
        left = f"after 10 tokens at most {gain**10:.2g} of it is left"
        return f"{_product(gain)} < 1: the gradient must vanish, {left}"
    return f"{_product(gain)} > 1: the gradient can explode, but need not"


def _product(gain: float) -> str:
    """Format with two decimals, or more if that would hide a difference from 1."""
    shown = f"{gain:.2f}"
    return f"σ_max · max φ′ = {f'{gain:.6g}' if shown == '1.00' and abs(gain - 1) > UNIT_TOLERANCE else shown}"
