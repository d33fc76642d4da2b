"""What modules do while a network reads: their inputs, and of recurrent layers each step, with its gradient.

Lives here: a hook, and the same network, run step by step, every value a node of its own. Not here: gradients
(flow.py), gates as numbers (states.py). Letters: B batch, T tokens, D width.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from chainrule.neural.listening import LayerByLayer
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import Layer, RecurrentNetwork


@dataclass(slots=True)
class Watched:
    """One layer, step by step, over all that was read since it is watched."""

    states: list[Tensors] = field(default_factory=list)  # T of (h_t,), of an LSTM (h_t, c_t); each (B, D)
    gates: list[Tensors] = field(default_factory=list)  # T of what `Layer.gate_names` names; each (B, D)


@contextmanager
def given_to(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Any, ...]]]:
    """What the modules are called with while the block runs, in the order of their calls."""
    found: list[tuple[Any, ...]] = []
    handles = [module.register_forward_pre_hook(lambda _, given: found.append(given)) for module in modules]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def watched(network: RecurrentNetwork) -> tuple[RecurrentNetwork, list[Watched]]:
    """The same weights and settings run by the reference cells, and what they will do, a `Watched` a layer.

    The network given stays as it is.
    """
    found = [Watched() for _ in network.layers]
    return with_layers(network, map(_watched_layer, network.layers, found)), found


def with_layers(network: RecurrentNetwork, layers: Iterable[Layer]) -> RecurrentNetwork:
    """The same network around other layers, run one by one; the network given stays as it is."""
    view = copy.copy(network)
    view.__class__ = LayerByLayer
    view._modules = dict(network._modules)
    view._modules["layers"] = nn.ModuleList(layers)
    return view


def _watched_layer(layer: Any, into: Watched) -> Layer:
    """A copy, its tensors shared, that never uses a kernel and notes what its cell makes."""
    copied: Layer = copy.copy(layer)

    def gated(u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        into.gates.append(layer.gated(u, state, R, b_R))
        return into.gates[-1]

    def cell(u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        into.states.append(type(layer).cell(copied, u, state, R, b_R))
        return into.states[-1]

    for name, method in {"gated": gated, "cell": cell, "run": copied.loop}.items():
        setattr(copied, name, method)
    return copied
