"""Matrices whose eigenvalues and singular values are known by hand, and what they bound."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection.matrix import STEEPEST, Recurrence, bound, in_words, spectrum
from chainrule.lm import Floats


def elman(R: Floats, nonlinearity: str = "tanh") -> Recurrence:
    return Recurrence(layer=1, spectra={"": spectrum(R)}, nonlinearity=nonlinearity)


def test_a_rotation_lies_on_the_circle() -> None:
    # by 60 degrees: λ = cos 60° ± i sin 60°, and no vector changes its length
    turn = math.pi / 3
    found = spectrum(np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]))
    assert_allclose(sorted(found.eigenvalues, key=lambda v: v.imag), [0.5 - 0.75**0.5 * 1j, 0.5 + 0.75**0.5 * 1j])
    assert_allclose([found.radius, found.norm], [1.0, 1.0])
    assert found.outside == 0.0


def test_a_diagonal_matrix_has_its_entries() -> None:
    found = spectrum(np.diag([0.5, -2.0, 1.5, 0.0]))
    assert_allclose(sorted(found.eigenvalues.real), [-2.0, 0.0, 0.5, 1.5])
    assert_allclose(found.singular_values, [2.0, 1.5, 0.5, 0.0])
    assert found.radius == found.norm == 2.0
    assert found.outside == 0.5  # −2 and 1.5 of four


def test_a_jordan_block_stretches_more_than_its_radius() -> None:
    # J = [[½, 1], [0, ½]]: both λ = ½; JᵀJ has trace 1.5 and determinant 1/16, so σ² = (1.5 ± √(2.25 − ¼)) / 2.
    found = spectrum(np.array([[0.5, 1.0], [0.0, 0.5]]))
    assert_allclose(found.radius, 0.5)
    assert_allclose(found.norm, math.sqrt((1.5 + math.sqrt(2.0)) / 2))
    assert found.norm > 1 > found.radius


def test_random_matrices_by_another_route() -> None:
    """Σ λ = trace, Π λ = determinant; σ_max by powers of RᵀR, the radius by the length of R^k x."""
    R = np.random.default_rng(4).normal(0, 0.4, (6, 6))
    found = spectrum(R)
    assert_allclose(found.eigenvalues.sum(), np.trace(R), atol=1e-12)
    assert_allclose(found.eigenvalues.prod(), np.linalg.det(R), atol=1e-12)
    x = np.ones(6)
    for _ in range(2000):
        x = R.T @ (R @ x)
        x /= np.linalg.norm(x)
    assert_allclose(found.norm, np.linalg.norm(R @ x))
    # ‖R^k‖^(1/k) → radius (Gelfand); by repeated squaring, k = 2^14
    power, log = R, 0.0
    for _ in range(14):
        power = power @ power
        log, power = 2 * log + math.log(np.linalg.norm(power)), power / np.linalg.norm(power)
    assert_allclose(found.radius, math.exp(log / 2**14), rtol=1e-3)


def test_one_number_is_a_matrix() -> None:
    found = spectrum(np.array([[-3.0]]))
    assert (found.radius, found.norm, found.outside) == (3.0, 3.0, 1.0)


@pytest.mark.parametrize(("phi", "slope"), [("tanh", 1.0), ("relu", 1.0), ("leaky", 1.0), ("sigmoid", 0.25)])
def test_the_gain_is_the_largest_slope_of_phi(phi: str, slope: float) -> None:
    x = np.linspace(-3, 3, 6001)
    functions = {
        "tanh": np.tanh(x),
        "relu": np.maximum(x, 0),
        "leaky": np.where(x > 0, x, 0.01 * x),
        "sigmoid": 1 / (1 + np.exp(-x)),
    }
    assert_allclose(np.gradient(functions[phi], x).max(), slope, rtol=1e-5)
    assert STEEPEST[phi] == slope
    assert elman(np.diag([3.0, 1.0]), phi).gain == 3.0 * slope


def test_the_bound_by_hand_and_never_infinite() -> None:
    assert_allclose(bound(0.5, 3), [1.0, 0.5, 0.25, 0.125])
    assert np.isfinite(bound(1e6, 200)).all()
    assert_allclose(bound(0.0, 2), [1.0, 0.0, 0.0])


def test_words_say_what_is_forced_and_what_is_permitted() -> None:
    # 0.5 after 10 steps: 0.5^10 = 1 / 1024 = 0.00098
    assert "= 0.50 < 1 forces the signal to vanish, after 10 tokens at most 0.00098" in in_words(
        elman(np.eye(2) / 2)
    )
    assert "= 2.00 > 1 permits the signal to explode, and does not force it" in in_words(elman(2 * np.eye(2)))
    assert "cannot grow and need not vanish" in in_words(elman(np.eye(2)))
    assert "< 1 forces" in in_words(elman(2 * np.eye(2), "sigmoid"))  # 2 · ¼


def test_a_gated_layer_has_no_bound_and_its_candidate_stands_first() -> None:
    spectra = {name: spectrum(k * np.eye(2)) for k, name in enumerate("ifgo", start=1)}
    layer = Recurrence(layer=2, spectra=spectra)
    assert layer.gain is None
    assert layer.main.norm == 3.0  # g is the third
    assert layer.width == 2
    assert "layer 2 has spectral radius 3.00" in in_words(layer)
    gru = Recurrence(layer=1, spectra={name: spectrum(k * np.eye(2)) for k, name in enumerate("rzn", start=1)})
    assert gru.main_gate == "n"
