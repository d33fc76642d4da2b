"""Language-model objective: mean of −log p(w_t | w_<t) over a window (teacher forcing)."""

from typing import Any

from torch import Tensor

from chainrule.training.batches import Window
from chainrule.training.step import Tensors


def next_token(network: Any, window: Window, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """Return loss including the activation penalty, mean nats without it, and the new state."""
    hidden, state, penalty = network(window.inputs, state)
    flat, targets = hidden.flatten(0, 1), window.targets.flatten()
    if window.mask is not None:
        is_valid = window.mask.flatten()
        flat, targets = flat[is_valid], targets[is_valid]
    nats = network.output.loss(flat, targets)
    return (nats if penalty is None else nats + penalty), nats, state
