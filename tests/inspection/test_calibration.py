"""Calibration: small examples worked by hand, totals, and descriptions."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection.calibration import (
    BINS,
    Bin,
    Tally,
    binomial_tail,
    chance_level,
    describe,
    describe_error,
    equal_mass_bins,
    expected_calibration_error,
    is_miscalibrated,
    reliability_bins,
    tally_events,
)
from chainrule.lm import Floats, Ids


def log(p: list[float] | Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(p, dtype=np.float64))


def toy(p: list[float], came: list[int]) -> Tally:
    """The same distribution at every position."""
    targets: Ids = np.repeat(np.arange(len(came)), came)
    return tally_events(np.tile(log(p), (len(targets), 1)), targets)


def test_calibrated_example_has_equal_predicted_and_observed() -> None:
    # 1/2, 1/4, 1/4 at eight positions; the words occurred 4, 2 and 2 times. Expected hits: 4 at 1/2, 4 at 1/4.
    bins = equal_mass_bins(toy([0.5, 0.25, 0.25], [4, 2, 2]), bins=2)
    assert [(bin_.events, bin_.predicted, bin_.observed) for bin_ in bins] == [(8, 0.5, 0.5), (16, 0.25, 0.25)]
    # Variances 8 · 1/2 · 1/2 = 2 and 16 · 1/4 · 3/4 = 3, relative to 8 and 16 events.
    assert_allclose([bin_.error for bin_ in bins], [math.sqrt(2) / 8, math.sqrt(3) / 16])
    assert [bin_.p_value for bin_ in bins] == [1.0, 1.0]


def test_overconfident_example_is_observed_less_often() -> None:
    # 0.9 was predicted a hundred times and observed sixty, ten standard errors of 3 below ninety. A cell with 90
    # % of the mass is the middle of ten bins, the rest of the mass the last.
    bins = equal_mass_bins(toy([0.9, 0.1], [60, 40]), bins=10)
    first, last = bins
    assert_allclose([first.predicted, first.observed, last.predicted, last.observed], [0.9, 0.6, 0.1, 0.4])
    below = sum(math.comb(100, k) * 0.9**k * 0.1 ** (100 - k) for k in range(61))
    assert_allclose([first.p_value, last.p_value], 2 * below, rtol=1e-9)
    assert describe([first]) == "tokens it gives 90 % occur 60 % of the time: overconfident"


def test_tally_of_parts_equals_the_whole_tally() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 30)) * 3
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    targets = rng.integers(0, 30, size=50)
    total = tally_events(log_p, targets)
    parts = tally_events(log_p[:20], targets[:20]) + tally_events(log_p[20:], targets[20:])
    for name in ("events", "expected", "variance", "hits"):
        assert_allclose(getattr(parts, name), getattr(total, name), rtol=1e-12)
    assert total.events.sum() == 1500
    assert total.hits.sum() == 50
    assert total.expected.sum() == pytest.approx(50)  # every distribution sums to one
    bins = equal_mass_bins(total)
    assert sum(part.events for part in bins) == 1500
    assert sum(part.events * part.observed for part in bins) == pytest.approx(50)
    assert [part.predicted for part in bins] == sorted((part.predicted for part in bins), reverse=True)


def test_bins_have_equal_expected_hits() -> None:
    # Zipf's law over 1,000 words at 200 positions: 200 expected hits, 13.3 per bin. The first word alone has 13.4
    # % of the mass, two bins; below it a bin is off by less than one word.
    p = 1 / np.arange(1, 1001)
    bins = equal_mass_bins(toy(list(p / p.sum()), [200]))
    assert 10 <= len(bins) <= BINS
    expected = [bin_.events * bin_.predicted for bin_ in bins]
    assert sum(expected) == pytest.approx(200)
    assert all(0.4 * 200 / BINS < hits < 1.6 * 200 / BINS for hits in expected[3:])


def test_samples_of_the_model_are_calibrated() -> None:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(20, 0.3), size=4000)
    targets = np.array([rng.choice(20, p=row) for row in p])
    bins = equal_mass_bins(tally_events(log(p), targets))
    assert describe(bins).startswith("no significant miscalibration: at worst, tokens it gives ")
    sharper = p**2 / (p**2).sum(axis=1, keepdims=True)
    assert describe(equal_mass_bins(tally_events(log(sharper), targets))).endswith(": overconfident")
    flatter = p**0.5 / (p**0.5).sum(axis=1, keepdims=True)
    assert describe(equal_mass_bins(tally_events(log(flatter), targets))).endswith(": underconfident")


def test_impossible_tokens_that_occur_have_their_own_bin() -> None:
    # Two words share the mass; the third is impossible and occurred once in three.
    bins = equal_mass_bins(toy([0.5, 0.5, 0.0], [1, 1, 1]))
    assert [(bin_.events, bin_.predicted) for bin_ in bins] == [(6, 0.5), (3, 0.0)]
    assert_allclose([bin_.observed for bin_ in bins], [1 / 3, 1 / 3])
    assert bins[1].p_value == 0.0
    # Impossible tokens that never occurred are left out.
    assert [bin_.events for bin_ in equal_mass_bins(toy([0.5, 0.5, 0.0], [1, 1, 0]))] == [4]


def test_tiny_probabilities_are_not_impossible() -> None:
    (likely, unlikely) = equal_mass_bins(toy([1 - 1e-200, 1e-200], [3, 1]), bins=15)
    assert (likely.events, likely.observed) == (4, 0.75)
    assert (unlikely.events, unlikely.observed) == (4, 0.25)


def test_empty_tally_gives_no_bins() -> None:
    assert equal_mass_bins(Tally.empty()) == ()
    assert reliability_bins(np.zeros(0), np.zeros(0, dtype=bool)) == ()
    assert expected_calibration_error(()) == 0.0
    assert describe(()) == ""
    assert describe([Bin(10, 0.01, 0.5, 0.03)]) == ""  # one in a hundred is too rare to describe


def test_single_position_is_enough() -> None:
    bins = equal_mass_bins(toy([1.0], [1]))
    assert [(bin_.predicted, bin_.observed, bin_.p_value) for bin_ in bins] == [(1.0, 1.0, 1.0)]


def test_certain_but_wrong_is_significant() -> None:
    wrong = Bin(5, 1.0, 0.8, 0.0)
    assert wrong.p_value == 0.0
    assert describe([wrong]) == "tokens it gives 100 % occur 80 % of the time: overconfident"


def test_reliability_bins_worked_by_hand() -> None:
    # Fifteenths: 0.2 = 3/15 belongs to the third bin (2/15, 3/15]; 0.95 and 1 to the last.
    confidence = np.array([0.2, 0.19, 0.95, 1.0])
    bins = reliability_bins(confidence, np.array([True, False, True, False]))
    assert [bin_.events for bin_ in bins] == [2, 2]
    assert_allclose([bin_.predicted for bin_ in bins], [0.195, 0.975])
    assert_allclose([bin_.observed for bin_ in bins], [0.5, 0.5])
    # ECE = 2/4 · |0.5 − 0.195| + 2/4 · |0.5 − 0.975| = 0.1525 + 0.2375
    assert expected_calibration_error(bins) == pytest.approx(0.39)


def test_calibrated_predictions_have_no_calibration_error() -> None:
    # Ten predictions at 0.3, three correct; ten at 0.7, seven correct.
    confidence = np.repeat([0.3, 0.7], 10)
    is_right = np.array([True] * 3 + [False] * 7 + [True] * 7 + [False] * 3)
    assert expected_calibration_error(reliability_bins(confidence, is_right)) == pytest.approx(0.0, abs=1e-12)
    # All certain, half of them correct: off by a half.
    assert expected_calibration_error(reliability_bins(np.ones(4), np.array([1, 1, 0, 0], bool))) == 0.5


def test_description_requires_a_significant_difference() -> None:
    # 0.30 predicted, 0.27 observed of 500: 135 hits where 150 are expected, 1.5 standard errors of 10.2.
    words = describe([Bin(500, 0.30, 0.27, 0.02), Bin(500, 0.6, 0.6, 0.02)])
    assert words == (
        "no significant miscalibration: at worst, tokens it gives 30 % occur 27 % of the time, which chance can "
        "explain"
    )


def test_single_miss_is_not_significant() -> None:
    # One event at 0.99 that did not occur is ten standard errors off, with two-sided probability 0.02.
    miss = Bin(1, 0.99, 0.0, math.sqrt(0.99 * 0.01))
    assert miss.p_value == pytest.approx(0.02)
    assert describe([miss]).startswith("no significant miscalibration")
    # Three of them: 2 · 0.01³.
    assert Bin(3, 0.99, 0.0, 0.06).p_value == pytest.approx(2e-6)
    assert describe([Bin(3, 0.99, 0.0, 0.06)]).endswith(": overconfident")


def test_significance_is_corrected_for_the_number_of_bins() -> None:
    # Eight hits of ten at 0.4: 2 Σ_{k ≥ 8} C(10, k) 0.4^k 0.6^(10−k) = 2 · (0.010617 + 0.001573 + 0.000105).
    unlikely, plain = Bin(10, 0.4, 0.8, 0.155), Bin(10, 0.5, 0.5, 0.158)
    assert unlikely.p_value == pytest.approx(0.02459, abs=1e-5)
    odder = Bin(10, 0.4, 0.9, 0.155)  # 2 · (0.001573 + 0.000105) = 0.00336: below 1 % alone, but not among three
    assert describe([odder]).endswith(": underconfident")
    assert describe([odder, plain, plain]).startswith(
        "no significant miscalibration: at worst, tokens it gives 40 %"
    )


@pytest.mark.parametrize("p", [0.05, 0.5, 0.93])
@pytest.mark.parametrize("events", [1, 7, 300])
def test_binomial_tail_equals_the_sum(events: int, p: float) -> None:
    terms = [math.comb(events, k) * p**k * (1 - p) ** (events - k) for k in range(events + 1)]
    for hits in range(math.ceil(events * p), events + 1):
        assert binomial_tail(hits, events, p) == pytest.approx(math.fsum(terms[hits:]), rel=1e-9)


def test_chance_level_of_the_calibration_error() -> None:
    # One prediction at 1/2 is always off by 1/2; of two, none, one or both are correct: 1/2, 0, 1/2, so 1/4 on
    # average.
    assert chance_level([Bin(1, 0.5, 1.0, 0.5)])[0] == 0.5
    assert chance_level([Bin(2, 0.5, 1.0, 0.35)])[0] == pytest.approx(0.25, abs=0.02)
    # Ten predictions at 0.9 and thirty at 0.3, summed over all outcomes, weighted 1/4 and 3/4.
    both = [Bin(10, 0.9, 0.9, 0.09), Bin(30, 0.3, 0.3, 0.08)]
    exact = 0.0
    for weight, n, p in ((0.25, 10, 0.9), (0.75, 30, 0.3)):
        exact += weight * sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * abs(k / n - p) for k in range(n + 1))
    assert chance_level(both)[0] == pytest.approx(exact, rel=0.03)
    assert chance_level(both) == chance_level(both)
    assert chance_level([Bin(4, 1.0, 1.0, 0.0)])[0] == 0.0


def test_describe_calibration_error() -> None:
    # A hundred predictions at 0.9: the mean distance of the share from 0.9 is about √(2/π) · 0.03.
    assert math.sqrt(2 / math.pi) * 0.03 == pytest.approx(0.024, abs=1e-3)
    assert describe_error([Bin(100, 0.9, 0.6, 0.03)]) == (
        "the expected calibration error of its top predictions is 30.0 percentage points, against 2.4 for a "
        "perfectly calibrated model: this is more than chance explains"
    )
    assert describe_error([Bin(100, 0.9, 0.86, 0.03)]).endswith(": chance can explain this")
    assert " is 0.0 percentage points" in describe_error([Bin(3, 1.0, 1.0, 0.0)])
    assert is_miscalibrated([Bin(3, 1.0, 0.0, 0.0)])
    assert not is_miscalibrated([])


def describe_simulated(seed: int, tokens: int, peak: float, sharpness: float = 1.0) -> tuple[str, bool]:
    """Description of a model whose tokens are drawn from its own distributions, or from flatter ones."""
    rng = np.random.default_rng(seed)
    p = np.maximum(rng.dirichlet(np.full(20, peak), size=tokens), 1e-12)
    p /= p.sum(axis=1, keepdims=True)
    targets = np.minimum((rng.random((tokens, 1)) > p.cumsum(axis=1)).sum(axis=1), 19)
    predicted = p**sharpness / (p**sharpness).sum(axis=1, keepdims=True)
    best = predicted.argmax(axis=1)
    guesses = reliability_bins(predicted.max(axis=1), best == targets)
    return describe(equal_mass_bins(tally_events(log(predicted), targets))), is_miscalibrated(guesses)


@pytest.mark.parametrize("peak", [0.3, 0.02])  # top predictions at 0.4 on average, and nearly always above 0.9
@pytest.mark.parametrize("tokens", [20, 60, 150, 1000])
def test_calibrated_model_is_rarely_called_miscalibrated(tokens: int, peak: float) -> None:
    descriptions = [describe_simulated(seed, tokens, peak) for seed in range(200)]
    assert sum(is_bad or words.endswith(("overconfident", "too cautious")) for words, is_bad in descriptions) <= 4


def test_overconfident_model_is_detected() -> None:
    for seed in range(20):
        words, is_bad = describe_simulated(seed, 1000, 0.3, sharpness=2.0)
        assert words.endswith(": overconfident")
        assert is_bad
