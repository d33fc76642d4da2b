"""What the probes measure, as NumPy arrays: gradient flow, recurrent matrices, gates and states, attention.

This module does not import torch, so that figures can be drawn without it.

Notation: L layers, P positions, K the largest lag, J lags with enough positions, N tokens, D width, H heads,
T queries, S keys, d head width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from chainrule.lm import Floats, Ids, Mask

Quantity = Literal["h", "c", "embedding", "residual"]
"""The variable of the gradient: state, LSTM cell, word embedding, or input of a Transformer block."""


MIN_POSITIONS: Final = 4  # a lag is used if it has this many positions and a quarter of those of lag 0


FAINT_SHARE: Final = 0.01  # of the gradient at lag 0: below it almost nothing can be learnt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientFlow:
    """Gradient norms of single losses L_T = −log p(w_{T+1} | w_≤T), going back in time."""

    name: str  # model name
    what: Quantity
    norms: Floats  # (L, P, K+1) ‖∂L_T/∂h_{T−k}‖; NaN if T < k, inf on overflow
    forget: Floats | None = None  # same shape, LSTM only: mean over units of f_{T−k+1} ⊙ … ⊙ f_T

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.norms)

    @property
    def lags(self) -> int:
        """J, the number of lags with enough positions."""
        counts = (~np.isnan(self.norms[0])).sum(axis=0)  # (K+1,)  never rising
        return int((counts >= min(counts[0], max(MIN_POSITIONS, counts[0] / 4))).sum())

    def mean(self) -> Floats:
        """Return the mean norm over positions, (L, J)."""
        return _mean(self.norms[..., : self.lags])

    def quantile(self, q: float | Sequence[float]) -> Floats:
        """Return a quantile of the norm over positions, (L, J), or several of them, (Q, L, J)."""
        largest = np.finfo(np.float64).max  # interpolation between two infinities is undefined
        quantiles: Floats = np.nanquantile(np.minimum(self.norms[..., : self.lags], largest), q, axis=1)
        return np.where(quantiles >= largest / 4, np.inf, quantiles)

    def origin(self) -> Floats:
        """Return the mean norm at lag 0 over the positions that have lag j, (L, J)."""
        norms = self.norms[..., : self.lags]
        return _mean(np.where(np.isnan(norms), np.nan, norms[..., :1]))

    def relative(self) -> Floats:
        """Return the mean norm relative to lag 0, (L, J); 0 if the gradient is 0 at lag 0.

        Both means are over the positions that have this lag, so the ratio does not depend on which those are.
        """
        mean, origin = self.mean(), self.origin()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: Floats = np.where(origin > 0, mean / origin, 0.0)
        return np.where(np.isnan(ratio), np.inf, ratio)  # inf / inf

    def forget_product(self) -> Floats | None:
        """Return the mean product of the forget gates, (L, J); None without forget gates."""
        return None if self.forget is None else _mean(self.forget[..., : self.lags])

    def half_life(self, layer: int) -> float | None:
        """Return the lag at which half of the gradient is left; inf if beyond these lags, None if undefined.

        Interpolated linearly in the log, so that λ^k has half-life log ½ / log λ.
        """
        return half_life(self.relative()[layer])

    def reach(self, layer: int, part: float = FAINT_SHARE) -> int | None:
        """Return the smallest lag from which the gradient stays below `part`; None if it does not."""
        return reach(self.relative()[layer], part)


def half_life(curve: Floats) -> float | None:
    """Return the half-life of one curve (J,) with 1 at lag 0; see `GradientFlow.half_life`.

    >>> half_life(np.array([1.0, 0.5, 0.25])), half_life(np.array([1.0, 0.8, 0.7]))
    (1.0, inf)
    """
    if len(curve) < 2 or not curve[0] > 0:
        return None
    below = np.flatnonzero(curve <= 0.5)
    if not len(below):
        return math.inf
    k = int(below[0])
    if curve[k] == 0 or not math.isfinite(curve[k - 1]):
        return float(k - 1)  # drops to 0 in one step
    high, low = math.log(curve[k - 1]), math.log(curve[k])
    return k - 1 + (high - math.log(0.5)) / (high - low)


def reach(curve: Floats, part: float = FAINT_SHARE) -> int | None:
    """Return the reach of one curve (J,); see `GradientFlow.reach`.

    >>> reach(np.array([1.0, 0.001, 0.3, 0.001])), reach(np.array([1.0, 0.001, 0.3]))
    (3, None)
    """
    above = np.flatnonzero(~(curve < part))
    first = int(above[-1]) + 1 if len(above) else 0
    return first if first < len(curve) else None


def _mean(values: Floats) -> Floats:
    """Return the mean over positions, ignoring NaN: (L, P, J) -> (L, J)."""
    mean: Floats = np.nanmean(values, axis=1)
    return mean


Complexes = NDArray[np.complexfloating[Any, Any]]


MAX_SLOPE: Final[Mapping[str, float]] = {"tanh": 1.0, "relu": 1.0, "leaky": 1.0, "sigmoid": 0.25}
"""γ = max φ′ by the name of the activation φ."""


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

    def as_json(self) -> dict[str, float]:
        """Return the scalar statistics."""
        return {
            "spectral_radius": self.radius,
            "largest_singular_value": self.norm,
            "outside_unit_circle": self.outside,
        }

    def arrays(self) -> dict[str, Floats]:
        """Return the values by name, (D,) each."""
        return {
            "eigenvalues, real": self.eigenvalues.real,
            "eigenvalues, imaginary": self.eigenvalues.imag,
            "singular values": self.singular_values,
        }


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
        """Width D of the state."""
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

    def as_json(self) -> dict[str, Any]:
        """Return the scalar statistics of every matrix."""
        return {
            "layer": self.layer,
            "width": self.width,
            "nonlinearity": self.nonlinearity or None,
            "gain": self.gain,
            "is_bound": self.is_bound,
            "matrices": {gate or "R": spectrum.as_json() for gate, spectrum in self.spectra.items()},
            "drawn": {name: spectrum.as_json() for name, spectrum in self.random_spectra.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStates:
    """Gate activations and states of one layer, (N, D) each."""

    layer: int  # the first is 1
    h: Floats
    c: Floats | None = None  # an LSTM's
    gates: Mapping[str, Floats] = field(default_factory=dict)  # i, f, g, o or r, z, n
    nonlinearity: str = "tanh"  # activation function of h

    @property
    def memory_gate(self) -> str | None:
        """The gate that retains the state: f of an LSTM, z of a GRU."""
        return next((name for name in ("f", "z") if name in self.gates), None)

    @property
    def sigmoid_gates(self) -> dict[str, Floats]:
        """The gates with values between 0 and 1, without the candidates g and n."""
        return {name: values for name, values in self.gates.items() if name not in ("g", "n")}

    @property
    def cell_values(self) -> Floats:
        """(N, D) tanh(c) of an LSTM, otherwise h."""
        return self.h if self.c is None else np.tanh(self.c)


Kind = Literal["self", "encoder", "cross"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRecord:
    """Attention weights of one layer over one segment of text, with the queries and keys."""

    kind: Kind = "self"  # causal, bidirectional, or cross-attention
    layer: int  # from 0
    weights: Floats  # (H, T, S)  a row sums to 1, or to 0 if all keys are masked
    mask: Mask  # (T, S)  True: the key is visible to the query
    query_positions: Ids  # (T,)  positions in the text
    key_positions: Ids  # (S,)
    first: int = 0  # position of the first token since the context was reset
    new_keys: tuple[int, int]  # range of keys that no earlier segment has counted
    queries: Floats | None = None  # (H, T, d)  None if the score is not a dot product
    keys: Floats | None = None  # (H, S, d)
    divisor: float = 1.0  # the score is qᵀk / divisor
