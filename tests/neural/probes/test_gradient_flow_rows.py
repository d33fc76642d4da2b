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
def test_short_rows_begin_in_the_state_of_the_text_before(family: str, context: Any) -> None:
    """The first three lags are the same, whether rows are three tokens long or as long as can be."""
    lm, text = make(family, context), encoded(some_ids(40))
    short = gradient_flow(lm, text, lags=2, positions=99)
    long = gradient_flow(lm, text, lags=39, positions=99)
    for one, other in zip(short, long, strict=True):
        assert one.norms.shape[1] == 40
        assert_allclose(one.norms, other.norms[..., :3], rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("family", ALL_KINDS)
def test_pieces_change_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, text = make(family), encoded(some_ids(40))
    told: list[tuple[str, int, int | None]] = []
    whole = gradient_flow(lm, text, lags=7, positions=10, seed=4)
    monkeypatch.setattr(flow, "ROOM", 1)
    parts = gradient_flow(lm, text, lags=7, positions=10, seed=4, name="x", progress=lambda *a: told.append(a))
    assert told[-1] == ("gradient flow of x", 10, 10)
    for one, other in zip(whole, parts, strict=True):
        assert_allclose(one.norms, other.norms, rtol=2e-4, atol=1e-7)


def test_lags_that_no_token_has_are_not_numbers() -> None:
    found = last_row(make("lstm", "line"), some_ids(18, lines=9))["h"]
    past = np.tile(np.arange(9), 2)  # two lines of nine
    assert np.array_equal(np.isnan(found.norms[0]), np.arange(18) > past[:, None])


def test_rows_of_a_transformer_end_with_its_window() -> None:
    rows = sample_rows(make("transformer"), encoded(some_ids(20)), 99, 99, 0)
    assert rows.begin.tolist() == [0] * 6 + [6] * 6 + [12] * 6 + [18] * 2
    assert rows.first.tolist() == rows.begin.tolist()


def test_positions_with_a_long_past_are_preferred_and_lie_all_over_the_text() -> None:
    rows = sample_rows(make("lstm"), encoded(some_ids(1000)), 100, 20, 0)
    assert len(rows.last) == 20
    assert (rows.last - rows.first == 100).all()
    parts = np.linspace(100, 1000, 21)  # one in each twentieth of what has such a past
    assert ((rows.last >= parts[:-1] - 1) & (rows.last <= parts[1:])).all()
    other = sample_rows(make("lstm"), encoded(some_ids(1000)), 100, 20, 1)
    assert not np.array_equal(rows.last, other.last)
    lines = sample_rows(make("lstm", "line"), encoded(some_ids(900)), 100, 20, 0)  # 100 lines of 9
    assert (lines.last - lines.first == 8).all()  # 80 were to choose from: the ends of lines


def test_impossible_tokens_have_no_loss() -> None:
    ids = some_ids(12)
    ids[4] = 2  # <unk>
    assert 4 not in sample_rows(make(words=CLOSED), encoded(ids), 5, 99, 0).last
    assert gradient_flow(make(words=CLOSED), encoded(np.full(3, 2, np.int32)), lags=5) == []


# Odd input.


@pytest.mark.parametrize("family", ALL_KINDS)
def test_one_token(family: str) -> None:
    for found in gradient_flow(make(family), encoded(np.array([WORDS.eos], np.int32))):
        assert found.norms.shape[1:] == (1, 101)
        assert found.lags == 1
        assert found.half_life(0) is None


def test_no_token_and_other_networks() -> None:
    assert gradient_flow(make(), encoded(np.zeros(0, np.int32))) == []
    other: Any = make()
    other.network = torch.nn.Linear(2, 2)
    assert gradient_flow(other, encoded(some_ids(9))) == []


@pytest.mark.parametrize("module", [lstm, gru, rnn])
def test_width_one(module: Any) -> None:
    assert last_row(recurrent(module, hidden=1), some_ids(9))["h"].lags == 6


def test_settings_that_are_none() -> None:
    for settings in ({"lags": 0}, {"positions": 0}):
        with pytest.raises(ConfigError, match="choose 1 or more"):
            gradient_flow(make(), encoded(some_ids(9)), **settings)  # type: ignore[arg-type]


def test_errors_beyond_all_numbers_are_infinite() -> None:
    """tanh' = 1 at a state of 0 and R = 5: 5^k is beyond fp32, 3.4e38, from k = 56 on."""
    lm = recurrent(rnn, hidden=1, tie=False)
    fill(lm, layers__0__R=5.0, output__weight=np.linspace(-1, 1, WORDS.size)[:, None])
    lm.network.float()
    found = last_row(lm, some_ids(80))["h"]
    assert not np.isnan(found.norms[0, -1]).any()
    assert np.isinf(found.norms[0, -1, 57:]).all()
    assert np.isfinite(found.norms[0, -1, :55]).all()
    assert found.half_life(0) == math.inf


def test_states_beyond_all_numbers_are_refused() -> None:
    lm = recurrent(rnn, hidden=1, nonlinearity="relu", tie=False)
    fill(lm, layers__0__R=1e200, layers__0__b_W=1.0, output__weight=np.linspace(-1, 1, WORDS.size)[:, None])
    with pytest.raises(ChainruleError, match="overflowed to infinity"):
        last_row(lm, some_ids(9))


def test_the_network_stays_as_it_is() -> None:
    lm = make("transformer")
    before = [parameter.clone() for parameter in lm.network.parameters()]
    gradient_flow(lm, encoded(some_ids(20)))
    assert all(torch.equal(*both) for both in zip(before, lm.network.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in lm.network.parameters())
    assert all(not module._forward_pre_hooks for module in lm.network.modules())
    frozen = make("lstm")
    frozen.network.requires_grad_(False)
    assert gradient_flow(frozen, encoded(some_ids(20)))[0].lags > 1


def test_nothing_that_was_computed_lives_on() -> None:
    """Not even until rubbish is collected: a text is read in pieces so that memory is bounded."""
    lm, text = make("lstm"), encoded(some_ids(40))
    gradient_flow(lm, text, way="cells")
    gc.collect()
    gc.disable()
    try:
        before = sum(issubclass(type(each), Tensor) for each in gc.get_objects())
        gradient_flow(lm, text, way="cells")
        after = sum(issubclass(type(each), Tensor) for each in gc.get_objects())
    finally:
        gc.enable()
    assert after - before < 20  # of 40 steps in 2 layers, each with a state and four gates
