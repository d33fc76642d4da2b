"""The average of the weights over the last part of a run (Polyak & Juditsky 1992), kept in one flat tensor.

Lives here: one update of it. Not here: when to begin (loop.py). Every operation may run inside a CUDA graph.
"""

import torch
from torch import Tensor

from chainrule.training.config import Averaging


def update_(average: Tensor, weights: Tensor, kind: Averaging, decay: float, n: int | Tensor) -> None:
    """Let `weights` (N,) join their `average` (N,) as the n-th, n = 1, 2, …; the first is copied.

    `decay`, for ema, is what is kept of the average. A captured graph must be given `n` as a tensor, which its
    replays count up. Before the first the average may hold anything finite.
    """
    if kind != "none":
        share = _share_tensor(kind, decay, n) if isinstance(n, Tensor) else _share(kind, decay, n)
        average.lerp_(weights.detach(), share)  # a ← a + share·(w − a)


def _share(kind: Averaging, decay: float, n: int) -> float:
    """The part of the new weights in the average: 1/n, or 1 and from then on 1 − d."""
    return 1 / n if kind == "mean" or n == 1 else 1 - decay


def _share_tensor(kind: Averaging, decay: float, n: Tensor) -> Tensor:
    """() the same, worked out on the device."""
    return 1 / n if kind == "mean" else torch.where(n == 1, 1.0, 1 - decay)
