"""Collect the output of every layer with forward hooks.

Letters: B batch, T tokens, D width, L layers.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from chainrule.neural.encoder import reorder, reversed_positions
from chainrule.neural.feedforward import Feedforward
from chainrule.neural.pretraining import BidirectionalLM, MaskedLM
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.transformer import Transformer


def is_supported(network: nn.Module) -> bool:
    """Whether `layers` supports this kind of network."""
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
    """Residual stream after every block, normalised for the last one; no word is masked."""
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
    """Recurrent network that runs its layers separately instead of in one fused kernel, so that hooks see each."""

    @property
    def is_fusible(self) -> bool:
        """Always False."""
        return False


def unfused(network: RecurrentNetwork) -> RecurrentNetwork:
    """Return a `LayerByLayer` view that shares weights and settings with `network`."""
    view = copy.copy(network)
    view.__class__ = UnfusedRecurrentNetwork
    return view
