"""What a strategy chooses from."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import shape
from chainrule.lm import Vocabulary
from decoding.toy import log


@pytest.mark.parametrize("closed", [True, False])
def test_what_is_not_predictable_is_impossible_and_its_mass_is_shared(closed: bool) -> None:
    given = log([0.2, 0.1, 0.3, 0.4])
    before = given.copy()
    found = np.exp(shape(given, [[]], Decoding(), Vocabulary(4, 0, 1, 2, closed=closed)))
    # without <s>: .1, .3, .4 of .8; without <unk> too: .1 and .4 of .5
    assert_allclose(found, [[0, 0.2, 0, 0.8]] if closed else [[0, 0.125, 0.375, 0.5]], atol=1e-12)
    assert (given == before).all()


def test_what_has_no_probability_already_stays_as_it_is() -> None:
    given = log([[0, 0.1, 0.4], [0, 0.5, 0.25]])
    before = given.copy()
    found = np.exp(shape(given, [[], []], Decoding(), Vocabulary(3, 0, 1, None)))
    assert_allclose(found, [[0, 0.2, 0.8], [0, 2 / 3, 1 / 3]], atol=1e-12)
    assert (given == before).all()


def test_what_filters_leave_sums_to_one() -> None:
    found = np.exp(shape(log([0, 0.2, 0.3, 0.5]), [[]], Decoding(top_k=2), Vocabulary(4, 0, 1, None)))
    assert_allclose(found, [[0, 0, 0.375, 0.625]], atol=1e-12)
