"""What each layer of a network gives while it reads: hooks that listen and change nothing.

Lives here: one function for each kind of network. Not here: which tokens are read, and what becomes of the vectors
(contextual.py). Letters: B batch, T tokens, D width; L layers.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from chainrule.neural.encoder import reversal, turn
from chainrule.neural.feedforward import Feedforward
from chainrule.neural.pretraining import Masked, TwoWay
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.transformer import Transformer


def is_known(network: nn.Module) -> bool:
    """Whether `layers` can listen to this kind of network."""
    return layers.dispatch(type(network)) is not layers.dispatch(object)


@singledispatch
def layers(network: Any, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Words' own vectors, then what each layer makes of them: L + 1 tensors (B, T, D).

    (B, T) ids are read from the network's start, in evaluation mode; the mask, (B, T), is True where there is one.
    What stands behind a row's end changes nothing before it.
    """
    raise NotImplementedError


@layers.register
def _of_feedforward(network: Feedforward, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """h = tanh(W x + b) of every hidden layer."""
    with heard(network.layers) as found:
        network(ids, network.start(len(ids)))
    return [embedding(ids, network.embedding), *map(torch.tanh, found)]


@layers.register
def _of_recurrent(network: RecurrentNetwork, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """The outputs of every layer, normed where they are; of the last, what predicts."""
    below = [*(network.norms if network.config.layer_norm else network.layers)][:-1]
    with heard(below) as found:
        hidden = layer_by_layer(network)(ids, network.start(len(ids))).hidden
    return [embedding(ids, network.embedding), *(x.transpose(0, 1) for x in found), hidden]


@layers.register
def _of_transformer(network: Transformer, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """The residual path after every block; after the last, what predicts."""
    with heard(network.blocks[:-1]) as found:
        hidden = network(ids, network.start(len(ids))).hidden
    return [embedding(ids, network.embedding), *found, hidden]


@layers.register
def _of_two_way(network: TwoWay, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """The forward and the backward half of every layer side by side."""
    encoder, turned = network.reader.encoder, reversal(mask)
    with heard(encoder.forwards) as ahead, heard(encoder.backwards) as back:
        network.reader(ids, mask)
    halves = ((f.transpose(0, 1), turn(b.transpose(0, 1), turned)) for f, b in zip(ahead, back, strict=True))
    return [embedding(ids, network.reader.embedding), *(torch.cat(both, dim=-1) for both in halves)]


@layers.register
def _of_masked(network: Masked, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """The residual path after every block; of the last as tasks read it. No word is hidden."""
    with heard(network.reader.encoder.blocks[:-1]) as found:
        hidden = network.reader(ids, mask).hidden
    return [embedding(ids, network.reader.embedding), *found, hidden]


@contextmanager
def heard(modules: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """What the modules give while the block runs, in the order of their calls; of several tensors the first."""
    found: list[Tensor] = []

    def listen(module: nn.Module, given: Any, outcome: Any) -> None:
        found.append(outcome[0] if isinstance(outcome, tuple) else outcome)

    handles = [module.register_forward_hook(listen) for module in modules]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


class LayerByLayer(RecurrentNetwork):
    """A recurrent network whose layers are never one kernel's work, in which none of them could be heard."""

    @property
    def is_stackable(self) -> bool:
        """Never."""
        return False


def layer_by_layer(network: RecurrentNetwork) -> RecurrentNetwork:
    """The same weights and settings; the network given stays as it is."""
    view = copy.copy(network)
    view.__class__ = LayerByLayer
    return view
