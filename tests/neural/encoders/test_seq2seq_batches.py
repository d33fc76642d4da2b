"""Batches of pairs, and the loss with and without label smoothing against the full distribution."""

from typing import Any

import numpy as np
import pytest
import torch

from chainrule.lm import Vocabulary
from chainrule.neural.encoders import seq2seq
from chainrule.neural.encoders.seq2seq import PairCollator, PairConfig, PairNetwork, pair_loss

VOCABULARY = Vocabulary(11, 0, 1, 2, closed=True)  # 9 words are possible: neither <s> nor <unk>
CPU = torch.device("cpu")
SOURCES = [np.array([5, 6, 7, 1]), np.array([8, 1]), np.array([4, 4, 9, 1])]
TARGETS = [np.array([3, 4, 1]), np.array([9, 8, 7, 6, 1]), np.array([1])]


def network(**chosen: Any) -> PairNetwork:
    torch.manual_seed(1)
    settings: dict[str, Any] = {"hidden": 8, "dropout": 0.0, **chosen}
    return seq2seq.build(PairConfig(**settings), 11, VOCABULARY)


def test_pair_batch_worked_by_hand() -> None:
    batch = PairCollator(SOURCES, TARGETS, VOCABULARY, CPU)(np.array([0, 2]))
    assert batch.source.tolist() == [[5, 6, 7, 1], [4, 4, 9, 1]]
    assert batch.inputs.tolist() == [[0, 3, 4], [0, 1, 1]]
    assert batch.targets.tolist() == [[3, 4, 1], [1, 1, 1]]
    assert batch.mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.target_positions.dtype == torch.int64
    assert batch.target_positions.tolist() == [0, 1, 2, 3]  # row 0 is 0 … 2, row 1 begins at 3


def test_target_positions_match_the_mask() -> None:
    batch = PairCollator(SOURCES, TARGETS, VOCABULARY, CPU)(np.array([2, 1, 0]))
    assert batch.target_positions.tolist() == batch.mask.flatten().nonzero()[:, 0].tolist()


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_pair_loss_and_gradient_equal_the_full_distribution(family: str, epsilon: float, tie: bool) -> None:
    """From all log-probabilities: −(1 − ε) log p(target) − ε mean_w log p(w) over the possible words."""
    head_settings = {"heads": 2} if family == "transformer" else {}
    net = network(family=family, label_smoothing=epsilon, tie=tie, **head_settings)
    torch.nn.init.normal_(net.output.bias)
    batch = PairCollator(SOURCES, TARGETS, VOCABULARY, CPU)(np.arange(3))
    loss, nats, _ = pair_loss(net, batch, ())
    loss.backward()
    result = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    hidden = net(batch.inputs, net.encode(batch.source, batch.source_mask)).hidden[batch.mask]
    log_p = net.output.log_probs(hidden)
    of_targets = log_p.gather(1, batch.targets[batch.mask][:, None])[:, 0]
    words = [w for w in range(11) if w not in (0, 2)]
    expected = -((1 - epsilon) * of_targets + epsilon * log_p[:, words].mean(dim=1)).mean()
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert float(nats.detach()) == pytest.approx(-float(of_targets.detach().mean()), rel=1e-5)
    for name, p in net.named_parameters():
        torch.testing.assert_close(result[name], p.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_largest_matmul_of_seq2seq_worked_by_hand() -> None:
    """GRU: R has 3 · 8 · 8 = 192 weights, 5 rows per step; Transformer: 8 · 32 = 256, or 8 · 20, at 5 · 7
    positions.
    """
    assert network().largest_matmul(5, 7) == 192 * 5
    assert network(family="transformer", heads=2).largest_matmul(5, 7) == 256 * 35
    assert network(family="transformer", heads=2, feedforward=20).largest_matmul(5, 7) == 160 * 35
