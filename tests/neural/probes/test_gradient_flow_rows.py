"""Gradient flow: sampling of positions, batching, edge cases."""

import gc
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from chainrule.errors import ChainruleError, ConfigError
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.probes import gradient_flow as flow
from chainrule.neural.probes.gradient_flow import gradient_flow, sample_rows
from neural.adaptation_models import CLOSED, WORDS, encoded, make, some_ids
from neural.gradient_flow_models import fill, last_row, recurrent

ALL_KINDS = ["lstm", "gru", "learned-start", "feedforward", "transformer", "adaptive"]


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("family", ALL_KINDS)
def test_short_rows_start_from_the_preceding_state(family: str, context: Any) -> None:
    """The first three lags are the same, whether rows are three tokens long or as long as possible."""
    lm, text = make(family, context), encoded(some_ids(40))
    short = gradient_flow(lm, text, lags=2, positions=99)
    long = gradient_flow(lm, text, lags=39, positions=99)
    for short_flow, long_flow in zip(short, long, strict=True):
        assert short_flow.norms.shape[1] == 40
        assert_allclose(short_flow.norms, long_flow.norms[..., :3], rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("family", ALL_KINDS)
def test_gradient_flow_does_not_depend_on_chunking(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, text = make(family), encoded(some_ids(40))
    calls: list[tuple[str, int, int | None]] = []
    expected = gradient_flow(lm, text, lags=7, positions=10, seed=4)
    monkeypatch.setattr(flow, "ROOM", 1)
    parts = gradient_flow(lm, text, lags=7, positions=10, seed=4, name="x", progress=lambda *a: calls.append(a))
    assert calls[-1] == ("gradient flow of x", 10, 10)
    for expected_flow, actual_flow in zip(expected, parts, strict=True):
        assert_allclose(expected_flow.norms, actual_flow.norms, rtol=2e-4, atol=1e-7)


def test_unavailable_lags_are_nan() -> None:
    flow = last_row(make("lstm", "line"), some_ids(18, lines=9))["h"]
    past = np.tile(np.arange(9), 2)  # two lines of nine
    assert np.array_equal(np.isnan(flow.norms[0]), np.arange(18) > past[:, None])


def test_transformer_rows_end_at_the_window() -> None:
    rows = sample_rows(make("transformer"), encoded(some_ids(20)), 99, 99, 0)
    assert rows.begin.tolist() == [0] * 6 + [6] * 6 + [12] * 6 + [18] * 2
    assert rows.first.tolist() == rows.begin.tolist()


def test_sampled_positions_have_long_histories_and_are_spread_out() -> None:
    rows = sample_rows(make("lstm"), encoded(some_ids(1000)), 100, 20, 0)
    assert len(rows.last) == 20
    assert (rows.last - rows.first == 100).all()
    parts = np.linspace(100, 1000, 21)  # one in each twentieth of the positions with such a history
    assert ((rows.last >= parts[:-1] - 1) & (rows.last <= parts[1:])).all()
    reseeded = sample_rows(make("lstm"), encoded(some_ids(1000)), 100, 20, 1)
    assert not np.array_equal(rows.last, reseeded.last)
    lines = sample_rows(make("lstm", "line"), encoded(some_ids(900)), 100, 20, 0)  # 100 lines of 9
    assert (lines.last - lines.first == 8).all()  # 80 candidates: the line ends


def test_impossible_tokens_are_not_sampled() -> None:
    ids = some_ids(12)
    ids[4] = 2  # <unk>
    assert 4 not in sample_rows(make(words=CLOSED), encoded(ids), 5, 99, 0).last
    assert gradient_flow(make(words=CLOSED), encoded(np.full(3, 2, np.int32)), lags=5) == []


# Edge cases.


@pytest.mark.parametrize("family", ALL_KINDS)
def test_gradient_flow_of_one_token(family: str) -> None:
    for one_flow in gradient_flow(make(family), encoded(np.array([WORDS.eos], np.int32))):
        assert one_flow.norms.shape[1:] == (1, 101)
        assert one_flow.lags == 1
        assert one_flow.half_life(0) is None


def test_gradient_flow_of_no_tokens_or_unknown_networks_is_empty() -> None:
    assert gradient_flow(make(), encoded(np.zeros(0, np.int32))) == []
    unknown: Any = make()
    unknown.network = torch.nn.Linear(2, 2)
    assert gradient_flow(unknown, encoded(some_ids(9))) == []


@pytest.mark.parametrize("module", [lstm, gru, rnn])
def test_gradient_flow_of_width_one(module: Any) -> None:
    assert last_row(recurrent(module, hidden=1), some_ids(9))["h"].lags == 6


def test_invalid_gradient_flow_settings_are_rejected() -> None:
    for settings in ({"lags": 0}, {"positions": 0}):
        with pytest.raises(ConfigError, match="choose 1 or more"):
            gradient_flow(make(), encoded(some_ids(9)), **settings)  # type: ignore[arg-type]


def test_overflowing_gradients_are_infinite() -> None:
    """tanh' = 1 at a state of 0 and R = 5: 5^k exceeds fp32, 3.4e38, from k = 56 on."""
    lm = recurrent(rnn, hidden=1, tie=False)
    fill(lm, layers__0__R=5.0, output__weight=np.linspace(-1, 1, WORDS.size)[:, None])
    lm.network.float()
    flow = last_row(lm, some_ids(80))["h"]
    assert not np.isnan(flow.norms[0, -1]).any()
    assert np.isinf(flow.norms[0, -1, 57:]).all()
    assert np.isfinite(flow.norms[0, -1, :55]).all()
    assert flow.half_life(0) == math.inf


def test_overflowing_states_are_rejected() -> None:
    lm = recurrent(rnn, hidden=1, nonlinearity="relu", tie=False)
    fill(lm, layers__0__R=1e200, layers__0__b_W=1.0, output__weight=np.linspace(-1, 1, WORDS.size)[:, None])
    with pytest.raises(ChainruleError, match="overflowed to infinity"):
        last_row(lm, some_ids(9))


def test_gradient_flow_leaves_the_network_unchanged() -> None:
    lm = make("transformer")
    before = [parameter.clone() for parameter in lm.network.parameters()]
    gradient_flow(lm, encoded(some_ids(20)))
    assert all(torch.equal(*both) for both in zip(before, lm.network.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in lm.network.parameters())
    assert all(not module._forward_pre_hooks for module in lm.network.modules())
    frozen = make("lstm")
    frozen.network.requires_grad_(False)
    assert gradient_flow(frozen, encoded(some_ids(20)))[0].lags > 1


def test_gradient_flow_frees_its_graph_immediately() -> None:
    """Without waiting for garbage collection: texts are read in pieces to bound memory."""
    lm, text = make("lstm"), encoded(some_ids(40))
    gradient_flow(lm, text)
    gc.collect()
    gc.disable()
    try:
        before = sum(issubclass(type(item), Tensor) for item in gc.get_objects())
        gradient_flow(lm, text)
        after = sum(issubclass(type(item), Tensor) for item in gc.get_objects())
    finally:
        gc.enable()
    assert after - before < 20  # of 40 steps in 2 layers, each with a state and four gates
