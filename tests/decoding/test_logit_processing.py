"""Filtered next-token distributions."""

from typing import Literal

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.decoding.filters import apply_filters
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from decoding.toy import log


@pytest.mark.parametrize("closed", [True, False])
def test_what_is_not_predictable_is_impossible_and_its_mass_is_shared(closed: bool) -> None:
    given = log([0.2, 0.1, 0.3, 0.4])
    before = given.copy()
    found = np.exp(apply_filters(given, [[]], Decoding(unk="keep"), Vocabulary(4, 0, 1, 2, closed=closed)))
    # without <s>: .1, .3, .4 of .8; without <unk> too: .1 and .4 of .5
    assert_allclose(found, [[0, 0.2, 0, 0.8]] if closed else [[0, 0.125, 0.375, 0.5]], atol=1e-12)
    assert (given == before).all()


def test_what_has_no_probability_already_stays_as_it_is() -> None:
    given = log([[0, 0.1, 0.4], [0, 0.5, 0.25]])
    before = given.copy()
    found = np.exp(apply_filters(given, [[], []], Decoding(), Vocabulary(3, 0, 1, None)))
    assert_allclose(found, [[0, 0.2, 0.8], [0, 2 / 3, 1 / 3]], atol=1e-12)
    assert (given == before).all()


def test_what_filters_leave_sums_to_one() -> None:
    found = np.exp(apply_filters(log([0, 0.2, 0.3, 0.5]), [[]], Decoding(top_k=2), Vocabulary(4, 0, 1, None)))
    assert_allclose(found, [[0, 0, 0.375, 0.625]], atol=1e-12)


OPEN = Vocabulary(4, 0, 1, 2)


def test_unk_is_excluded_and_its_mass_is_shared() -> None:
    given = log([[0, 0.1, 0.5, 0.4], [0, 0, 0.75, 0.25]])
    before = given.copy()
    # without <unk>: .1 and .4 of .5; .25 of .25
    expected = np.array([[0, 0.2, 0, 0.8], [0, 0, 0, 1.0]])
    assert_allclose(np.exp(apply_filters(given, [[], []], Decoding(), OPEN)), expected, atol=1e-12)
    assert (given == before).all()


@pytest.mark.parametrize("unk", ["keep", "spell"])
def test_unk_may_be_drawn(unk: Literal["keep", "spell"]) -> None:
    given = log([0, 0.1, 0.5, 0.4])
    assert_allclose(np.exp(apply_filters(given, [[]], Decoding(unk=unk), OPEN)), np.exp(given), atol=1e-12)


def test_unk_takes_no_place_among_the_top_k() -> None:
    given = log([0, 0.1, 0.5, 0.4])
    found = np.exp(apply_filters(given, [[]], Decoding(top_k=1), OPEN))
    assert_allclose(found, [[0, 0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize("settings", [Decoding(), Decoding(strategy="greedy"), Decoding(top_p=0.5, min_p=0.1)])
def test_where_unk_is_the_only_continuation_the_text_ends(settings: Decoding) -> None:
    given = log([[0.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5]])
    found = np.exp(apply_filters(given, [[], []], settings, OPEN))
    assert found[0].tolist() == [0, 1, 0, 0]


def test_a_row_in_which_nothing_is_possible_is_still_refused() -> None:
    with pytest.raises(ConfigError, match="no token possible"):
        apply_filters(log([[0, 0, 0, 0], [0, 0, 1, 0]]), [[], []], Decoding(), OPEN)
