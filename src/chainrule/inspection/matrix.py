"""The matrices that carry a recurrent state from step to step: eigenvalues, singular values and what they bound.

Lives here: the numbers of a matrix and what they say in words. Not here: a network's own matrices
(neural/matrices.py), pictures (matrix_plot.py). Letters: D width, k steps.

A gradient that goes k steps back through h_t = φ(R h_{t−1} + …) is multiplied by k Jacobians diag(φ′) R, so its
length changes by at most (σ_max · γ)^k, γ = max φ′ (Pascanu et al. 2013). That bounds what returns along the states
of one layer. Below the top layer errors return through the layers above as well, and with attention through the
past it looks at: there the product is no bound.
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
    other_ways: str = ""  # what errors come back through beside this layer's own states: "the layers above it"
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

    @property
    def is_bound(self) -> bool:
        """Whether powers of the gain bound all that comes back: an Elman layer whose states are the only way."""
        return self.gain is not None and not self.other_ways


def bound(gain: float, lags: int) -> Floats:
    """(lags + 1,) at most this part of a gradient is left k steps back: gain^k, finite."""
    with np.errstate(over="ignore", under="ignore"):
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
    if not recurrence.is_bound:
        return (
            f"{begin}: along this layer alone {_product(gain)}; errors come back through {recurrence.other_ways} "
            "as well, which this does not bound"
        )
    return f"{begin}: {gain_in_words(gain)}"


def gain_in_words(gain: float) -> str:
    """What σ_max · max φ′ does to a signal that has no other way back.

    >>> gain_in_words(1.000001)
    'σ_max · max φ′ = 1.00, on the circle: the signal is not forced to vanish and cannot explode, it drifts at most'
    """
    if abs(gain - 1) <= ON_THE_CIRCLE:
        return (
            f"{_product(gain)}, on the circle: the signal is not forced to vanish and cannot explode, "
            "it drifts at most"
        )
    if gain < 1:
        left = f"after 10 tokens at most {gain**10:.2g} of it is left"
        return f"{_product(gain)} < 1 forces the signal to vanish, {left}"
    return f"{_product(gain)} > 1 permits the signal to explode, and does not force it"


def _product(gain: float) -> str:
    """Two digits after the point, and more where these would read as 1 though it is not."""
    shown = f"{gain:.2f}"
    return f"σ_max · max φ′ = {f'{gain:.6g}' if shown == '1.00' and abs(gain - 1) > ON_THE_CIRCLE else shown}"
