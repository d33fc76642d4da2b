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
    """Weights of every kind away from zero, so that none is right by accident."""
    torch.manual_seed(3)
    made: Network = kind.build(kind.Config(**PLAIN | settings), VOCABULARY, None).double().train()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def arrays(made: Network, gradients: bool = False) -> dict[str, Any]:
    named = {name: p.grad if gradients else p for name, p in made.named_parameters()}
    return {name: t.detach().numpy().copy() for name, t in named.items() if t is not None}


def learn(made: Network) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of the sum over time, as the loop computes them but for the mean."""
    window = Window(torch.from_numpy(IDS)[None], torch.from_numpy(TARGETS)[None])
    loss, _, _ = next_token(made, window, made.start(1))
    (loss * len(IDS)).backward()
    return float(loss.detach()) * len(IDS), arrays(made, gradients=True)


def output(of: dict[str, Any]) -> dict[str, Any]:
    """W_o and b_o; `<s>` is never predicted."""
    bias = of["output.bias"].copy()
    bias[VOCABULARY.bos] = -np.inf
    return {"W_o": of["output.weight"], "b_o": bias}


def gru_biases(of: dict[str, Any]) -> dict[str, Any]:
    """PyTorch has two biases for each gate; by hand there is a second only beside R_n."""
    b_W, b_R = of["layers.0.b_W"], of["layers.0.b_R"]
    m = len(b_W) // 3
    return {"b": b_W + np.concatenate([b_R[: 2 * m], np.zeros(m)]), "b_R": b_R[2 * m :]}


def test_lstm() -> None:
    made = network(lstm)
    of = arrays(made)
    bias = of["layers.0.b_W"] + of["layers.0.b_R"]
    by_hand = lstm_by_hand.Parameters(of["embedding"], of["layers.0.W"], of["layers.0.R"], bias, **output(of))
    trace = lstm_by_hand.forward(by_hand, IDS, TARGETS)
    wanted = lstm_by_hand.backward(by_hand, trace)
    loss, found = learn(made)
    assert_allclose(loss, trace.loss)
    pairs = {"embedding": wanted.E, "layers.0.W": wanted.W, "layers.0.R": wanted.R, "layers.0.b_R": wanted.b}
    check(found, pairs | {"layers.0.b_W": wanted.b, "output.weight": wanted.W_o, "output.bias": wanted.b_o})


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "leaky", "sigmoid"])
def test_elman(nonlinearity: Any) -> None:
    made = network(rnn, nonlinearity=nonlinearity)
    of = arrays(made)
    bias = of["layers.0.b_W"] + of["layers.0.b_R"]
    by_hand = elman.Parameters(of["embedding"], of["layers.0.W"], of["layers.0.R"], bias, **output(of))
    trace = elman.forward(by_hand, IDS, TARGETS, activation=nonlinearity)
    wanted = elman.backward(by_hand, trace)
    loss, found = learn(made)
    assert_allclose(loss, trace.loss)
    pairs = {"embedding": wanted.E, "layers.0.W": wanted.W_xh, "layers.0.R": wanted.W_hh, "layers.0.b_R": wanted.b}
    check(found, pairs | {"layers.0.b_W": wanted.b, "output.weight": wanted.W_o, "output.bias": wanted.b_o})


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru(reset: Any) -> None:
    made = network(gru, reset=reset)
    of = arrays(made)
    by_hand = gru_by_hand.Parameters(
        of["embedding"], of["layers.0.W"], of["layers.0.R"], **gru_biases(of), **output(of)
    )
    trace = gru_by_hand.forward(by_hand, IDS, TARGETS, reset=reset)
    wanted = gru_by_hand.backward(by_hand, trace)
    loss, found = learn(made)
    assert_allclose(loss, trace.loss)
    m = 5
    b_R = np.concatenate([wanted.b[: 2 * m], wanted.b_R])
    pairs = {"embedding": wanted.E, "layers.0.W": wanted.W, "layers.0.R": wanted.R, "layers.0.b_W": wanted.b}
    check(found, pairs | {"layers.0.b_R": b_R, "output.weight": wanted.W_o, "output.bias": wanted.b_o})


def test_feedforward() -> None:
    made = network(feedforward, order=4)
    of = arrays(made)
    by_hand = feedforward_by_hand.Parameters(
        of["embedding"], of["layers.0.weight"], of["layers.0.bias"], **output(of)
    )
    padded = np.concatenate([[VOCABULARY.bos] * 2, IDS])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3)
    trace = feedforward_by_hand.forward(by_hand, windows, TARGETS)
    wanted = feedforward_by_hand.backward(by_hand, trace)
    loss, found = learn(made)
    assert_allclose(loss, trace.loss)
    pairs = {"embedding": wanted.E, "layers.0.weight": wanted.W_h, "layers.0.bias": wanted.b_h}
    check(found, pairs | {"output.weight": wanted.W_o, "output.bias": wanted.b_o})


def check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)
