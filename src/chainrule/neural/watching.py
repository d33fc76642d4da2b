"""Record module inputs with hooks, and gates and states of recurrent layers step by step.

Letters: B batch, T tokens, D width.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from chainrule.neural.listening import UnfusedRecurrentNetwork
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import Layer, RecurrentNetwork


@dataclass(slots=True)
class RecurrenceRecord:
    """Recorded steps of one recurrent layer."""

    states: list[Tensors] = field(default_factory=list)  # per step (h_t,), or (h_t, c_t) of an LSTM; each (B, D)
    gates: list[Tensors] = field(default_factory=list)  # per step, named by `Layer.gate_names`; each (B, D)


@contextmanager
def capture_inputs(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Any, ...]]]:
    """Capture the positional inputs of the modules in call order."""
    calls: list[tuple[Any, ...]] = []
    handles = [module.register_forward_pre_hook(lambda _, inputs: calls.append(inputs)) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def record_recurrence(network: RecurrentNetwork) -> tuple[RecurrentNetwork, list[RecurrenceRecord]]:
    """Return a view of the network run by the reference cells, and a record per layer that it fills."""
    records = [RecurrenceRecord() for _ in network.layers]
    return replace_layers(network, map(_recording_layer, network.layers, records)), records


def replace_layers(network: RecurrentNetwork, layers: Iterable[Layer]) -> RecurrentNetwork:
    """Return a view of the network with other layers, run one by one."""
    view = copy.copy(network)
    view.__class__ = UnfusedRecurrentNetwork
    view._modules = dict(network._modules)
    view._modules["layers"] = nn.ModuleList(layers)
    return view


def _recording_layer(layer: Any, record: RecurrenceRecord) -> Layer:
    """Copy of a layer with shared tensors that runs unrolled and records its gates and states."""
    copied: Layer = copy.copy(layer)

    def compute_gates(u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        record.gates.append(layer.compute_gates(u, state, R, b_R))
        return record.gates[-1]

    def step(u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        record.states.append(type(layer).step(copied, u, state, R, b_R))
        return record.states[-1]

    for name, method in {"compute_gates": compute_gates, "step": step, "forward_with": copied.unroll}.items():
        setattr(copied, name, method)
    return copied
