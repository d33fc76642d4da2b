"""Activations of a network: outputs of every layer, and gates and states of recurrent layers at every step.

Outputs are collected with forward hooks, gates by running views of recurrent networks layer by layer.

Notation: B batch, T tokens, D width, L layers.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from chainrule.data.encoded import EncodedText, group_by_length
from chainrule.lm import Floats, Ids
from chainrule.neural.encoders.encoder import reorder, reversed_positions
from chainrule.neural.encoders.pretraining import BidirectionalLM, MaskedLM
from chainrule.neural.feedforward import Feedforward
from chainrule.neural.model import NeuralModel
from chainrule.neural.network import Tensors
from chainrule.neural.probes.measurements import LayerStates
from chainrule.neural.recurrent import RecurrentLayer, RecurrentNetwork
from chainrule.neural.transformer import Transformer
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.device import exact_inference, limit_threads

MOST_BYTES = 1 << 28  # memory limit for the arrays of all models together
STEPS_AT_ONCE = 256  # steps of a stream between copies of the recorded values
GATE_CHUNK_TOKENS = 1 << 11  # tokens per batch of lines
STATE_NAMES = ("h", "c")


def is_supported(network: nn.Module) -> bool:
    """Whether `layer_outputs` supports this kind of network."""
    return layer_outputs.dispatch(type(network)) is not layer_outputs.dispatch(object)


@singledispatch
def layer_outputs(network: Any, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Embeddings and the output of each layer: L + 1 tensors (B, T, D).

    (B, T) ids are read from the initial state in evaluation mode; the mask (B, T) is False on padding.
    """
    raise NotImplementedError


@layer_outputs.register
def _of_feedforward(network: Feedforward, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """h = tanh(W x + b) of every hidden layer."""
    with capture_outputs(network.layers) as outputs:
        network(ids, network.start(len(ids)))
    return [embedding(ids, network.embedding), *map(torch.tanh, outputs)]


@layer_outputs.register
def _of_recurrent(network: RecurrentNetwork, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Outputs of every layer after layer norm; for the last one, the input of the output layer."""
    modules = [*(network.norms if network.config.layer_norm else network.layers)][:-1]
    with capture_outputs(modules) as outputs:
        hidden = unfused(network)(ids, network.start(len(ids))).hidden
    return [embedding(ids, network.embedding), *(x.transpose(0, 1) for x in outputs), hidden]


@layer_outputs.register
def _of_transformer(network: Transformer, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Residual stream after every block; for the last one, the input of the output layer."""
    with capture_outputs(network.blocks[:-1]) as outputs:
        hidden = network(ids, network.start(len(ids))).hidden
    return [embedding(ids, network.embedding), *outputs, hidden]


@layer_outputs.register
def _of_two_way(network: BidirectionalLM, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Concatenated forward and backward outputs of every layer."""
    encoder, positions = network.reader.encoder, reversed_positions(mask)
    with capture_outputs(encoder.forwards) as forward_out, capture_outputs(encoder.backwards) as backward_out:
        network.reader(ids, mask)
    halves = (
        (f.transpose(0, 1), reorder(b.transpose(0, 1), positions))
        for f, b in zip(forward_out, backward_out, strict=True)
    )
    return [embedding(ids, network.reader.embedding), *(torch.cat(both, dim=-1) for both in halves)]


@layer_outputs.register
def _of_masked(network: MaskedLM, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Residual stream after every block, normalized for the last one; no word is masked."""
    with capture_outputs(network.reader.encoder.blocks[:-1]) as outputs:
        hidden = network.reader(ids, mask).hidden
    return [embedding(ids, network.reader.embedding), *outputs, hidden]


@contextmanager
def capture_outputs(modules: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Capture the outputs of the modules in call order; of a tuple, the first tensor."""
    outputs: list[Tensor] = []

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


class UnfusedRecurrentNetwork(RecurrentNetwork):
    """Recurrent network that runs its layers separately, not in one fused kernel, so that hooks see every layer."""

    @property
    def is_fusible(self) -> bool:
        """Always False."""
        return False


def unfused(network: RecurrentNetwork) -> RecurrentNetwork:
    """Return a view of the network that shares weights and settings and runs its layers one by one."""
    view = copy.copy(network)
    view.__class__ = UnfusedRecurrentNetwork
    return view


@dataclass(slots=True)
class RecurrenceRecord:
    """Recorded steps of one recurrent layer."""

    states: list[Tensors] = field(default_factory=list)  # per step (h_t,), or (h_t, c_t) of an LSTM; each (B, D)
    gates: list[Tensors] = field(
        default_factory=list
    )  # per step, named by `RecurrentLayer.gate_names`; each (B, D)


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
    """Return a view of the network that runs the reference cells, and the records it fills, one per layer."""
    records = [RecurrenceRecord() for _ in network.layers]
    view = unfused(network)
    layers = nn.ModuleList(map(_recording_layer, network.layers, records))
    view._modules = dict(network._modules) | {"layers": layers}
    return view, records


def _recording_layer(layer: Any, record: RecurrenceRecord) -> RecurrentLayer:
    """Copy of a layer with shared tensors that runs unrolled and records its gates and states."""
    copied: RecurrentLayer = copy.copy(layer)

    def compute_gates(u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        record.gates.append(layer.compute_gates(u, state, R, b_R))
        return record.gates[-1]

    def step(u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        record.states.append(type(layer).step(copied, u, state, R, b_R))
        return record.states[-1]

    for name, method in {"compute_gates": compute_gates, "step": step, "forward_with": copied.unroll}.items():
        setattr(copied, name, method)
    return copied


def read_gate_activations(
    model: NeuralModel, text: EncodedText, progress: Progress = silent, *, models: int = 1
) -> list[LayerStates]:
    """Return (N, D) float32 gate activations and states of each layer from the start of the text.

    The number of tokens is limited by `MOST_BYTES`, shared evenly by `models` models: 8,603 for one model of two
    LSTM layers with 650 cells, 4,301 each for two; 1,000 tokens take 31 MB. While reading, `GATE_CHUNK_TOKENS`
    tokens, or one longer line, are in memory twice.
    """
    network = model.network
    assert isinstance(network, RecurrentNetwork)
    N = min(text.tokens, max_tokens(network, models))
    arrays = [_empty(layer, N) for layer in network.layers]
    view, records = record_recurrence(network)
    done = 0
    for position, row, step in _reading(model, view, text.ids[:N]):
        for layer, record, layer_arrays in zip(network.layers, records, arrays, strict=True):
            _put(layer.gate_names, record, layer_arrays, position, row, step)
        done += len(position)
        progress("gates and states", done, N)
    for layer_arrays in arrays:
        for values in layer_arrays.values():
            check_outputs(values, network, allow_neg_inf=False)
    return [
        LayerStates(
            layer=k + 1,
            gates={name: layer_arrays[name] for name in layer.gate_names},
            h=layer_arrays["h"],
            c=layer_arrays.get("c"),
            nonlinearity=getattr(layer, "nonlinearity", "tanh"),
        )
        for k, (layer, layer_arrays) in enumerate(zip(network.layers, arrays, strict=True))
    ]


def max_tokens(network: RecurrentNetwork, models: int = 1) -> int:
    """Maximum number of tokens when this many models share the memory; at least one."""
    numbers: int = sum((len(layer.gate_names) + layer.n_states) * layer.width for layer in network.layers)
    return max(1, MOST_BYTES // (4 * numbers * models))


def _empty(layer: torch.nn.Module, N: int) -> dict[str, Floats]:
    names = (*layer.gate_names, *STATE_NAMES[: layer.n_states])
    return {name: np.empty((N, layer.width), dtype=np.float32) for name in names}


def _put(
    names: tuple[str, ...], record: RecurrenceRecord, arrays: dict[str, Floats], position: Ids, row: Ids, step: Ids
) -> None:
    """Copy recorded values at these rows and steps to their text positions, then clear the record."""
    for recorded, keys in ((record.gates, names), (record.states, STATE_NAMES)):
        for i, name in enumerate(keys[: len(recorded[0])] if recorded else ()):
            values = torch.stack([tensors[i] for tensors in recorded])  # (T, B, D)
            arrays[name][position] = values[step, row].float().cpu().numpy()
        recorded.clear()


def _reading(model: NeuralModel, view: RecurrentNetwork, ids: Ids) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Run the network over a text; yield text positions (n,) and the row and step of each."""
    # The input starts with `<s>`, which has no text position.
    inputs = torch.from_numpy(model.map_boundaries(np.concatenate([[model.vocabulary.bos], ids]))).to(model.device)
    if model.context == "line":
        starts = np.concatenate([[0], np.flatnonzero(ids == model.vocabulary.eos) + 1])
        yield from _lines(view, inputs, starts)
    else:
        yield from _stream(view, inputs)


def _stream(view: RecurrentNetwork, inputs: Tensor) -> Iterator[tuple[Ids, Ids, Ids]]:
    state: Tensors = view.start(1)
    for first in range(0, len(inputs), STEPS_AT_ONCE):
        piece = inputs[None, first : first + STEPS_AT_ONCE]
        with exact_inference(), limit_threads(view.largest_matmul(*piece.shape)):
            state = view(piece, state).state
        step = np.arange(piece.shape[1])
        yield _placed(first + step, np.zeros_like(step), step)


def _lines(view: RecurrentNetwork, inputs_all: Tensor, starts: Ids) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Batch lines of similar length; right padding has no effect."""
    lengths = np.diff(np.append(starts, len(inputs_all)))
    for rows in group_by_length(lengths, GATE_CHUNK_TOKENS):
        position = starts[rows, None] + np.arange(lengths[rows].max())  # (B, T)
        row, step = np.nonzero(position < (starts + lengths)[rows, None])
        inputs = inputs_all[torch.from_numpy(np.minimum(position, len(inputs_all) - 1)).to(inputs_all.device)]
        with exact_inference(), limit_threads(view.largest_matmul(*inputs.shape)):
            view(inputs, view.start(len(inputs)))
        yield _placed(position[row, step], row, step)


def _placed(position: Ids, row: Ids, step: Ids) -> tuple[Ids, Ids, Ids]:
    """Convert input positions to text positions, without the leading `<s>`."""
    is_text = position > 0
    return position[is_text] - 1, row[is_text], step[is_text]
