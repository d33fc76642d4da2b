import numpy as np
import pytest

from chainrule.errors import ChainruleWarning
from chainrule.ngram.smoothing import absolute_discount, good_turing_ratios, modified_discounts

# n1 = 10, n2 = 5, n3 = 3, n4 = 2, n5 = 1, n6 = 1
COUNTS = np.array([1] * 10 + [2] * 5 + [3] * 3 + [4] * 2 + [5] + [6] + [40])


def test_absolute_discount_worked_by_hand() -> None:
    assert absolute_discount(COUNTS, 2) == pytest.approx(10 / 20)


def test_modified_discounts_worked_by_hand() -> None:
    # Y = 10/20 = .5; D1 = 1 − 2·.5·5/10 = .5; D2 = 2 − 3·.5·3/5 = 1.1; D3 = 3 − 4·.5·2/3 = 5/3
    discounts = modified_discounts(COUNTS, 2)
    assert (discounts.one, discounts.two, discounts.three) == pytest.approx((0.5, 1.1, 5 / 3))
    assert discounts.of(np.array([0, 1, 2, 3, 9])).tolist() == pytest.approx([0, 0.5, 1.1, 5 / 3, 5 / 3])


def test_good_turing_ratios_worked_by_hand() -> None:
    # A = 6·1/10 = .6. c=1: c* = 2·5/10 = 1, not below c: no discount. c=2: c* = 3·3/5 = 1.8, c*/c = .9,
    # (.9 − .6)/.4 = .75. c=3: 4·2/3 = 2.67, .889: (.889 − .6)/.4 = .7222. c=4: 5·1/2 = 2.5, .625: .0625.
    # c=5: 6·1/1 = 6, not below c: no discount.
    ratios = good_turing_ratios(COUNTS, 2)
    assert ratios[1:].tolist() == pytest.approx([1, 0.75, 0.7222222, 0.0625, 1, 1])


def test_discounts_of_a_small_text_fall_back_with_a_warning() -> None:
    with pytest.warns(
        ChainruleWarning, match=r"order 3: using default discounts 0\.5, 1, 1\.5: .*n1=2, n2=0, n3=0, n4=0"
    ):
        assert modified_discounts(np.array([1, 1]), 3).two == 1.0
    with pytest.warns(ChainruleWarning, match="using the default discount 0.5:"):
        assert absolute_discount(np.array([1, 1]), 1) == 0.5
    with pytest.warns(ChainruleWarning, match="order 1: using no discount:"):
        assert set(good_turing_ratios(np.array([2, 2]), 1)) == {1.0}


def test_discounts_out_of_range_fall_back() -> None:
    counts = np.array([1] + [2] * 5 + [3] * 50 + [4] * 100)  # D2 = 2 − 3·(1/11)·10 < 0
    with pytest.warns(ChainruleWarning, match="come out as"):
        assert modified_discounts(counts, 2).one == 0.5
