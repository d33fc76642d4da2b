"""Elman network: each nonlinearity by hand, and the kernels of torch.nn.RNN."""

import math
from typing import Literal

import pytest
import torch
from torch import nn

from chainrule.neural.rnn import Config, ElmanLayer, candidates

T, B, IN, D = 7, 3, 4, 5
Phi = Literal["tanh", "relu", "leaky", "sigmoid"]


@pytest.mark.parametrize(
    ("phi", "after"),
    [
        ("tanh", [math.tanh(1.5), math.tanh(-2.0)]),
        ("relu", [1.5, 0.0]),
        ("leaky", [1.5, -0.02]),
        ("sigmoid", [1 / (1 + math.exp(-1.5)), 1 / (1 + math.exp(2.0))]),
    ],
)
def test_elman_step_worked_by_hand(phi: Phi, after: list[float]) -> None:
    elman_layer = ElmanLayer(1, 2, Config(nonlinearity=phi)).double()
    with torch.no_grad():
        elman_layer.W.copy_(torch.tensor([[2.0], [-1.0]]))
        elman_layer.R.copy_(torch.tensor([[0.0, 1.0], [3.0, 0.0]]))
        elman_layer.b_W.copy_(torch.tensor([0.25, 0.25]))
        elman_layer.b_R.copy_(torch.tensor([0.25, -0.25]))
    # W x = (0.5, −0.25), R h = (0.5, −1.75), biases (0.5, 0): sum (1.5, −2)
    x, h = torch.tensor([[[0.25]]]).double(), torch.tensor([[-7 / 12, 0.5]], dtype=torch.float64)
    outputs, (last,) = elman_layer(x, (h,))
    torch.testing.assert_close(last, torch.tensor([after], dtype=torch.float64))
    torch.testing.assert_close(outputs[0], last)


@pytest.mark.parametrize("phi", ["tanh", "relu"])
def test_elman_kernel_cell_and_torch_agree(phi: Literal["tanh", "relu"]) -> None:
    torch.manual_seed(1)
    elman_layer = ElmanLayer(IN, D, Config(init="normal", init_range=1.0, nonlinearity=phi)).double()
    nn.init.normal_(elman_layer.b_W)
    nn.init.normal_(elman_layer.b_R)
    theirs = nn.RNN(IN, D, nonlinearity=phi, dtype=torch.float64)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), elman_layer.state_dict().values(), strict=True)))
    x, h = torch.randn(T, B, IN, dtype=torch.float64), torch.randn(B, D, dtype=torch.float64)
    outputs, last = theirs(x, h[None])
    torch.testing.assert_close(elman_layer(x, (h,)), (outputs, (last[0],)))
    torch.testing.assert_close(elman_layer.unroll(x, (h,), elman_layer.weights()), (outputs, (last[0],)))


@pytest.mark.parametrize("phi", ["leaky", "sigmoid"])
def test_elman_without_kernel_equals_the_loop(phi: Phi) -> None:
    elman_layer = ElmanLayer(IN, D, Config(nonlinearity=phi)).double()
    x, h = torch.randn(T, B, IN, dtype=torch.float64), torch.randn(B, D, dtype=torch.float64)
    outputs, _ = elman_layer(x, (h,))
    for t in range(T):
        a = x[t] @ elman_layer.W.t() + h @ elman_layer.R.t()  # initial biases are zero
        h = torch.where(a > 0, a, 0.01 * a) if phi == "leaky" else 1 / (1 + torch.exp(-a))
        torch.testing.assert_close(outputs[t], h)


def test_elman_candidates_and_facets() -> None:
    assert [config.facets["layers"] for config in candidates()] == [1]
    assert Config(hidden=8, layers=2, attention="general").facets == {
        "layers": 2,
        "width": 8,
        "attention": "general",
    }
