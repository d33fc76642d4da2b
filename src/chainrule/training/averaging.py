"""Running average of the weights (Polyak & Juditsky 1992), stored as one flat vector."""

from torch import Tensor

from chainrule.training.config import Averaging


def update_(average: Tensor, weights: Tensor, kind: Averaging, decay: float, n: int) -> None:
    """Add `weights` (N,) as the n-th sample, n = 1, 2, …, to `average` (N,) in place; the first is copied.

    `decay` is the retained share of an exponential moving average.
    """
    if kind != "none":
        average.lerp_(weights.detach(), _share(kind, decay, n))  # a ← a + share·(w − a)


def _share(kind: Averaging, decay: float, n: int) -> float:
    """Weight of the new sample: 1/n for the mean; 1 at first, then 1 − decay for ema."""
    return 1 / n if kind == "mean" or n == 1 else 1 - decay
