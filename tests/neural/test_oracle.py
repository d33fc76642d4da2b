"""Gradients of the trained networks against the hand-derived ones: one window, every weight, float64."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule.gradients import elman
from chainrule.gradients import feedforward as feedforward_by_hand
from chainrule.gradients import gru as gru_by_hand
from chainrule.gradients import lstm as lstm_by_hand
from chainrule.lm import Vocabulary
from chainrule.neural import feedforward, gru, lstm, rnn
from chainrule.neural.network import Network
from chainrule.training.batches import Window
from chainrule.training.step import next_token

VOCABULARY = Vocabulary(9, 0, 1, 2)
IDS = np.array([0, 3, 4, 4, 7, 1, 8])
TARGETS = np.array([3, 4, 4, 7, 1, 8, 5])
PLAIN = {"hidden": 5, "embedding": 4, "tie": False, "dropout": 0.0}


def network(kind: Any, **settings: Any) -> Network:
    """All weights nonzero, so that none is correct by accident."""
    torch.manual_seed(3)
    net: Network = kind.build(kind.Config(**PLAIN | settings), VOCABULARY, None).double().train()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net


def arrays(net: Network, gradients: bool = False) -> dict[str, Any]:
    named = {name: p.grad if gradients else p for name, p in net.named_parameters()}
    return {name: t.detach().numpy().copy() for name, t in named.items() if t is not None}


def loss_and_gradients(net: Network) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of the sum over time, as in training except for the mean."""
    window = Window(torch.from_numpy(IDS)[None], torch.from_numpy(TARGETS)[None])
    loss, _, _ = next_token(net, window, net.start(1))
    (loss * len(IDS)).backward()
    return float(loss.detach()) * len(IDS), arrays(net, gradients=True)


def output(of: dict[str, Any]) -> dict[str, Any]:
    """W_o and b_o; `<s>` is never predicted."""
    bias = of["output.bias"].copy()
    bias[VOCABULARY.bos] = -np.inf
    return {"W_o": of["output.weight"], "b_o": bias}


def gru_biases(of: dict[str, Any]) -> dict[str, Any]:
    """PyTorch has two biases per gate; by hand there is a second only beside R_n."""
    b_W, b_R = of["layers.0.b_W"], of["layers.0.b_R"]
    m = len(b_W) // 3
    return {"b": b_W + np.concatenate([b_R[: 2 * m], np.zeros(m)]), "b_R": b_R[2 * m :]}


def test_lstm_gradients_equal_hand_derived_ones() -> None:
    net = network(lstm)
    of = arrays(net)
    bias = of["layers.0.b_W"] + of["layers.0.b_R"]
    by_hand = lstm_by_hand.Parameters(of["embedding"], of["layers.0.W"], of["layers.0.R"], bias, **output(of))
    trace = lstm_by_hand.forward(by_hand, IDS, TARGETS)
    expected = lstm_by_hand.backward(by_hand, trace)
    loss, gradients = loss_and_gradients(net)
    assert_allclose(loss, trace.loss)
    pairs = {
        "embedding": expected.E,
        "layers.0.W": expected.W,
        "layers.0.R": expected.R,
        "layers.0.b_R": expected.b,
    }
    check(
        gradients, pairs | {"layers.0.b_W": expected.b, "output.weight": expected.W_o, "output.bias": expected.b_o}
    )


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "leaky", "sigmoid"])
def test_elman_gradients_equal_hand_derived_ones(nonlinearity: Any) -> None:
    net = network(rnn, nonlinearity=nonlinearity)
    of = arrays(net)
    bias = of["layers.0.b_W"] + of["layers.0.b_R"]
    by_hand = elman.Parameters(of["embedding"], of["layers.0.W"], of["layers.0.R"], bias, **output(of))
    trace = elman.forward(by_hand, IDS, TARGETS, activation=nonlinearity)
    expected = elman.backward(by_hand, trace)
    loss, gradients = loss_and_gradients(net)
    assert_allclose(loss, trace.loss)
    pairs = {
        "embedding": expected.E,
        "layers.0.W": expected.W_xh,
        "layers.0.R": expected.W_hh,
        "layers.0.b_R": expected.b,
    }
    check(
        gradients, pairs | {"layers.0.b_W": expected.b, "output.weight": expected.W_o, "output.bias": expected.b_o}
    )


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_gradients_equal_hand_derived_ones(reset: Any) -> None:
    net = network(gru, reset=reset)
    of = arrays(net)
    by_hand = gru_by_hand.Parameters(
        of["embedding"], of["layers.0.W"], of["layers.0.R"], **gru_biases(of), **output(of)
    )
    trace = gru_by_hand.forward(by_hand, IDS, TARGETS, reset=reset)
    expected = gru_by_hand.backward(by_hand, trace)
    loss, gradients = loss_and_gradients(net)
    assert_allclose(loss, trace.loss)
    m = 5
    b_R = np.concatenate([expected.b[: 2 * m], expected.b_R])
    pairs = {
        "embedding": expected.E,
        "layers.0.W": expected.W,
        "layers.0.R": expected.R,
        "layers.0.b_W": expected.b,
    }
    check(gradients, pairs | {"layers.0.b_R": b_R, "output.weight": expected.W_o, "output.bias": expected.b_o})


def test_feedforward_gradients_equal_hand_derived_ones() -> None:
    net = network(feedforward, order=4)
    of = arrays(net)
    by_hand = feedforward_by_hand.Parameters(
        of["embedding"], of["layers.0.weight"], of["layers.0.bias"], **output(of)
    )
    padded = np.concatenate([[VOCABULARY.bos] * 2, IDS])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3)
    trace = feedforward_by_hand.forward(by_hand, windows, TARGETS)
    expected = feedforward_by_hand.backward(by_hand, trace)
    loss, gradients = loss_and_gradients(net)
    assert_allclose(loss, trace.loss)
    pairs = {"embedding": expected.E, "layers.0.weight": expected.W_h, "layers.0.bias": expected.b_h}
    check(gradients, pairs | {"output.weight": expected.W_o, "output.bias": expected.b_o})


def check(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        assert_allclose(actual[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)
