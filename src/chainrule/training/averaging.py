"""The average of the weights over the last part of a run (Polyak & Juditsky 1992), kept in one flat tensor.

Lives here: one update of it. Not here: when to begin (loop.py).
"""

from torch import Tensor

from chainrule.training.config import Averaging


def update_(average: Tensor, weights: Tensor, kind: Averaging, decay: float, n: int) -> None:
    """Let `weights` (N,) join their `average` (N,) as the n-th, n = 1, 2, …; the first is copied.

    `decay`, for ema, is what is kept of the average. Before the first the average may hold anything finite.
    """
    if kind != "none":
        average.lerp_(weights.detach(), _share(kind, decay, n))  # a ← a + share·(w − a)


def _share(kind: Averaging, decay: float, n: int) -> float:
    """The part of the new weights in the average: 1/n, or 1 and from then on 1 − d."""
    return 1 / n if kind == "mean" or n == 1 else 1 - decay
