"""Recorded recurrent network: unchanged outputs, consistent gates and states."""

import pytest
import torch
from torch.testing import assert_close

from chainrule.neural.probes.activations import record_recurrence
from neural.small_networks import network_of, reader

IDS = torch.tensor([[9, 1, 2, 3, 4], [9, 5, 6, 6, 1]])
RECURRENT = ["lstm", "lstm-normed", "gru-attentive", "attention-in-state", "learned-start"]


@pytest.mark.parametrize("kind", RECURRENT)
def test_recording_view_equals_the_network(kind: str) -> None:
    network = network_of(reader(kind))
    before = network(IDS, network.start(2))
    view, records = record_recurrence(network)
    after = view(IDS, view.start(2))
    assert_close(after.hidden, before.hidden)
    for ours, theirs in zip(after.state, before.state, strict=True):
        assert_close(ours, theirs)
    assert [len(layer.states) for layer in records] == [IDS.shape[1]] * network.config.layers
    again = network(IDS, network.start(2))
    assert torch.equal(again.hidden, before.hidden)
    assert [len(layer.states) for layer in records] == [
        IDS.shape[1]
    ] * network.config.layers  # the original network is not recorded


def test_recorded_lstm_gates_give_its_cell() -> None:
    """c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t), from the recorded values."""
    view, records = record_recurrence(network_of(reader("lstm")))
    view(IDS, view.start(2))
    for layer, of_layer in zip(view.layers, records, strict=True):
        assert layer.gate_names == ("i", "f", "g", "o")
        past = torch.zeros_like(of_layer.states[0][1])
        for (i, f, g, o), (h, c) in zip(of_layer.gates, of_layer.states, strict=True):
            assert_close(c, f * past + i * g)
            assert_close(h, o * torch.tanh(c))
            past = c


def test_recorded_gru_gates_give_its_state() -> None:
    """h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}."""
    view, records = record_recurrence(network_of(reader("gru-attentive")))
    view(IDS, view.start(2))
    for layer, of_layer in zip(view.layers, records, strict=True):
        assert layer.gate_names == ("r", "z", "n")
        past = torch.zeros_like(of_layer.states[0][0])
        for (_, z, n), (h,) in zip(of_layer.gates, of_layer.states, strict=True):
            assert_close(h, (1 - z) * n + z * past)
            past = h


def test_recorded_states_are_graph_nodes() -> None:
    """∂Σh_T/∂c_1 flows through every step between."""
    view, records = record_recurrence(network_of(reader("lstm")))
    hidden = view(IDS, view.start(2)).hidden
    (gradient,) = torch.autograd.grad(hidden[:, -1].sum(), [records[0].states[0][1]])
    assert (gradient.abs().sum(dim=1) > 0).all()
