"""LSTM: kernel, cell and torch.nn.LSTM agree; forget-gate bias; parameter count."""

import pytest
import torch
from torch import nn

from chainrule.lm import Vocabulary
from chainrule.neural.lstm import Config, LSTMLayer, build, candidates

VOCABULARY = Vocabulary(11, 0, 1, 2)
T, B, IN, D = 7, 3, 4, 5


def layer() -> LSTMLayer:
    torch.manual_seed(1)
    lstm_layer: LSTMLayer = LSTMLayer(IN, D, Config(init="normal", init_range=1.0)).double()
    nn.init.normal_(lstm_layer.b_W)
    nn.init.normal_(lstm_layer.b_R)
    return lstm_layer


def torch_lstm_of(lstm_layer: LSTMLayer) -> nn.LSTM:
    theirs = nn.LSTM(IN, D, dtype=torch.float64)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), lstm_layer.state_dict().values(), strict=True)))
    return theirs


@pytest.mark.parametrize("steps", [1, T])
def test_lstm_kernel_cell_and_torch_agree(steps: int) -> None:
    lstm_layer = layer()
    x = torch.randn(steps, B, IN, dtype=torch.float64)
    state = torch.randn(2, B, D, dtype=torch.float64).unbind(0)
    outputs, (h, c) = lstm_layer(x, state)
    loop, (h_loop, c_loop) = lstm_layer.unroll(x, state, lstm_layer.weights())
    theirs, (h_theirs, c_theirs) = torch_lstm_of(lstm_layer)(x, tuple(s[None] for s in state))
    for ours in ((outputs, h, c), (loop, h_loop, c_loop)):
        torch.testing.assert_close(ours, (theirs, h_theirs[0], c_theirs[0]))


def test_lstm_kernel_gradients_equal_the_cell() -> None:
    lstm_layer, x = layer(), torch.randn(T, B, IN, dtype=torch.float64)
    state = torch.randn(2, B, D, dtype=torch.float64).unbind(0)
    gradients = []
    for run in (lstm_layer.forward_with, lstm_layer.unroll):
        outputs, (_, c) = run(x, state, lstm_layer.weights())
        gradients.append(torch.autograd.grad(outputs.square().sum() + c.sum(), list(lstm_layer.parameters())))
    torch.testing.assert_close(*gradients)


def test_lstm_fp32_kernel_agrees_with_the_cell() -> None:
    lstm_layer, x = layer().float(), torch.randn(T, B, IN)
    state = torch.randn(2, B, D).unbind(0)
    torch.testing.assert_close(
        lstm_layer(x, state), lstm_layer.unroll(x, state, lstm_layer.weights()), rtol=1e-5, atol=1e-6
    )


def test_forget_bias_is_in_one_bias_only() -> None:
    lstm_layer = LSTMLayer(IN, D, Config(forget_bias=2.5))
    assert lstm_layer.b_W.tolist() == [0.0] * D + [2.5] * D + [0.0] * 2 * D
    assert not lstm_layer.b_R.any()


def test_open_forget_gate_keeps_the_cell() -> None:
    lstm_layer = LSTMLayer(IN, D, Config(forget_bias=50.0)).double()
    with torch.no_grad():
        lstm_layer.b_W[:D] = -50.0  # closed input gate
    c = torch.randn(B, D, dtype=torch.float64)
    _, (_, after) = lstm_layer(torch.randn(T, B, IN, dtype=torch.float64), (torch.zeros_like(c), c))
    torch.testing.assert_close(after, c)


def test_lstm_has_four_times_the_weights_of_elman() -> None:
    # Elman: W 5·4 + R 5·5 + two biases of 5 = 55
    assert sum(p.numel() for p in LSTMLayer(IN, D, Config()).parameters()) == 4 * 55


def test_parameter_names_and_widths_of_a_stack() -> None:
    net = build(Config(hidden=8, embedding=4, layers=3), VOCABULARY, None)
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters() if name.endswith((".W", ".R"))}
    assert shapes == {
        "layers.0.W": (32, 4),
        "layers.0.R": (32, 8),
        "layers.1.W": (32, 8),
        "layers.1.R": (32, 8),
        "layers.2.W": (16, 8),  # tied: the last layer is as wide as the word vectors
        "layers.2.R": (16, 4),
    }


def test_lstm_candidates_have_distinct_facets() -> None:
    names = ["-".join(str(value) for value in config.facets.values()) for config in candidates()]
    assert len(set(names)) == len(names) == 2
    assert Config(layers=2, hidden=8, attention="dot").facets == {"layers": 2, "width": 8, "attention": "dot"}
