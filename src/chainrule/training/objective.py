"""What a language model learns by: the mean of −log p(w_t | w_<t) over a window (teacher forcing)."""

from typing import Any

from torch import Tensor

from chainrule.training.batches import Window
from chainrule.training.step import Tensors


def next_token(network: Any, window: Window, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """The true past is read, whatever the network would have said; the penalty is no part of the nats reported."""
    hidden, state, penalty = network(window.inputs, state)
    flat, targets = hidden.flatten(0, 1), window.targets.flatten()
    if window.mask is not None:
        kept = window.mask.flatten()
        flat, targets = flat[kept], targets[kept]
    nats = network.output.loss(flat, targets)
    return (nats if penalty is None else nats + penalty), nats, state
