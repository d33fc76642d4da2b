"""How far back an error reaches: norms of ∂L_T/∂h_{T−k} by the lag k, and what is said of them in a number.

Lives here: the record and its statistics. Not here: the gradients (neural/flow.py), the drawing (flow_plot.py).
Letters: L layers, P positions, K the longest lag, J lags that enough positions have.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.lm import Floats

What = Literal["h", "c", "embedding", "residual"]
"""By what the loss is derived: a state, an LSTM's cell, a word's vector, what a Transformer's block reads."""

FEWEST: Final = (
    4  # positions that a lag must have to be spoken of, and a quarter of them; all, where there are fewer
)
FAINT: Final = 0.01  # of the signal at lag 0: where less is left, hardly anything can be learnt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientFlow:
    """The error of single losses L_T = −log p(the token after T), on its way back."""

    name: str  # of the model
    what: What
    norms: Floats  # (L, P, K+1) ‖∂L_T/∂h_{T−k}‖, NaN where T has no token k back; inf: beyond all numbers
    forget: Floats | None = None  # likewise, of an LSTM: the mean over units of f_{T−k+1} ⊙ … ⊙ f_T

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.norms)

    @property
    def lags(self) -> int:
        """J, how many lags from 0 on have enough positions to speak of."""
        counts = (~np.isnan(self.norms[0])).sum(axis=0)  # (K+1,)  never rising
        return int((counts >= min(counts[0], max(FEWEST, counts[0] / 4))).sum())

    def mean(self) -> Floats:
        """(L, J) over positions."""
        return _mean(self.norms[..., : self.lags])

    def quantile(self, q: float) -> Floats:
        """(L, J) over positions."""
        largest = np.finfo(np.float64).max  # between two inf nothing can be interpolated
        found: Floats = np.nanquantile(np.minimum(self.norms[..., : self.lags], largest), q, axis=1)
        return np.where(found >= largest / 4, np.inf, found)

    def origin(self) -> Floats:
        """(L, J) the mean norm at lag 0 of those positions that have lag j."""
        there = self.norms[..., : self.lags]
        return _mean(np.where(np.isnan(there), np.nan, there[..., :1]))

    def relative(self) -> Floats:
        """(L, J) what is left of the signal at lag 0, 1 there; zero where there was none.

        Both means are of the positions that have this lag, so that it makes no difference which these are.
        """
        mean, origin = self.mean(), self.origin()
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(origin > 0, mean / origin, 0.0)
        return np.where(np.isnan(found), np.inf, found)  # both beyond all numbers

    def kept(self) -> Floats | None:
        """(L, J) the mean product of the forget gates, where there are some."""
        return None if self.forget is None else _mean(self.forget[..., : self.lags])

    def half_life(self, layer: int) -> float | None:
        """Tokens after which half of the signal is gone; inf where it is not within these lags, None without any.

        Between two lags the log of what is left is taken as a line, so that λ^k has its half-life log ½ / log λ.
        """
        return half_life(self.relative()[layer])

    def reach(self, layer: int, part: float = FAINT) -> int | None:
        """The lag from which on less than this part of the signal is left; None where there is none here."""
        return reach(self.relative()[layer], part)


def half_life(left: Floats) -> float | None:
    """Of one curve, (J,) with 1 at lag 0; see `GradientFlow.half_life`.

    >>> half_life(np.array([1.0, 0.5, 0.25])), half_life(np.array([1.0, 0.8, 0.7]))
    (1.0, inf)
    """
    if len(left) < 2 or not left[0] > 0:
        return None
    below = np.flatnonzero(left <= 0.5)
    if not len(below):
        return math.inf
    k = int(below[0])
    if left[k] == 0 or not math.isfinite(left[k - 1]):
        return float(k - 1)  # it goes at once
    high, low = math.log(left[k - 1]), math.log(left[k])
    return k - 1 + (high - math.log(0.5)) / (high - low)


def reach(left: Floats, part: float = FAINT) -> int | None:
    """Of one curve, (J,); see `GradientFlow.reach`.

    >>> reach(np.array([1.0, 0.001, 0.3, 0.001])), reach(np.array([1.0, 0.001, 0.3]))
    (3, None)
    """
    above = np.flatnonzero(~(left < part))
    first = int(above[-1]) + 1 if len(above) else 0
    return first if first < len(left) else None


def _mean(values: Floats) -> Floats:
    """(L, P, J) -> (L, J), of what is there; each lag has some."""
    found: Floats = np.nanmean(values, axis=1)
    return found
