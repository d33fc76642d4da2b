"""Layers padded for tensor cores give the outputs and gradients of the unpadded ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.neural import gru, lstm, recurrent, rnn
from chainrule.neural.recurrent import RecurrentLayer

LAYERS: dict[str, Any] = {
    "lstm": lambda i, o: lstm.LSTMLayer(i, o, lstm.Config()),
    "gru": lambda i, o: gru.GRULayer(i, o, gru.Config()),
    "rnn-tanh": lambda i, o: rnn.ElmanLayer(i, o, rnn.Config()),
    "rnn-relu": lambda i, o: rnn.ElmanLayer(i, o, rnn.Config(nonlinearity="relu")),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("E", "D"), [(5, 6), (8, 6), (5, 8)])
def test_padded_layers_equal_unpadded_ones(kind: str, E: int, D: int) -> None:
    torch.manual_seed(1)
    layers: list[RecurrentLayer] = [LAYERS[kind](E, D).double(), LAYERS[kind](D, D).double()]
    weights = [w for layer in layers for w in layer.weights()]
    x = torch.randn(7, 3, E, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(2, 3, D, dtype=torch.float64) for _ in range(layers[0].n_states))
    results = [read(layers[0], way, x, state, weights) for way in ("kernel", "run_padded_kernel")]
    for narrow, wide in zip(*results, strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-10, atol=1e-12)


def read(layer: RecurrentLayer, way: str, x: Tensor, state: Any, weights: list[Tensor]) -> list[Tensor]:
    """Outputs, final state, and the gradients of a function of both."""
    outputs, after = getattr(layer, way)(x, state, weights, 0.0)
    loss = outputs.square().sum() + sum(s.sin().sum() for s in after)
    return [outputs, *after, *torch.autograd.grad(loss, [x, *weights])]


def test_widths_divisible_by_eight_are_not_padded() -> None:
    x, h = torch.zeros(2, 3, 16), torch.zeros(1, 3, 8)
    assert recurrent.is_aligned(x, (h,))
    assert not recurrent.is_aligned(x[..., :15], (h,))
    assert recurrent.pad_last_dim(x[..., :9]).shape == (2, 3, 16)
    assert [w.shape for w in recurrent.pad_weights([torch.ones(12, 3), torch.ones(12)], 4)] == [
        (32, 8),
        (32,),
    ]
