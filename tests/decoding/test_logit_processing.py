"""Filtered next-token distributions."""

from typing import Literal

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.decoding.filters import TokenHistory, apply_filters
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from decoding.toy import log


@pytest.mark.parametrize("closed", [True, False])
def test_unpredictable_tokens_are_excluded_and_renormalised(closed: bool) -> None:
    log_p = log([0.2, 0.1, 0.3, 0.4])
    before = log_p.copy()
    p = np.exp(apply_filters(log_p, [TokenHistory()], Decoding(unk="keep"), Vocabulary(4, 0, 1, 2, closed=closed)))
    # without <s>: .1, .3, .4 of .8; without <unk> too: .1 and .4 of .5
    assert_allclose(p, [[0, 0.2, 0, 0.8]] if closed else [[0, 0.125, 0.375, 0.5]], atol=1e-12)
    assert (log_p == before).all()


def test_impossible_tokens_stay_impossible() -> None:
    log_p = log([[0, 0.1, 0.4], [0, 0.5, 0.25]])
    before = log_p.copy()
    p = np.exp(apply_filters(log_p, [TokenHistory()] * 2, Decoding(), Vocabulary(3, 0, 1, None)))
    assert_allclose(p, [[0, 0.2, 0.8], [0, 2 / 3, 1 / 3]], atol=1e-12)
    assert (log_p == before).all()


def test_filtered_distribution_sums_to_one() -> None:
    p = np.exp(
        apply_filters(log([0, 0.2, 0.3, 0.5]), [TokenHistory()], Decoding(top_k=2), Vocabulary(4, 0, 1, None))
    )
    assert_allclose(p, [[0, 0, 0.375, 0.625]], atol=1e-12)


OPEN = Vocabulary(4, 0, 1, 2)


def test_unk_is_excluded_and_its_mass_redistributed() -> None:
    log_p = log([[0, 0.1, 0.5, 0.4], [0, 0, 0.75, 0.25]])
    before = log_p.copy()
    # without <unk>: .1 and .4 of .5; .25 of .25
    expected = np.array([[0, 0.2, 0, 0.8], [0, 0, 0, 1.0]])
    assert_allclose(np.exp(apply_filters(log_p, [TokenHistory()] * 2, Decoding(), OPEN)), expected, atol=1e-12)
    assert (log_p == before).all()


@pytest.mark.parametrize("unk", ["keep", "spell"])
def test_unk_is_kept_on_request(unk: Literal["keep", "spell"]) -> None:
    log_p = log([0, 0.1, 0.5, 0.4])
    assert_allclose(
        np.exp(apply_filters(log_p, [TokenHistory()], Decoding(unk=unk), OPEN)), np.exp(log_p), atol=1e-12
    )


def test_unk_does_not_count_towards_top_k() -> None:
    log_p = log([0, 0.1, 0.5, 0.4])
    p = np.exp(apply_filters(log_p, [TokenHistory()], Decoding(top_k=1), OPEN))
    assert_allclose(p, [[0, 0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize("settings", [Decoding(), Decoding(strategy="greedy"), Decoding(top_p=0.5, min_p=0.1)])
def test_text_ends_where_unk_is_the_only_continuation(settings: Decoding) -> None:
    log_p = log([[0.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5]])
    p = np.exp(apply_filters(log_p, [TokenHistory()] * 2, settings, OPEN))
    assert p[0].tolist() == [0, 1, 0, 0]


def test_row_without_possible_tokens_is_rejected() -> None:
    with pytest.raises(ConfigError, match="every token has probability 0"):
        apply_filters(log([[0, 0, 0, 0], [0, 0, 1, 0]]), [TokenHistory()] * 2, Decoding(), OPEN)
