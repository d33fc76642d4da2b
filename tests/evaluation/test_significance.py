import math

import numpy as np
import pytest

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.significance import Statistic, compare_bleu, paired_bootstrap
from chainrule.evaluation.translation import MetricName, bleu, chrf
from chainrule.lm import Floats, Ids

WORDS = [f"w{i}" for i in range(40)]


def mean_of(values: Floats) -> Statistic:
    return lambda ids: float(values[ids].mean())


def noisy_texts(n: int, errors: float, seed: int) -> tuple[list[str], list[str]]:
    """References, and the same with each word replaced with some probability."""
    reference_words = np.random.default_rng(0).choice(WORDS, size=(n, 8))
    rng = np.random.default_rng(seed)
    hypotheses = np.where(rng.random((n, 8)) < errors, rng.choice(WORDS, size=(n, 8)), reference_words)
    return [" ".join(row) for row in reference_words], [" ".join(row) for row in hypotheses]


def test_two_examples_by_hand() -> None:
    # Differences 0 and 2; of the four equally likely draws the means are 0, 1, 1, 2, and the whole gives 1.
    # |dᵢ − 1| ≥ 1 in half of them; 95 % of the draws reach from 0 to 2.
    comparison = paired_bootstrap(mean_of(np.array([3.0, 4.0])), mean_of(np.array([3.0, 2.0])), 2, samples=4000)
    assert (comparison.difference, comparison.a, comparison.b, comparison.samples) == (1, 3.5, 2.5, 4000)
    assert (comparison.low, comparison.high) == (0, 2)
    assert comparison.p_value == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 4000))


def test_the_interval_is_that_of_the_mean() -> None:
    # For the mean of many differences it is the normal one: d ± 1.96 s / √n.
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.1, 1, 400), rng.normal(0, 1, 400)
    comparison = paired_bootstrap(mean_of(a), mean_of(b), 400, samples=4000, seed=1)
    d, width = float((a - b).mean()), 1.96 * float((a - b).std()) / 20
    assert comparison.difference == pytest.approx(d)
    assert comparison.low == pytest.approx(d - width, abs=0.1 * width)
    assert comparison.high == pytest.approx(d + width, abs=0.1 * width)
    # Two-sided, of a normal difference: erfc(|d| / s_d √2), with s_d = width / 1.96.
    assert comparison.p_value == pytest.approx(math.erfc(abs(d) / (width / 1.96) / math.sqrt(2)), abs=0.03)


def test_the_pairing_is_used() -> None:
    # A is better by exactly 1 everywhere: whatever is drawn, the difference is 1.
    values = np.random.default_rng(0).normal(0, 100, 50)
    comparison = paired_bootstrap(mean_of(values + 1), mean_of(values), 50, samples=99)
    assert (comparison.difference, comparison.low, comparison.high) == pytest.approx((1, 1, 1))
    assert comparison.p_value == 1 / 100


def test_a_system_does_not_differ_from_itself() -> None:
    values = np.random.default_rng(0).normal(size=20)
    comparison = paired_bootstrap(mean_of(values), mean_of(values), 20, samples=50)
    assert (comparison.difference, comparison.low, comparison.high, comparison.p_value) == (0, 0, 0, 1)


def test_the_order_of_the_systems_turns_the_sign() -> None:
    a, b = np.array([1.0, 5.0, 2.0]), np.array([2.0, 1.0, 2.0])
    there = paired_bootstrap(mean_of(a), mean_of(b), 3, samples=200, seed=7)
    back = paired_bootstrap(mean_of(b), mean_of(a), 3, samples=200, seed=7)
    assert (back.difference, back.low, back.high) == pytest.approx((-there.difference, -there.high, -there.low))
    assert back.p_value == there.p_value


def test_a_seed_and_its_generator_are_the_same() -> None:
    a, b = np.arange(9.0), np.arange(9.0)[::-1]
    comparisons = [paired_bootstrap(mean_of(a), mean_of(b), 9, samples=30, seed=s) for s in (3, 3, 4)]
    assert comparisons[0] == comparisons[1] != comparisons[2]
    rng = np.random.default_rng(3)
    assert paired_bootstrap(mean_of(a), mean_of(b), 9, samples=30, seed=rng) == comparisons[0]


def test_drawn_ids_are_examples() -> None:
    seen: list[Ids] = []

    def remember(ids: Ids) -> float:
        seen.append(ids)
        return 0.0

    paired_bootstrap(remember, lambda ids: 0.0, 5, samples=100)
    assert seen[0].tolist() == [0, 1, 2, 3, 4]
    assert len(seen) == 101
    assert all(ids.shape == (5,) for ids in seen)
    assert set(np.concatenate(seen[1:]).tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_summed_counts_give_what_scoring_each_draw_gives(metric: MetricName) -> None:
    references, a = noisy_texts(30, 0.2, 1)
    _, b = noisy_texts(30, 0.3, 2)
    score = bleu if metric == "bleu" else chrf

    def slowly(comparison: list[str]) -> Statistic:
        return lambda ids: score([comparison[i] for i in ids], [references[i] for i in ids]).score

    direct = paired_bootstrap(slowly(a), slowly(b), 30, samples=40, seed=6)
    quick = compare_bleu(a, b, references, metric, samples=40, seed=6)
    assert quick.difference == pytest.approx(score(a, references).score - score(b, references).score)
    assert (quick.low, quick.high) == pytest.approx((direct.low, direct.high))
    assert quick.p_value == direct.p_value


def test_clear_and_absent_differences() -> None:
    references, good = noisy_texts(200, 0.1, 1)
    _, also_good = noisy_texts(200, 0.1, 2)
    _, bad = noisy_texts(200, 0.5, 3)
    clear = compare_bleu(good, bad, references, samples=200)
    assert clear.low > 0
    assert clear.p_value == 1 / 201
    none = compare_bleu(good, also_good, references, samples=200)
    assert none.low < 0 < none.high
    assert none.p_value > 0.05


def test_incomparable_input_is_rejected() -> None:
    with pytest.raises(InputError, match="1 texts but 2 references"):
        compare_bleu(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(UsageError, match="metric is 'ter'"):
        compare_bleu(["a"], ["a"], ["a"], "ter")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="samples is 0"):
        compare_bleu(["a"], ["a"], ["a"], samples=0)
    with pytest.raises(UsageError, match="n is 0"):
        paired_bootstrap(lambda ids: 0.0, lambda ids: 0.0, 0)
    with pytest.raises(UsageError, match="seed is -1"):
        paired_bootstrap(lambda ids: 0.0, lambda ids: 0.0, 1, seed=-1)
