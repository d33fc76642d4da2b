"""Vanishing gradients: after a lag of noise an Elman network forgets a symbol, gated networks keep it."""

import pytest
import torch
from torch import Tensor

from chainrule.lm import Vocabulary
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.network import Network

VOCABULARY = Vocabulary(10, 0, 1, 2)  # 2 … 5 are the symbols to remember, 6 … 9 noise
SIZES = {"hidden": 32, "dropout": 0.0, "tie": False, "init_range": 1.0}
LAG, STEPS, ROWS, CHANCE = 50, 150, 32, 0.25


def task(rows: int, lag: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(B, lag + 1) a symbol and then noise; (B,) the symbol."""
    ids = torch.randint(6, 10, (rows, lag + 1), generator=generator)
    ids[:, 0] = torch.randint(2, 6, (rows,), generator=generator)
    return ids, ids[:, 0]


def accuracy_after_training(net: Network, lag: int) -> float:
    """Share of correctly named symbols after STEPS updates by Adam."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        ids, symbols = task(ROWS, lag, generator)
        optimizer.zero_grad()
        net.output.loss(net(ids, net.start(ROWS)).hidden[:, -1], symbols).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    ids, symbols = task(1000, lag, generator)
    with torch.no_grad():
        best = net.eval().output.log_probs(net(ids, net.start(1000)).hidden[:, -1]).argmax(dim=-1)
    return float((best == symbols).double().mean())


def elman() -> Network:
    torch.manual_seed(0)
    return rnn.build(rnn.Config(**SIZES), VOCABULARY, None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_elman_network_learns_a_short_lag() -> None:
    assert accuracy_after_training(elman(), lag=2) > 0.95


@pytest.mark.slow
def test_elman_network_fails_at_a_long_lag() -> None:
    assert accuracy_after_training(elman(), LAG) < CHANCE + 0.15


@pytest.mark.slow
def test_lstm_learns_a_long_lag() -> None:
    torch.manual_seed(0)
    net = lstm.build(lstm.Config(forget_bias=5.0, **SIZES), VOCABULARY, None)  # type: ignore[arg-type]
    assert accuracy_after_training(net, LAG) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_learns_a_long_lag(reset: str) -> None:
    torch.manual_seed(0)
    net = gru.build(gru.Config(reset=reset, **SIZES), VOCABULARY, None)  # type: ignore[arg-type]
    with torch.no_grad():
        net.get_parameter("layers.0.b_W")[32:64] = 3.0  # z keeps the state, like the forget-gate bias of the LSTM
    assert accuracy_after_training(net, LAG) > 0.95
