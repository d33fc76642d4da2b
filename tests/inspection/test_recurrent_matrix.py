"""What the norm of recurrent matrices bounds, and what it does not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection.recurrent_matrix import describe, describe_gain, gradient_bound
from chainrule.neural.probes.measurements import MAX_SLOPE, Recurrence, Spectrum


def diagonal(*values: float) -> Spectrum:
    """Spectrum of a diagonal matrix: its entries are the eigenvalues, their moduli the singular values."""
    return Spectrum(np.array(values, dtype=np.complex128), np.sort(np.abs(values))[::-1])


def elman(size: float, nonlinearity: str = "tanh", other_paths: str = "") -> Recurrence:
    """An Elman layer whose matrix is this multiple of the identity."""
    spectra = {"": diagonal(size, size)}
    return Recurrence(layer=1, spectra=spectra, nonlinearity=nonlinearity, other_paths=other_paths)


@pytest.mark.parametrize(("phi", "slope"), [("tanh", 1.0), ("relu", 1.0), ("leaky", 1.0), ("sigmoid", 0.25)])
def test_gain_is_the_largest_slope_of_the_activation(phi: str, slope: float) -> None:
    x = np.linspace(-3, 3, 6001)
    functions = {
        "tanh": np.tanh(x),
        "relu": np.maximum(x, 0),
        "leaky": np.where(x > 0, x, 0.01 * x),
        "sigmoid": 1 / (1 + np.exp(-x)),
    }
    assert_allclose(np.gradient(functions[phi], x).max(), slope, rtol=1e-5)
    assert MAX_SLOPE[phi] == slope
    assert elman(3.0, phi).gain == 3.0 * slope


def test_gradient_bound_worked_by_hand_and_finite() -> None:
    assert_allclose(gradient_bound(0.5, 3), [1.0, 0.5, 0.25, 0.125])
    assert np.isfinite(gradient_bound(1e6, 200)).all()
    assert_allclose(gradient_bound(0.0, 2), [1.0, 0.0, 0.0])


def test_description_distinguishes_must_vanish_and_can_explode() -> None:
    # 0.5 after 10 steps: 0.5^10 = 1 / 1024 = 0.00098
    assert "= 0.50 < 1: the gradient must vanish, after 10 tokens at most 0.00098" in describe(elman(0.5))
    assert "= 2.00 > 1: the gradient can explode, but need not" in describe(elman(2.0))
    assert "< 1: the gradient must vanish" in describe(elman(2.0, "sigmoid"))  # 2 · ¼


@pytest.mark.parametrize("gain", [1.0, 1 - 1e-6, 1 + 1e-6])
def test_gain_of_one_is_described_despite_rounding(gain: float) -> None:
    words = describe(elman(gain))
    assert "σ_max · max φ′ = 1.00: the gradient need not vanish and cannot explode" in words
    assert "<" not in words
    assert ">" not in words
    assert describe_gain(gain) in words


@pytest.mark.parametrize(
    ("gain", "expected"),
    [(0.998, "= 0.998 < 1: the gradient must vanish"), (1.0004, "= 1.0004 > 1: the gradient can explode")],
)
def test_gain_near_one_is_shown_with_enough_digits(gain: float, expected: str) -> None:
    assert expected in describe_gain(gain)


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_layer_with_other_gradient_paths_has_no_bound(size: float) -> None:
    layer = elman(size, other_paths="the layers above it")
    assert not layer.is_bound
    assert layer.gain == pytest.approx(size)
    words = describe(layer)
    assert (
        f"along this layer alone σ_max · max φ′ = {size:.2f}; gradients also return through the layers above"
        in words
    )
    assert not any(claim in words for claim in ("forces", "permits", "circle"))


def test_outside_counts_eigenvalues_beyond_the_unit_circle() -> None:
    assert diagonal(0.5, -2.0, 1.5, 0.0).outside == 0.5  # −2 and 1.5 of four
    assert diagonal(1 + 1e-6, -1.0).outside == 0.0  # on the circle


def test_gated_layer_has_no_bound_and_shows_its_candidate_first() -> None:
    spectra = {name: diagonal(k, k) for k, name in enumerate("ifgo", start=1)}
    layer = Recurrence(layer=2, spectra=spectra)
    assert layer.gain is None
    assert not layer.is_bound
    assert layer.main.norm == 3.0  # g is the third
    assert layer.width == 2
    assert "layer 2 has spectral radius 3.00" in describe(layer)
    gru = Recurrence(layer=1, spectra={name: diagonal(k, k) for k, name in enumerate("rzn", start=1)})
    assert gru.main_gate == "n"
