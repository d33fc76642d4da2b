"""Gates, memory and cells correlated with a text: closed forms, NumPy, and chance levels."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection.gates import (
    are_redundant,
    correlations,
    find_correlated_cells,
    gate_statistics,
    saturation,
    select_varying,
    shift_p_value,
    time_constants,
)
from chainrule.lm import Floats
from chainrule.neural.probes.measurements import LayerStates


def autoregressive(rng: np.random.Generator, tokens: int, count: int, keep: float) -> Floats:
    """(tokens, count) x_t = keep · x_{t−1} + noise, independent."""
    x = np.zeros((tokens, count))
    noise = rng.normal(size=(tokens, count))
    for t in range(1, tokens):
        x[t] = keep * x[t - 1] + noise[t]
    return x


def test_time_constants_in_closed_form() -> None:
    # −1 / ln 0.9 = 9.4912; −1 / ln ½ = 1 / ln 2; a gate of e^(−1/50) keeps 50 tokens; 1 is infinite, 0 is none
    constants = time_constants(np.array([0.9, 0.5, math.exp(-1 / 50), 1.0, 0.0]))
    assert_allclose(constants, [9.49122158, 1 / math.log(2), 50.0, np.inf, 0.0])


def test_gate_statistics_worked_by_hand() -> None:
    # two cells, four tokens: the first always 0.97, the second 0.03, 0.52, 0.52, 0.97
    values = np.array([[0.97, 0.03], [0.97, 0.52], [0.97, 0.52], [0.97, 0.97]])
    statistics = gate_statistics(values)
    assert_allclose(statistics.mean, [0.97, 0.51])  # (0.03 + 2 · 0.52 + 0.97) / 4
    assert_allclose(statistics.closed_share, [0.0, 0.25])
    assert_allclose(statistics.open_share, [1.0, 0.25])
    assert statistics.always_open == 0.5
    assert statistics.histogram.sum() == pytest.approx(1.0)
    assert statistics.histogram[-1] == 5 / 8  # 0.95 … 1
    assert statistics.histogram[10] == 2 / 8  # 0.5 … 0.55


@pytest.mark.parametrize(
    ("phi", "h", "share"),
    [
        ("tanh", [0.995, -0.995, 0.5, 0.98], 0.5),
        ("sigmoid", [0.995, 0.005, 0.5, 0.98], 0.5),
        ("relu", [0.0, 3.0, 0.1, 7.0], 0.25),
        ("leaky", [-0.1, 3.0, 0.0, 7.0], 0.0),
    ],
)
def test_saturation_of_every_activation(phi: str, h: list[float], share: float) -> None:
    assert saturation(LayerStates(layer=1, h=np.array([h]), nonlinearity=phi)) == share


def test_layer_states_name_their_gates() -> None:
    h, c = np.array([[0.1]]), np.array([[2.0]])
    gates = {name: np.array([[0.5]]) for name in "ifgo"}
    cell = LayerStates(layer=1, h=h, c=c, gates=gates)
    assert cell.memory_gate == "f"
    assert list(cell.sigmoid_gates) == ["i", "f", "o"]
    assert_allclose(cell.cell_values, math.tanh(2.0))
    assert LayerStates(layer=1, h=h, gates={"r": h, "z": h, "n": h}).memory_gate == "z"
    plain = LayerStates(layer=1, h=h)
    assert plain.memory_gate is None
    assert plain.cell_values is h


def test_correlations_equal_numpy() -> None:
    rng = np.random.default_rng(1)
    x, P = rng.normal(3, 2, (40, 5)), rng.normal(size=(40, 2))
    x[:, 4] = 7.3  # constant
    coefficients = correlations(x.astype(np.float32), P)
    for d in range(4):
        for p in range(2):
            assert coefficients[d, p] == pytest.approx(np.corrcoef(x[:, d], P[:, p])[0, 1], abs=1e-6)
    assert_allclose(coefficients[4], 0.0)


def test_redundant_properties_are_detected() -> None:
    """y = x + noise of deviation s has r = 1 / √(1 + s²): 0.98 for 0.2, 0.93 for 0.4; with either sign."""
    rng = np.random.default_rng(2)
    x, noise = rng.normal(size=5000), rng.normal(size=5000)
    assert are_redundant(x, x + 0.2 * noise)
    assert are_redundant(x, -3 * x + 1)
    assert not are_redundant(x, x + 0.4 * noise)
    assert not are_redundant(x, np.ones(5000))


def test_only_properties_that_vary_are_searched() -> None:
    rare = np.zeros(40)
    rare[[3, 4, 5, 6, 30, 31, 32, 33]] = 1  # four times in each half, one too few
    often = rare.copy()
    often[[7, 34]] = 1
    counter = np.arange(40.0)
    properties = {
        "constant": np.ones(40),
        "rare": rare,
        "often": often,
        "first half only": np.where(counter < 20, counter, 0),
        "counter": counter,
        "the same": counter.copy(),
    }
    assert list(select_varying(properties)) == ["often", "counter"]
    assert select_varying({"one token": np.ones(1)}) == {}


def test_cell_is_selected_on_the_first_half_and_tested_on_the_second() -> None:
    """Cell 2 matches the first half perfectly and nothing after it; cell 3 matches both, less well."""
    rng = np.random.default_rng(3)
    values = (rng.random(400) < 0.4).astype(float)
    h = rng.normal(size=(400, 4))
    h[:200, 1] = values[:200]
    h[:, 2] = values + rng.normal(0, 0.3, 400)
    first, second = find_correlated_cells([LayerStates(layer=1, h=h)], {"p": values}, top=2)["p"]
    assert (first.layer, first.cell, second.cell) == (1, 2, 3)
    assert first.r_first == pytest.approx(1.0)
    assert not first.is_significant
    assert second.is_significant
    assert second.r_second == pytest.approx(np.corrcoef(h[200:, 2], values[200:])[0, 1])


def test_correlation_must_keep_its_sign() -> None:
    rng = np.random.default_rng(3)
    values = (rng.random(400) < 0.4).astype(float)
    h = np.where(np.arange(400) < 200, values, -values)[:, None]
    (cell,) = find_correlated_cells([LayerStates(layer=1, h=h)], {"p": values})["p"]
    assert_allclose([cell.r_first, cell.r_second], [1.0, -1.0])
    assert not cell.is_significant
    assert cell.description == "r = −1.00 on held-out text"


def test_cells_of_all_layers_are_searched() -> None:
    values = (np.random.default_rng(0).random(300) < 0.5).astype(float)
    noise = np.random.default_rng(1).normal(size=(300, 3))
    layers = [LayerStates(layer=1, h=noise), LayerStates(layer=2, h=np.stack([noise[:, 0], -values], axis=1))]
    (cell,) = find_correlated_cells(layers, {"p": values})["p"]
    assert (cell.layer, cell.cell) == (2, 2)
    assert cell.r_second == pytest.approx(-1.0)
    assert find_correlated_cells(layers, {}) == {}


def test_chance_level_equals_explicit_shifts() -> None:
    rng = np.random.default_rng(5)
    x, values = autoregressive(rng, 60, 1, 0.9)[:, 0], autoregressive(rng, 60, 1, 0.9)[:, 0]
    observed = abs(np.corrcoef(x, values)[0, 1])
    shifts = range(3, 58)  # 60 // 20 = 3 on either side are left out
    beyond = sum(abs(np.corrcoef(x, np.roll(values, k))[0, 1]) >= observed for k in shifts)
    assert shift_p_value(x, values) == pytest.approx((1 + beyond) / (1 + len(shifts)))


def test_slow_uninformative_cells_are_rarely_reported() -> None:
    """Of 300 uninformative cells, the best on one half looks good but almost never holds on the other."""
    reported, looks = 0, []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        h = autoregressive(rng, 600, 300, 0.97)
        values = (autoregressive(rng, 600, 1, 0.97)[:, 0] > 0).astype(float)
        if properties := select_varying({"p": values}):
            (best,) = find_correlated_cells([LayerStates(layer=1, h=h)], properties)["p"]
            looks.append(abs(best.r_first))
            reported += best.is_significant
    assert len(looks) >= 25
    assert np.median(looks) > 0.4  # the result of a search without a second half
    assert reported <= 1
