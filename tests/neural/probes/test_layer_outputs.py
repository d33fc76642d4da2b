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


def outputs_of(network: Any, mask: Tensor = ALL) -> list[Tensor]:
    with torch.no_grad():
        return activations.layer_outputs(network, IDS, mask)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_has_vectors_starting_with_the_embedding(kind: str) -> None:
    network = network_of(reader(kind))
    outputs = outputs_of(network)
    E = network.embedding if hasattr(network, "embedding") else network.reader.embedding
    assert len(outputs) == network.config.layers + 1
    assert_allclose(outputs[0], E.detach()[IDS])
    assert all(layer.shape[:2] == IDS.shape for layer in outputs)


@pytest.mark.parametrize("kind", KINDS)
def test_capturing_outputs_has_no_side_effects(kind: str) -> None:
    """The same bits before, during and after, and no hook left behind."""
    network = network_of(reader(kind))

    def run() -> Tensor:
        with torch.no_grad():
            if hasattr(network, "reader"):
                return network.reader(IDS, ALL).hidden
            return network(IDS, network.start(2)).hidden

    before = run()
    outputs = outputs_of(network)[-1]
    if (
        kind != "feedforward"
    ):  # there the prediction is not a layer output: it is projected or uses direct connections
        assert torch.equal(outputs, before)
    assert torch.equal(run(), before)
    assert all(not module._forward_hooks for module in network.modules())
    with pytest.raises(RuntimeError, match="stopped"), activations.capture_outputs(network.modules()):
        raise RuntimeError("stopped")
    assert all(not module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("kind", ["lstm", "lstm-normed", "gru-attentive", "attention-in-state"])
def test_lower_recurrent_layer_equals_single_steps(kind: str) -> None:
    """Step by step through the cell's equations; without attention the layer above as well."""
    network = network_of(reader(kind))
    x = embedding(IDS.t(), network.embedding)
    outputs = []
    with torch.no_grad():
        for k, layer in enumerate(network.layers):
            state = (torch.zeros(2, layer.width),) * layer.n_states
            x, _ = layer.unroll(x, state, layer.weights())
            x = network.norms[k](x) if network.config.layer_norm else x
            outputs.append(x.transpose(0, 1))
    captured = outputs_of(network)
    assert_allclose(captured[1], outputs[0], atol=1e-6)
    if network.config.attention == "none":
        assert_allclose(captured[2], outputs[1], atol=1e-6)


@pytest.mark.parametrize("kind", ["transformer", "transformer-learned-post", "masked", "masked-wider"])
def test_lower_transformer_layer_equals_a_one_block_network(kind: str) -> None:
    """A network of one block without its final norm, if it has one."""
    network = network_of(reader(kind))
    outputs = outputs_of(network)
    short = copy.deepcopy(network)
    stack = short.reader.encoder if hasattr(short, "reader") else short
    stack.blocks, stack.norm = stack.blocks[:1], None
    stack.config = replace(stack.config, layers=1)
    with torch.no_grad():
        hidden = short.reader(IDS, ALL).hidden if stack is not short else short(IDS, short.start(2)).hidden
    assert_allclose(outputs[1], hidden, atol=1e-6)


def test_feedforward_layers_equal_the_formula() -> None:
    """h = tanh(W x + b) of the last three words' vectors, padded with `<s>`, in NumPy."""
    network = network_of(reader("feedforward"))
    E, ids = network.embedding.detach().numpy(), np.pad(IDS.numpy(), ((0, 0), (2, 0)), constant_values=network.bos)
    h = np.concatenate([E[ids[:, i : i + 5]] for i in range(3)], axis=-1)
    outputs = outputs_of(network)
    for layer, heard_ in zip(network.layers, outputs[1:], strict=True):
        h = np.tanh(h @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
        assert_allclose(heard_, h, atol=1e-6)


@pytest.mark.parametrize("kind", ["two-way-lstm", "two-way-gru", "two-way-rnn"])
def test_bidirectional_layers_equal_separate_directions(kind: str) -> None:
    """The forward half steps from the first word, the backward half from the last, layer by layer.

    The second row ends after three words; its backward half begins there.
    """
    network = network_of(reader(kind))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    outputs = outputs_of(network, mask)
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
            assert_allclose(outputs[k + 1][row, :T], both, atol=1e-6)


def test_unfused_view_shares_weights_and_outputs() -> None:
    """The view shares the weights, runs layer by layer, and leaves the network unchanged."""
    network = network_of(reader("lstm"))
    assert network.is_fusible
    view = activations.unfused(network)
    assert not view.is_fusible
    assert network.is_fusible
    assert all(
        view_parameter is parameter
        for view_parameter, parameter in zip(view.parameters(), network.parameters(), strict=True)
    )
    with torch.no_grad():
        assert torch.equal(view(IDS, view.start(2)).hidden, network(IDS, network.start(2)).hidden)


def test_unsupported_networks_are_rejected() -> None:
    assert not activations.is_supported(torch.nn.Linear(2, 2))
    with pytest.raises(NotImplementedError):
        activations.layer_outputs(torch.nn.Linear(2, 2), IDS, ALL)
