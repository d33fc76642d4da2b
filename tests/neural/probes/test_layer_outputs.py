"""Layer outputs against each layer run separately; hooks have no side effects."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.nn.functional import embedding

from chainrule.neural.probes import activations
from neural.small_networks import KINDS, network_of, reader

IDS = torch.tensor([[9, 1, 2, 3, 4], [9, 5, 6, 6, 1]])
ALL = torch.ones_like(IDS, dtype=torch.bool)


def heard(network: Any, mask: Tensor = ALL) -> list[Tensor]:
    with torch.no_grad():
        return activations.layer_outputs(network, IDS, mask)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_has_vectors_and_the_first_are_the_words_own(kind: str) -> None:
    network = network_of(reader(kind))
    found = heard(network)
    E = network.embedding if hasattr(network, "embedding") else network.reader.embedding
    assert len(found) == network.config.layers + 1
    assert_allclose(found[0], E.detach()[IDS])
    assert all(layer.shape[:2] == IDS.shape for layer in found)


@pytest.mark.parametrize("kind", KINDS)
def test_listening_changes_nothing(kind: str) -> None:
    """The same bits before, while and after it, and no hook left behind."""
    network = network_of(reader(kind))

    def run() -> Tensor:
        with torch.no_grad():
            if hasattr(network, "reader"):
                return network.reader(IDS, ALL).hidden
            return network(IDS, network.start(2)).hidden

    before = run()
    found = heard(network)[-1]
    if kind != "feedforward":  # what predicts there is no layer: it is projected, or stands beside the window
        assert torch.equal(found, before)
    assert torch.equal(run(), before)
    assert all(not module._forward_hooks for module in network.modules())
    with pytest.raises(RuntimeError, match="stopped"), activations.capture_outputs(network.modules()):
        raise RuntimeError("stopped")
    assert all(not module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("kind", ["lstm", "lstm-normed", "gru-attentive", "attention-in-state"])
def test_the_lower_layer_of_a_recurrent_network(kind: str) -> None:
    """Step by step through the cell's equations; without attention the layer above it as well."""
    network = network_of(reader(kind))
    x = embedding(IDS.t(), network.embedding)
    outputs = []
    with torch.no_grad():
        for k, layer in enumerate(network.layers):
            state = (torch.zeros(2, layer.width),) * layer.n_states
            x, _ = layer.unroll(x, state, layer.weights())
            x = network.norms[k](x) if network.config.layer_norm else x
            outputs.append(x.transpose(0, 1))
    found = heard(network)
    assert_allclose(found[1], outputs[0], atol=1e-6)
    if network.config.attention == "none":
        assert_allclose(found[2], outputs[1], atol=1e-6)


@pytest.mark.parametrize("kind", ["transformer", "transformer-learned-post", "masked", "masked-wider"])
def test_the_lower_layer_of_a_transformer(kind: str) -> None:
    """That of a network of one block, its last norm, where it has one, taken away."""
    network = network_of(reader(kind))
    found = heard(network)
    short = copy.deepcopy(network)
    stack = short.reader.encoder if hasattr(short, "reader") else short
    stack.blocks, stack.norm = stack.blocks[:1], None
    stack.config = replace(stack.config, layers=1)
    with torch.no_grad():
        hidden = short.reader(IDS, ALL).hidden if stack is not short else short(IDS, short.start(2)).hidden
    assert_allclose(found[1], hidden, atol=1e-6)


def test_the_hidden_layers_of_a_feedforward_network() -> None:
    """h = tanh(W x + b) of the last three words' vectors, `<s>` where none was, in NumPy."""
    network = network_of(reader("feedforward"))
    E, ids = network.embedding.detach().numpy(), np.pad(IDS.numpy(), ((0, 0), (2, 0)), constant_values=network.bos)
    h = np.concatenate([E[ids[:, i : i + 5]] for i in range(3)], axis=-1)
    found = heard(network)
    for layer, heard_ in zip(network.layers, found[1:], strict=True):
        h = np.tanh(h @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
        assert_allclose(heard_, h, atol=1e-6)


@pytest.mark.parametrize("kind", ["two-way-lstm", "two-way-gru", "two-way-rnn"])
def test_two_directions_side_by_side(kind: str) -> None:
    """The forward half steps from the first word on, the backward half from the last: each layer by itself.

    The second row ends after three words; the backward half begins there.
    """
    network = network_of(reader(kind))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = heard(network, mask)
    for row, T in enumerate((5, 3)):
        x = network.reader.embedding.detach()[IDS[row, :T]] * network.reader.scale
        ahead, back = x[:, None], x.flip(0)[:, None]  # (T, 1, E)
        for k, (f, b) in enumerate(
            zip(network.reader.encoder.forwards, network.reader.encoder.backwards, strict=True)
        ):
            with torch.no_grad():
                ahead, _ = f.unroll(ahead, (torch.zeros(1, f.width),) * f.n_states, f.weights())
                back, _ = b.unroll(back, (torch.zeros(1, b.width),) * b.n_states, b.weights())
            both = torch.cat([ahead[:, 0], back[:, 0].flip(0)], dim=-1)
            assert_allclose(found[k + 1][row, :T], both, atol=1e-6)


def test_layers_that_are_one_kernels_work_can_be_heard() -> None:
    """The view shares the weights, runs layer by layer, and leaves the network as it is."""
    network = network_of(reader("lstm"))
    assert network.is_fusible
    view = activations.unfused(network)
    assert not view.is_fusible
    assert network.is_fusible
    assert all(one is other for one, other in zip(view.parameters(), network.parameters(), strict=True))
    with torch.no_grad():
        assert torch.equal(view(IDS, view.start(2)).hidden, network(IDS, network.start(2)).hidden)


def test_other_networks_are_not_known() -> None:
    assert not activations.is_supported(torch.nn.Linear(2, 2))
    with pytest.raises(NotImplementedError):
        activations.layer_outputs(torch.nn.Linear(2, 2), IDS, ALL)
