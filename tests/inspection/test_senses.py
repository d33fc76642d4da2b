"""Separation of senses: worked by hand, and against the definition."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.errors import InputError
from chainrule.inspection.senses import (
    Separation,
    accuracy,
    best_layer,
    check_senses,
    majority_sense,
    mean_cosines,
    measure_separation,
    principal_components,
    unit_vectors,
)

AT_ANGLES = np.array([[math.cos(a), math.sin(a)] for a in np.deg2rad([0, 20, 80, 100, 30])])
SENSES = ["a", "a", "b", "b", "b"]


def test_separation_worked_by_hand() -> None:
    """Vectors at 0° and 20° are of sense a, those at 80°, 100° and 30° of b.

    Leaving itself out, 0° has a at 20° and b near 70°: a, correct. 20° has a at 0° and b near 70°: a, correct.
    80° has a at 10° and b at 65°: b, correct; 100° likewise a at 10°, b at 55°: b, correct. 30° has a at 10°, b
    at 90°: a, wrong.
    """
    assert accuracy(AT_ANGLES, SENSES) == 4 / 5
    cosine = [math.cos(math.radians(d)) for d in (20, 20, 50, 70, 80, 100, 30, 60, 80, 10)]
    within, across = mean_cosines(AT_ANGLES, SENSES)
    assert within == pytest.approx(sum(cosine[:4]) / 4)  # 0–20, 80–100, 80–30, 100–30
    assert across == pytest.approx(sum(cosine[4:]) / 6)  # 0–80, 0–100, 0–30, 20–80, 20–100, 20–30


def test_separation_ignores_vector_length() -> None:
    lengths = np.array([[3.0], [0.1], [7.0], [1.0], [100.0]])
    (expected,), (rescaled,) = (
        measure_separation({1: x.astype(np.float32)}, SENSES) for x in (AT_ANGLES, AT_ANGLES * lengths)
    )
    assert expected.accuracy == rescaled.accuracy
    assert_allclose([expected.within, expected.across], [rescaled.within, rescaled.across], atol=1e-6)
    assert_allclose(unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.0, 0.0]])


@pytest.mark.parametrize("seed", range(5))
def test_accuracy_equals_its_definition(seed: int) -> None:
    """The centroid of the unit vectors of all other occurrences, sense by sense, in plain loops."""
    rng = np.random.default_rng(seed)
    senses = [*"aabbccaabbcc", *"abc"]
    x = unit_vectors(rng.normal(size=(15, 6)) + 0.7 * np.eye(6)[[ord(s) - ord("a") for s in senses]])
    right = 0
    for i in range(15):
        cosines = {}
        for sense in "abc":
            centroid = np.mean([x[j] for j in range(15) if j != i and senses[j] == sense], axis=0)
            cosines[sense] = float(x[i] @ centroid / np.linalg.norm(centroid))
        right += max(cosines, key=cosines.__getitem__) == senses[i]
    assert accuracy(x, senses) == right / 15
    pairs = [(float(x[i] @ x[j]), senses[i] == senses[j]) for i in range(15) for j in range(i)]
    expected = [np.mean([cosine for cosine, same in pairs if same is kind]) for kind in (True, False)]
    assert_allclose(mean_cosines(x, senses), expected)


@pytest.mark.parametrize("senses", [["a"] * 12 + ["b"] * 12, ["a"] * 3 + ["b"] * 5 + ["c"] * 4])
def test_identical_vectors_have_the_majority_accuracy(senses: list[str]) -> None:
    """Although rounding makes the centroids differ in their last bits."""
    vector = np.random.default_rng(1).normal(size=37).astype(np.float32)
    (separation,) = measure_separation({0: np.tile(vector, (len(senses), 1))}, senses)
    assert separation.accuracy == majority_sense(senses)[1] == max(map(senses.count, senses)) / len(senses)
    assert (separation.gap, separation.different) == (0.0, 1)
    assert separation.within == pytest.approx(1.0)


def test_majority_sense() -> None:
    assert majority_sense(["a", "b", "b"]) == ("b", 2 / 3)
    assert majority_sense(["b", "a", "a", "b"]) == ("b", 0.5)


def test_best_layer_by_accuracy_then_gap() -> None:
    layers = [Separation(0, 0.9, 1.0, 1.0, 1), Separation(1, 0.8, 0.5, 0.4, 9), Separation(2, 0.8, 0.5, 0.3, 9)]
    assert best_layer(layers).layer == 2
    assert best_layer(layers[:2]).layer == 1
    assert best_layer(layers[:1]).layer == 0


def test_too_few_senses_or_sentences_are_rejected() -> None:
    with pytest.raises(InputError, match="only one sense, 'a'; give sentences of two or more"):
        measure_separation({0: np.ones((3, 2))}, ["a"] * 3)
    with pytest.raises(InputError, match="sense 'b' has only one sentence"):
        check_senses(["a", "a", "b"])


def test_principal_components_equal_the_covariance_eigenvectors() -> None:
    """Variances are the largest eigenvalues of the covariance of the unit vectors, shares are of its trace."""
    x = np.random.default_rng(2).normal(size=(12, 5)) * [3, 2, 1, 1, 1] + 1
    points, shares = principal_components(x)
    values, vectors = np.linalg.eigh(np.cov(unit_vectors(x).T, bias=True))
    assert_allclose(points.var(axis=0), values[::-1][:2])
    assert_allclose(shares, values[::-1][:2] / values.sum())
    expected = (unit_vectors(x) - unit_vectors(x).mean(axis=0)) @ vectors[:, ::-1][:, :2]
    assert_allclose(np.abs(points), np.abs(expected), atol=1e-12)
    again, _ = principal_components(x[::-1])
    assert_allclose(again, points[::-1], atol=1e-12)  # the sign does not depend on the order of the rows


def test_principal_components_without_variance_are_zero() -> None:
    points, shares = principal_components(np.tile(np.random.default_rng(3).normal(size=7), (4, 1)))
    assert not points.any()
    assert not shares.any()
    points, _ = principal_components(np.array([[1.0], [-1.0], [2.0]]))  # one dimension
    assert_allclose(points, [[2 / 3, 0], [-4 / 3, 0], [2 / 3, 0]])
