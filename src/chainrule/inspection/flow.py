"""Gradient flow: norms of ∂L_T/∂h_{T−k} by lag k, and their half-life and reach.

L layers, P positions, K the largest lag, J lags with enough positions.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.lm import Floats

Quantity = Literal["h", "c", "embedding", "residual"]
"""What the loss is differentiated by: state, LSTM cell, word embedding, input of a Transformer block."""

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

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the norm over positions, (L, J)."""
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
        """Return the lag from which on less than `part` of the gradient is left; None if there is none."""
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
