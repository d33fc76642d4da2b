"""Recurrent matrices by gate against NumPy, and initial matrices."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule.errors import ChainruleError
from chainrule.inspection.recurrent_matrix import describe
from chainrule.lm import Vocabulary
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.probes.gradient_flow import initial_matrices, recurrent_spectra, spectrum
from chainrule.neural.probes.measurements import Spectrum

WORDS = Vocabulary(7, 0, 1, 2)


def build(module: Any, **chosen: Any) -> Any:
    torch.manual_seed(2)
    return module.build(module.Config(hidden=5, embedding=4, tie=False, **chosen), WORDS, None)


@pytest.mark.parametrize(("module", "names"), [(rnn, [""]), (lstm, list("ifgo")), (gru, list("rzn"))])
def test_spectra_of_each_gate_equal_numpy(module: Any, names: list[str]) -> None:
    network = build(module, layers=2)
    recurrences = recurrent_spectra(network)
    assert [item.layer for item in recurrences] == [1, 2]
    for item, layer in zip(recurrences, network.layers, strict=True):
        assert list(item.spectra) == names
        for i, one in enumerate(item.spectra.values()):
            R = layer.R.detach().numpy()[5 * i : 5 * i + 5]
            expected = np.linalg.eigvals(R.astype(np.float64)).astype(np.complex128)
            assert_allclose(np.sort_complex(one.eigenvalues), np.sort_complex(expected), atol=1e-9)
            # σ² are the eigenvalues of RᵀR, smallest first
            squares = np.linalg.eigvalsh(R.T.astype(np.float64) @ R)
            assert_allclose(one.singular_values**2, squares[::-1], atol=1e-9)
    assert recurrences[0].nonlinearity == ("tanh" if module is rnn else "")


def spectrum_of(*rows: list[float]) -> Spectrum:
    return spectrum(torch.tensor(rows, dtype=torch.float64))


def test_rotation_has_eigenvalues_on_the_unit_circle() -> None:
    # by 60 degrees: λ = cos 60° ± i sin 60°, and all lengths are preserved
    turn = math.pi / 3
    rotation = spectrum_of([math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)])
    assert_allclose(
        sorted(rotation.eigenvalues, key=lambda v: v.imag), [0.5 - 0.75**0.5 * 1j, 0.5 + 0.75**0.5 * 1j]
    )
    assert_allclose([rotation.radius, rotation.norm], [1.0, 1.0])
    assert rotation.outside == 0.0


def test_spectrum_of_a_diagonal_matrix() -> None:
    diagonal = spectrum(torch.diag(torch.tensor([0.5, -2.0, 1.5, 0.0])))
    assert_allclose(sorted(diagonal.eigenvalues.real), [-2.0, 0.0, 0.5, 1.5])
    assert_allclose(diagonal.singular_values, [2.0, 1.5, 0.5, 0.0])
    assert diagonal.radius == diagonal.norm == 2.0
    assert diagonal.outside == 0.5  # −2 and 1.5 of four


def test_jordan_block_norm_exceeds_its_radius() -> None:
    # J = [[½, 1], [0, ½]]: both λ = ½; JᵀJ has trace 1.5 and determinant 1/16, so σ² = (1.5 ± √(2.25 − ¼)) / 2.
    jordan = spectrum_of([0.5, 1.0], [0.0, 0.5])
    assert_allclose(jordan.radius, 0.5)
    assert_allclose(jordan.norm, math.sqrt((1.5 + math.sqrt(2.0)) / 2))
    assert jordan.norm > 1 > jordan.radius


def test_spectrum_of_random_matrices_by_other_identities() -> None:
    """Σ λ = trace, Π λ = determinant; σ_max by powers of RᵀR, the radius by the norm of R^k x."""
    R = np.random.default_rng(4).normal(0, 0.4, (6, 6))
    random_spectrum = spectrum(torch.from_numpy(R))
    assert_allclose(random_spectrum.eigenvalues.sum(), np.trace(R), atol=1e-12)
    assert_allclose(random_spectrum.eigenvalues.prod(), np.linalg.det(R), atol=1e-12)
    x = np.ones(6)
    for _ in range(2000):
        x = R.T @ (R @ x)
        x /= np.linalg.norm(x)
    assert_allclose(random_spectrum.norm, np.linalg.norm(R @ x))
    # ‖R^k‖^(1/k) → radius (Gelfand); by repeated squaring, k = 2^14
    power, log = R, 0.0
    for _ in range(14):
        power = power @ power
        log, power = 2 * log + math.log(np.linalg.norm(power)), power / np.linalg.norm(power)
    assert_allclose(random_spectrum.radius, math.exp(log / 2**14), rtol=1e-3)


def test_spectrum_of_a_single_number() -> None:
    scalar = spectrum_of([-3.0])
    assert (scalar.radius, scalar.norm, scalar.outside) == (3.0, 3.0, 1.0)


def test_gradient_bound_holds_only_for_top_layers_without_attention() -> None:
    """Below it gradients return through the layers above, with attention through the past."""
    lower, top = recurrent_spectra(build(rnn, layers=2))
    assert (lower.is_bound, top.is_bound) == (False, True)
    assert lower.other_paths == "the layers above it"
    (attentive,) = recurrent_spectra(build(rnn, attention="dot"))
    assert not attentive.is_bound
    assert attentive.other_paths == "attention to the past"
    assert not any(layer.is_bound for layer in recurrent_spectra(build(lstm, layers=2)))


def test_lower_layer_gradients_can_exceed_their_own_bound() -> None:
    """R₁ = 0.3 I, R₂ = 0.99 I, W₂ = I and tiny inputs, so that φ′ = 1: h₂ at t keeps 0.99 per step of what it
    got from h₁ ten steps before, ∂h₂[t] / ∂h₁[t − 10] = Σ_j 0.99^j 0.3^(10 − j) = 1.30 against 0.3^10.
    """
    network: Any = rnn.build(rnn.Config(hidden=2, embedding=2, layers=2, tie=False), WORDS, None)
    eye, weights = torch.eye(2), [0.3, 0.99]
    with torch.no_grad():
        for layer, gain in zip(network.layers, weights, strict=True):
            layer.R.copy_(gain * eye)
            layer.W.copy_(eye)
    lower, top = recurrent_spectra(network)
    first = torch.full((1, 2), 1e-6, requires_grad=True)  # h₁, ten steps before
    x, states = first, [first]
    for _ in range(10):
        x = torch.tanh(0.3 * x)
        states.append(x)
    h = torch.zeros(1, 2)
    for x in states:
        h = torch.tanh(0.99 * h + x)
    h[0, 0].backward()
    assert first.grad is not None
    returned = float(first.grad[0, 0])
    assert returned == pytest.approx(sum(0.99**j * 0.3 ** (10 - j) for j in range(11)), rel=1e-4)
    assert returned > 100_000 * 0.3**10
    assert "forces" not in describe(lower)
    assert (
        "along this layer alone σ_max · max φ′ = 0.30; gradients also return through the layers above"
        in describe(lower)
    )
    assert "σ_max · max φ′ = 0.99 < 1: the gradient must vanish" in describe(top)


def test_elman_gain_includes_the_activation_slope() -> None:
    (recurrence,) = recurrent_spectra(build(rnn, nonlinearity="sigmoid"))
    assert recurrence.gain == pytest.approx(recurrence.main.norm / 4)


def test_initial_matrices_have_their_theoretical_spectra() -> None:
    D = 200
    spectra = {name: spectrum(R) for name, R in initial_matrices(D).items()}
    assert list(spectra) == ["orthogonal", "xavier", "small"]
    # orthogonal: RᵀR = I
    assert_allclose(spectra["orthogonal"].singular_values, 1.0, atol=1e-5)
    assert_allclose(np.abs(spectra["orthogonal"].eigenvalues), 1.0, atol=1e-5)
    # entries of variance v: the radius tends to √(D v), σ_max to 2 √(D v) (circular law); Xavier's v = 1 / D
    assert spectra["xavier"].radius == pytest.approx(1.0, rel=0.15)
    assert spectra["xavier"].norm == pytest.approx(2.0, rel=0.1)
    # uniform within ± 0.1 / √D: v = 0.01 / (3 D)
    assert spectra["small"].norm == pytest.approx(2 * 0.1 / math.sqrt(3), rel=0.1)


def test_initial_matrices_do_not_disturb_the_global_rng() -> None:
    torch.manual_seed(9)
    first = torch.rand(1)
    torch.manual_seed(9)
    matrices = initial_matrices(3)
    assert torch.equal(torch.rand(1), first)
    assert all(torch.equal(matrices[name], R) for name, R in initial_matrices(3).items())


def test_spectra_of_width_one_and_non_finite_weights() -> None:
    network = rnn.build(rnn.Config(hidden=1, embedding=1), WORDS, None)
    (recurrence,) = recurrent_spectra(network)
    assert recurrence.width == 1
    assert recurrence.random_spectra["orthogonal"].radius == pytest.approx(1.0)
    with pytest.raises(ChainruleError, match="non-finite value"):
        spectrum(torch.full((2, 2), math.nan))


def test_spectra_report_progress_to_the_end() -> None:
    calls: list[tuple[int, int | None]] = []
    recurrent_spectra(build(lstm, layers=3), lambda what, done, total: calls.append((done, total)))
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
