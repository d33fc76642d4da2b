"""Variance of attention scores: simulated within its standard error, exact over all pairs, by width over all
orders.
"""

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection import attention_scaling
from chainrule.inspection.attention_scaling import (
    HeadScores,
    accumulate,
    general_moments,
    isotropic_moments,
    simulate,
    summarize,
)
from chainrule.lm import Floats, Mask
from chainrule.neural.probes.measurements import AttentionRecord

PAIRS = 100_000
ERRORS = 4.5  # standard errors by which a simulation may be off: once in 150,000 normal draws


def part(q: Floats, k: Floats, mask: Mask, new: tuple[int, int] | None = None) -> AttentionRecord:
    T, S = mask.shape
    return AttentionRecord(
        layer=0,
        weights=np.zeros((len(q), T, S)),
        mask=mask,
        query_positions=np.arange(T),
        key_positions=np.arange(S),
        new_keys=new or (0, S),
        queries=q,
        keys=k,
    )


def some(H: int = 2, T: int = 7, d: int = 3) -> AttentionRecord:
    rng = np.random.default_rng(4)
    q, k = rng.normal(0.3, 1.0, (H, T, d)), rng.normal(-0.5, 2.0, (H, T, d))
    return part(q, k + 0.5 * q, np.tri(T, dtype=bool))


def summarize_scores(record: AttentionRecord) -> list[HeadScores]:
    sums = accumulate(record)
    assert sums is not None
    return summarize(sums, 0)


@pytest.mark.parametrize("d", [1, 8, 64])
@pytest.mark.parametrize(("mean", "sigma"), [(0.0, 1.0), (0.5, 1.0), (-1.0, 0.3), (2.0, 1.5)])
def test_isotropic_law_holds_for_simulated_pairs(mean: float, sigma: float, d: int) -> None:
    """Within 4.5 standard errors, √(v/n) of the mean and √((m₄ − v²)/n) of the variance; n = 100,000."""
    expected = isotropic_moments(mean, sigma, d)
    simulated = simulate(mean, sigma, d, PAIRS, np.random.default_rng(d))
    assert abs(simulated.mean - expected.mean) < ERRORS * simulated.mean_error
    assert abs(simulated.variance - expected.variance) < ERRORS * simulated.variance_error
    assert simulated.variance_error < 0.05 * expected.variance  # small enough that the test can fail


def test_isotropic_law_worked_by_hand() -> None:
    """μ = (1, 2), σ = 3: μᵀμ = 5; 2·9·5 + 2·81 = 252."""
    assert isotropic_moments(np.array([1.0, 2.0]), 3.0, 2) == (5.0, 252.0)
    assert isotropic_moments(0.5, 1.0, 4) == (1.0, 6.0)  # μᵀμ = 4 · 0.25; 2 · 1 + 4


def test_isotropic_law_with_a_mean_per_dimension() -> None:
    mu = np.array([2.0, -1.0, 0.0])
    simulated = simulate(mu, 0.5, 3, PAIRS, np.random.default_rng(1))
    expected = isotropic_moments(mu, 0.5, 3)
    assert abs(simulated.variance - expected.variance) < ERRORS * simulated.variance_error


def test_general_law_contains_the_isotropic_one() -> None:
    mu, identity = np.array([1.0, -2.0, 0.5]), np.eye(3)
    assert general_moments(mu, 4 * identity, mu, 4 * identity) == pytest.approx(isotropic_moments(mu, 2.0, 3))


def test_general_law_holds_for_simulated_pairs() -> None:
    """Two means and two covariances AAᵀ; standard error as above."""
    rng = np.random.default_rng(7)
    A, B = rng.normal(size=(2, 4, 4))
    m, n = rng.normal(size=(2, 4))
    q, k = m + rng.normal(size=(PAIRS, 4)) @ A.T, n + rng.normal(size=(PAIRS, 4)) @ B.T
    products = (q * k).sum(axis=1)
    apart = products - products.mean()
    variance = (apart**2).mean()
    error = np.sqrt(((apart**4).mean() - variance**2) / PAIRS)
    expected = general_moments(m, A @ A.T, n, B @ B.T)
    assert abs(variance - expected.variance) < ERRORS * error
    assert abs(products.mean() - expected.mean) < ERRORS * np.sqrt(variance / PAIRS)


def test_score_statistics_equal_plain_loops() -> None:
    record = some()
    assert record.queries is not None
    assert record.keys is not None
    for h, scores in enumerate(summarize_scores(record)):
        q, k = record.queries[h], record.keys[h]
        visible = [(t, s) for t in range(7) for s in range(t + 1)]
        assert scores.visible == pytest.approx(np.var([q[t] @ k[s] for t, s in visible]))
        assert scores.mean == pytest.approx(np.mean([q[t] @ k[s] for t, s in visible]))
        assert scores.every == pytest.approx(np.var([q[t] @ k[s] for t in range(7) for s in range(7)]))
        singles = [np.var([q[t, i] * k[s, i] for t, s in visible]) for i in range(3)]
        assert scores.products == pytest.approx(sum(singles))
        assert scores.deviation == pytest.approx(np.sqrt(scores.visible))
        assert scores.scaled_deviation == pytest.approx(np.sqrt(scores.visible / 3))
        assert (scores.head, scores.width) == (h, 3)


def test_law_is_exact_over_all_pairs_of_a_text() -> None:
    """Every query with every key means independence: tr(M_q M_k) − (μ_qᵀμ_k)² is the law, term by term."""
    for scores in summarize_scores(some()):
        assert scores.every == pytest.approx(scores.predicted)
        assert scores.visible != pytest.approx(scores.predicted, rel=1e-3)


def test_variance_by_width_is_the_mean_over_all_orders() -> None:
    record = some(H=1, d=4)
    assert record.queries is not None
    assert record.keys is not None
    rows, columns = np.nonzero(record.mask)
    products = record.queries[0, rows] * record.keys[0, columns]  # (pairs, d)
    orders = list(itertools.permutations(range(4)))
    expected = np.mean([np.var(np.cumsum(products[:, order], axis=1), axis=0) for order in orders], axis=0)
    (scores,) = summarize_scores(record)
    assert_allclose(scores.by_width, expected)
    assert scores.by_width[-1] == pytest.approx(scores.visible)


def test_scaled_variance_of_independent_dimensions_is_constant() -> None:
    """Standard normal entries: the raw variance is the width, within 5 %; divided by √d it is 1."""
    q, k = np.random.default_rng(3).normal(size=(2, 1, 1200, 16))
    (scores,) = summarize_scores(part(q, k, np.ones((1200, 1200), dtype=bool)))
    width = np.arange(1, 17)
    assert_allclose(scores.by_width / width, np.ones(16), rtol=0.05)
    assert scores.deviation == pytest.approx(4, rel=0.05)
    assert scores.scaled_deviation == pytest.approx(1, rel=0.05)


def test_splitting_a_text_counts_each_key_once() -> None:
    complete = some()
    assert complete.queries is not None
    assert complete.keys is not None
    pieces = [
        part(complete.queries[:, a:b], complete.keys, complete.mask[a:b], new=(a, b))
        for a, b in ((0, 3), (3, 4), (4, 7))
    ]
    sums = [accumulate(item) for item in pieces]
    assert all(item is not None for item in sums)
    total = sums[0]
    for item in sums[1:]:
        assert total is not None
        assert item is not None
        total = total + item
    assert total is not None
    for one, other in zip(summarize(total, 0), summarize_scores(complete), strict=True):
        for name in ("visible", "every", "predicted", "products", "mean"):
            assert getattr(one, name) == pytest.approx(getattr(other, name))


def test_additive_attention_has_no_score_statistics() -> None:
    assert (
        accumulate(
            AttentionRecord(
                **{
                    name: getattr(some(), name)
                    for name in ("layer", "weights", "mask", "query_positions", "key_positions", "new_keys")
                }
            )
        )
        is None
    )


def test_scores_of_one_token_and_one_dimension() -> None:
    ones = np.ones((1, 1, 1))
    (scores,) = summarize_scores(part(ones, ones, np.ones((1, 1), dtype=bool)))
    assert (scores.visible, scores.every, scores.predicted, scores.products) == (0, 0, 0, 0)
    assert scores.by_width.tolist() == [0]
    nothing = summarize_scores(part(ones, ones, np.zeros((1, 1), dtype=bool)))[0]
    assert (nothing.visible, nothing.mean) == (0, 0)


def words_of(drawn: str) -> str:
    root = ElementTree.fromstring(drawn)
    return " | ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))


def test_simulated_variance_plot() -> None:
    pytest.importorskip("matplotlib")
    drawn = attention_scaling.draw_simulated(pairs=500)
    assert "qᵀk / √d" in words_of(drawn)
    assert "512" in words_of(drawn)
    assert "<title>Variance of random dot products by width</title>" in drawn
    assert drawn == attention_scaling.draw_simulated(pairs=500)
    assert drawn != attention_scaling.draw_simulated(pairs=500, seed=1)
    assert len(drawn) < 20_000


@pytest.mark.parametrize("d", [1, 2, 64])
def test_measured_variance_plot(d: int) -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 3, 20, d))
    drawn = attention_scaling.draw_measured(
        summarize_scores(part(q, k, np.tri(20, dtype=bool))), model="a <b> model"
    )
    ElementTree.fromstring(drawn)
    assert "the median of 3 heads" in drawn
    assert "<b>" not in drawn
    assert len(drawn) < 20_000


def test_measured_variance_plot_without_variance() -> None:
    pytest.importorskip("matplotlib")
    ones = np.ones((1, 1, 2))
    drawn = attention_scaling.draw_measured(
        summarize_scores(part(ones, ones, np.ones((1, 1), dtype=bool))), model="x"
    )
    ElementTree.fromstring(drawn)
    assert "nan" not in drawn
