"""The law of score variances: simulated within its standard error, exact on all pairs, by width over all orders."""

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
ERRORS = 4.5  # standard errors that a simulation may lie off: once in 150,000 draws of a normal


def part(q: Floats, k: Floats, seen: Mask, new: tuple[int, int] | None = None) -> AttentionRecord:
    T, S = seen.shape
    return AttentionRecord(
        layer=0,
        weights=np.zeros((len(q), T, S)),
        mask=seen,
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


def found_of(each: AttentionRecord) -> list[HeadScores]:
    sums = accumulate(each)
    assert sums is not None
    return summarize(sums, 0)


@pytest.mark.parametrize("d", [1, 8, 64])
@pytest.mark.parametrize(("mean", "sigma"), [(0.0, 1.0), (0.5, 1.0), (-1.0, 0.3), (2.0, 1.5)])
def test_the_law_holds_for_pairs_drawn(mean: float, sigma: float, d: int) -> None:
    """Within 4.5 standard errors, √(v/n) of the mean and √((m₄ − v²)/n) of the variance; n = 100,000."""
    wanted = isotropic_moments(mean, sigma, d)
    found = simulate(mean, sigma, d, PAIRS, np.random.default_rng(d))
    assert abs(found.mean - wanted.mean) < ERRORS * found.mean_error
    assert abs(found.variance - wanted.variance) < ERRORS * found.variance_error
    assert found.variance_error < 0.05 * wanted.variance  # an error so small that the test can fail


def test_the_law_by_hand() -> None:
    """μ = (1, 2), σ = 3: μᵀμ = 5; 2·9·5 + 2·81 = 252."""
    assert isotropic_moments(np.array([1.0, 2.0]), 3.0, 2) == (5.0, 252.0)
    assert isotropic_moments(0.5, 1.0, 4) == (1.0, 6.0)  # μᵀμ = 4 · 0.25; 2 · 1 + 4


def test_a_mean_that_differs_by_dimension() -> None:
    mu = np.array([2.0, -1.0, 0.0])
    found = simulate(mu, 0.5, 3, PAIRS, np.random.default_rng(1))
    wanted = isotropic_moments(mu, 0.5, 3)
    assert abs(found.variance - wanted.variance) < ERRORS * found.variance_error


def test_the_general_law_contains_the_special_one() -> None:
    mu, identity = np.array([1.0, -2.0, 0.5]), np.eye(3)
    assert general_moments(mu, 4 * identity, mu, 4 * identity) == pytest.approx(isotropic_moments(mu, 2.0, 3))


def test_the_general_law_holds_for_pairs_drawn() -> None:
    """Two means and two covariances AAᵀ; the standard error as above."""
    rng = np.random.default_rng(7)
    A, B = rng.normal(size=(2, 4, 4))
    m, n = rng.normal(size=(2, 4))
    q, k = m + rng.normal(size=(PAIRS, 4)) @ A.T, n + rng.normal(size=(PAIRS, 4)) @ B.T
    products = (q * k).sum(axis=1)
    apart = products - products.mean()
    variance = (apart**2).mean()
    error = np.sqrt(((apart**4).mean() - variance**2) / PAIRS)
    wanted = general_moments(m, A @ A.T, n, B @ B.T)
    assert abs(variance - wanted.variance) < ERRORS * error
    assert abs(products.mean() - wanted.mean) < ERRORS * np.sqrt(variance / PAIRS)


def test_a_head_by_loops() -> None:
    each = some()
    assert each.queries is not None
    assert each.keys is not None
    for h, found in enumerate(found_of(each)):
        q, k = each.queries[h], each.keys[h]
        visible = [(t, s) for t in range(7) for s in range(t + 1)]
        assert found.visible == pytest.approx(np.var([q[t] @ k[s] for t, s in visible]))
        assert found.mean == pytest.approx(np.mean([q[t] @ k[s] for t, s in visible]))
        assert found.every == pytest.approx(np.var([q[t] @ k[s] for t in range(7) for s in range(7)]))
        singles = [np.var([q[t, i] * k[s, i] for t, s in visible]) for i in range(3)]
        assert found.products == pytest.approx(sum(singles))
        assert found.deviation == pytest.approx(np.sqrt(found.visible))
        assert found.scaled_deviation == pytest.approx(np.sqrt(found.visible / 3))
        assert (found.head, found.width) == (h, 3)


def test_over_every_pair_of_one_stretch_the_law_is_exact() -> None:
    """Every query with every key is what independence means: tr(M_q M_k) − (μ_qᵀμ_k)² is the law, term by term."""
    for found in found_of(some()):
        assert found.every == pytest.approx(found.predicted)
        assert found.visible != pytest.approx(found.predicted, rel=1e-3)


def test_the_variance_by_width_is_the_mean_over_all_orders() -> None:
    each = some(H=1, d=4)
    assert each.queries is not None
    assert each.keys is not None
    rows, columns = np.nonzero(each.mask)
    products = each.queries[0, rows] * each.keys[0, columns]  # (pairs, d)
    orders = list(itertools.permutations(range(4)))
    wanted = np.mean([np.var(np.cumsum(products[:, order], axis=1), axis=0) for order in orders], axis=0)
    (found,) = found_of(each)
    assert_allclose(found.by_width, wanted)
    assert found.by_width[-1] == pytest.approx(found.visible)


def test_independent_dimensions_stay_level_when_scaled() -> None:
    """Standard normal entries: raw the variance is the width, within 5 %; over √d it is 1."""
    q, k = np.random.default_rng(3).normal(size=(2, 1, 1200, 16))
    (found,) = found_of(part(q, k, np.ones((1200, 1200), dtype=bool)))
    width = np.arange(1, 17)
    assert_allclose(found.by_width / width, np.ones(16), rtol=0.05)
    assert found.deviation == pytest.approx(4, rel=0.05)
    assert found.scaled_deviation == pytest.approx(1, rel=0.05)


def test_stretches_in_pieces_count_each_key_once() -> None:
    whole = some()
    assert whole.queries is not None
    assert whole.keys is not None
    pieces = [
        part(whole.queries[:, a:b], whole.keys, whole.mask[a:b], new=(a, b)) for a, b in ((0, 3), (3, 4), (4, 7))
    ]
    sums = [accumulate(each) for each in pieces]
    assert all(each is not None for each in sums)
    total = sums[0]
    for each in sums[1:]:
        assert total is not None
        assert each is not None
        total = total + each
    assert total is not None
    for one, other in zip(summarize(total, 0), found_of(whole), strict=True):
        for name in ("visible", "every", "predicted", "products", "mean"):
            assert getattr(one, name) == pytest.approx(getattr(other, name))


def test_what_is_no_dot_product_has_no_law() -> None:
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


def test_one_token_and_one_dimension() -> None:
    ones = np.ones((1, 1, 1))
    (found,) = found_of(part(ones, ones, np.ones((1, 1), dtype=bool)))
    assert (found.visible, found.every, found.predicted, found.products) == (0, 0, 0, 0)
    assert found.by_width.tolist() == [0]
    nothing = found_of(part(ones, ones, np.zeros((1, 1), dtype=bool)))[0]
    assert (nothing.visible, nothing.mean) == (0, 0)


def words_of(drawn: str) -> str:
    root = ElementTree.fromstring(drawn)
    return " | ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))


def test_the_simulated_picture() -> None:
    pytest.importorskip("matplotlib")
    drawn = attention_scaling.draw_simulated(pairs=500)
    assert "qᵀk / √d" in words_of(drawn)
    assert "512" in words_of(drawn)
    assert "<title>Variance of random dot products by width</title>" in drawn
    assert drawn == attention_scaling.draw_simulated(pairs=500)
    assert drawn != attention_scaling.draw_simulated(pairs=500, seed=1)
    assert len(drawn) < 20_000


@pytest.mark.parametrize("d", [1, 2, 64])
def test_the_measured_picture(d: int) -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 3, 20, d))
    drawn = attention_scaling.draw_measured(found_of(part(q, k, np.tri(20, dtype=bool))), model="a <b> model")
    ElementTree.fromstring(drawn)
    assert "the median of 3 heads" in drawn
    assert "<b>" not in drawn
    assert len(drawn) < 20_000


def test_a_head_without_variance_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    ones = np.ones((1, 1, 2))
    drawn = attention_scaling.draw_measured(found_of(part(ones, ones, np.ones((1, 1), dtype=bool))), model="x")
    ElementTree.fromstring(drawn)
    assert "nan" not in drawn
