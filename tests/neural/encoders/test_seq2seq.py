"""Recurrent decoder in training: one dropout mask for all steps, weights in the compute dtype."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.lm import Vocabulary
from chainrule.neural.encoders import seq2seq
from chainrule.neural.encoders.seq2seq import PairConfig, Seq2Seq
from chainrule.training import device as precision

VOCABULARY = Vocabulary(11, 0, 1, 2)
SOURCE = torch.tensor([[5, 6, 7, 1], [8, 3, 4, 1]])
THERE = torch.ones(2, 4, dtype=torch.bool)
TARGET = torch.tensor([[0, 5, 6, 7, 8, 9], [0, 9, 8, 3, 4, 5]])


def network(**chosen: Any) -> Seq2Seq:
    torch.manual_seed(1)
    return Seq2Seq(PairConfig(**{"hidden": 16, "layers": 2, "dropout": 0.5, **chosen}), 11, VOCABULARY)


def second_layer_inputs(net: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """(T, B, D)."""
    state, second, inputs = net.encode(SOURCE, THERE), net.layers[1].W.data_ptr(), list[Tensor]()

    def recorded_linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
        if W.data_ptr() == second:
            inputs.append(x.detach())
        return functional.linear(x, W, b)

    monkeypatch.setattr(seq2seq, "linear", recorded_linear)
    net(TARGET, state)
    return torch.stack(inputs)


@pytest.mark.parametrize("family", ["gru", "lstm"])
@pytest.mark.parametrize("locked", [True, False])
def test_locked_dropout_mask_is_shared_by_all_steps(
    family: str, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = second_layer_inputs(network(family=family, locked=locked).train(), monkeypatch) == 0
    assert 0.3 < float(missing.float().mean()) < 0.7
    assert bool((missing == missing[0]).all()) == locked
    assert not bool((missing[0, 0] == missing[0, 1]).all())  # each row has its own


def test_no_dropout_in_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert second_layer_inputs(network(locked=True).eval(), monkeypatch).all()


@pytest.mark.parametrize("attention", ["dot", "scaled-dot", "general", "additive"])
def test_seq2seq_attention_scores_equal_their_definition(attention: str) -> None:
    net = network(attention=attention).double()
    q, k = torch.randn(2, 1, 16, dtype=torch.float64), torch.randn(2, 4, 16, dtype=torch.float64)
    torch.testing.assert_close(net._score_function()(q, net.score.keys(k)), net.score.score(q, k))


def test_weights_are_cast_once_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """In half precision autocast does not cache weights: weights not cast once per pass would be cast at each
    step.

    Here the pass computes in fp64 without autocast: a weight left in fp32 makes a product fail.
    """
    net = network(attention="additive", dropout=0.0).eval()
    with torch.no_grad():
        state = net.encode(SOURCE, THERE)
        y = torch.randn(2, 3, 16)
        expected = net._run_with_attention(y, state)
        monkeypatch.setattr(precision, "compute_dtype", lambda device: torch.float64)
        result = net._run_with_attention(y, state)
    for part, other in zip((*result[:2], result[3]), (*expected[:2], expected[3]), strict=True):
        assert part.dtype == torch.float64
        torch.testing.assert_close(part.float(), other)
