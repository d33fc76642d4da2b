"""Gradient flow as numbers and as a plot: decays in closed form, unusual curves, names in any script."""

import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection import gradient_flow
from chainrule.lm import Floats
from chainrule.neural.probes.measurements import MIN_POSITIONS, GradientFlow, Quantity, half_life, reach


def flow_of(
    curves: Sequence[Floats], sizes: Sequence[float] = (1.0, 2.0, 3.0, 6.0), name: str = "m", what: Quantity = "h"
) -> GradientFlow:
    """The same curve at every position, times its size; (L, P, K+1)."""
    norms = np.stack([np.outer(sizes, curve) for curve in curves])
    return GradientFlow(name=name, what=what, norms=norms)


def falling(rate: float, lags: int = 30) -> Floats:
    return rate ** np.arange(lags + 1.0)


# Statistics.


def test_mean_and_quantiles_over_positions() -> None:
    """Sizes 1, 2, 3, 6: mean 3, median 2.5, quartiles 1.75 and 3.75."""
    flow = flow_of([falling(0.5, 2)])
    assert_allclose(flow.mean(), [[3, 1.5, 0.75]])
    assert_allclose(flow.quantile(0.5), [[2.5, 1.25, 0.625]])
    assert_allclose(flow.quantile(0.25)[0, 0], 1.75)
    assert_allclose(flow.quantile(0.75)[0, 0], 3.75)
    assert_allclose(flow.relative(), [[1, 0.5, 0.25]])


def test_half_life_of_an_exponential() -> None:
    flow = flow_of([falling(0.5), falling(0.9), falling(1.0), falling(1.2)])
    half_lives = [flow.half_life(layer) for layer in range(4)]
    assert half_lives[:2] == [pytest.approx(1.0), pytest.approx(math.log(2) / -math.log(0.9))]
    assert half_lives[2:] == [math.inf, math.inf]


def test_half_life_is_interpolated() -> None:
    """Between lags 1 and 2 it falls from 0.8 to 0.2; 0.5 is log 1.6 / log 4 = 0.33904 of the way."""
    assert half_life(np.array([1, 0.8, 0.2, 0.9])) == pytest.approx(1.33904, rel=1e-5)
    assert half_life(np.array([1, 0.1, 0.01])) == pytest.approx(math.log10(2))  # log 2 / log 10 of the first step
    assert half_life(np.array([1.0, 0.8, 0.6])) == math.inf


def test_half_life_of_curves_that_end_at_once() -> None:
    assert half_life(np.array([1.0, 0.0, 0.0])) == 0.0
    assert half_life(np.array([1.0, 0.8, 0.0])) == 1.0
    assert half_life(np.array([1.0, math.inf, 0.001])) == 1.0
    assert half_life(np.array([1.0])) is None
    assert half_life(np.array([0.0, 0.0])) is None


def test_reach_is_the_last_lag_above_a_fraction() -> None:
    """½^6 = 0.0156, ½^7 = 0.0078; ½^3 = 0.125, ½^4 = 0.0625."""
    flow = flow_of([falling(0.5), falling(0.99)])
    assert flow.reach(0) == 7
    assert flow.reach(0, part=0.1) == 4
    assert flow.reach(1) is None
    assert reach(np.array([1.0, 0.001, 0.3, 0.001, 0.001])) == 3


def test_lags_with_too_few_positions_are_cut() -> None:
    norms = np.ones((2, 6, 5))
    norms[:, 3:, 3] = np.nan  # three positions remain at lag 3, one at lag 4
    norms[:, 1:, 4] = np.nan
    flow = GradientFlow(name="m", what="h", norms=norms)
    assert MIN_POSITIONS == 4  # a quarter of six is fewer
    assert flow.lags == 3
    assert flow.mean().shape == flow.relative().shape == flow.quantile(0.5).shape == (2, 3)
    few = GradientFlow(name="m", what="h", norms=norms[:, :2])  # with two positions both are required
    assert few.lags == 4


def test_relative_flow_compares_the_same_positions() -> None:
    """One position of ten times the size has a single lag; the others halve at each step, and so does the
    result.
    """
    norms = np.outer([1.0, 1, 1, 1, 10], falling(0.5, 3))[None]
    norms[0, 4, 1:] = np.nan
    flow = GradientFlow(name="m", what="h", norms=norms)
    assert_allclose(flow.relative(), [[1, 0.5, 0.25, 0.125]])
    assert_allclose(flow.mean()[0, :2], [2.8, 0.5])  # (4 · 1 + 10) / 5; 4 · ½ / 4


def test_zero_and_overflowing_gradients() -> None:
    assert_allclose(flow_of([np.zeros(4)]).relative(), np.zeros((1, 4)))
    assert flow_of([np.zeros(4)]).half_life(0) is None
    flow = flow_of([np.array([1.0, 10.0, np.inf, np.inf])])
    assert flow.relative().tolist() == [[1.0, 10.0, np.inf, np.inf]]
    assert flow.quantile(0.5)[0, 2] == np.inf
    assert flow.half_life(0) == math.inf
    everywhere = flow_of([np.full(4, np.inf)])
    assert not np.isnan(everywhere.relative()).any()


def test_forget_product_is_the_mean_over_positions() -> None:
    forget = np.stack([[0.9 ** np.arange(4), 0.7 ** np.arange(4)]])
    flow = GradientFlow(name="m", what="c", norms=np.ones((1, 2, 4)), forget=forget)
    product = flow.forget_product()
    assert product is not None
    assert_allclose(product[0, :2], [1, 0.8])
    assert flow_of([falling(0.5)]).forget_product() is None


# Plots.


def texts(drawn: str) -> list[str]:
    return [
        element.text or "" for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]


def celled() -> GradientFlow:
    plain = flow_of([falling(0.5), falling(0.9)], what="c")
    forget = np.broadcast_to(falling(0.95), plain.norms.shape)
    return GradientFlow(name="m", what="c", norms=plain.norms, forget=forget)


LEADER = "0.8,2.4"  # a dot and a gap of 1 and 3 widths of 0.8


def dashes(drawn: str) -> list[str]:
    """Dash patterns of the curves, without the faint dotted leader lines to labels."""
    return [pattern for pattern in re.findall(r"stroke-dasharray: ([\d., ]+)", drawn) if pattern != LEADER]


@pytest.fixture(autouse=True)
def _require_matplotlib() -> None:
    pytest.importorskip("matplotlib")


def test_single_model_is_drawn_by_layer() -> None:
    drawn = gradient_flow.plot_gradient_flow(
        [flow_of([falling(0.5), falling(0.9)])], title="Flow", description="It falls."
    )
    assert {"layer 1", "layer 2"} <= set(texts(drawn))
    assert "<title>Flow</title><desc>It falls.</desc>" in drawn
    assert not dashes(drawn)
    assert "relative to lag 0" in " ".join(texts(drawn))


def test_several_models_are_drawn_by_their_top_layers() -> None:
    flows = [flow_of([falling(0.5), falling(0.9)], name="lstm"), flow_of([falling(0.8)], name="gru")]
    assert [line.name for line in gradient_flow.select_lines(flows, True)] == ["lstm", "gru"]
    assert_allclose(gradient_flow.select_lines(flows, True)[0].mean, falling(0.9))
    assert {"lstm", "gru"} <= set(texts(gradient_flow.plot_gradient_flow(flows)))


def test_band_covers_the_middle_half() -> None:
    """For sizes 1, 2, 3, 6, mean 3: from 1.75 / 3 to 3.75 / 3 of the mean."""
    (line,) = gradient_flow.select_lines([flow_of([falling(0.5)])], True)
    assert_allclose(line.low, 1.75 / 3 * falling(0.5))
    assert_allclose(line.high, 3.75 / 3 * falling(0.5))
    (line,) = gradient_flow.select_lines([flow_of([falling(0.5)])], False)
    assert_allclose(line.mean, 3 * falling(0.5))


def test_forget_gates_are_dashed_and_bounds_dotted() -> None:
    assert len(dashes(gradient_flow.plot_gradient_flow([celled()]))) == 2
    drawn = gradient_flow.plot_gradient_flow([flow_of([falling(0.5)])], {"bound": falling(0.6).tolist()})
    assert len(dashes(drawn)) == 1
    assert "bound" in texts(drawn)
    absolute = gradient_flow.plot_gradient_flow([celled()], {"bound": falling(0.6).tolist()}, is_relative=False)
    assert not dashes(absolute)
    assert "bound" not in texts(absolute)


def test_points_outside_the_value_range_are_not_drawn() -> None:
    """From 1e-6 to ten times the largest: ½^19 = 1.9e-6 is the last; a bound of 2^k ends at 8."""
    frame = gradient_flow.value_range(gradient_flow.select_lines([flow_of([falling(0.5)])], True))
    assert_allclose(frame, (1e-6, 10))
    assert [int(k) for k, _ in frame.points(falling(0.5))] == list(range(20))
    assert [y for _, y in frame.points(falling(2.0))] == [1, 2, 4, 8]
    assert len(frame.points(falling(1.0, 1000))) == gradient_flow.MOST_POINTS


def test_many_layers_are_subsampled() -> None:
    deep = flow_of([falling(0.9)] * 30, what="residual")
    names = [line.name for line in gradient_flow.select_lines([deep], True)]
    assert (names[0], names[-1], len(names)) == ("block 1", "block 30", gradient_flow.MOST_LAYERS)


@pytest.mark.parametrize(
    "curve",
    [np.ones(1), np.zeros(5), np.array([1.0, np.inf]), np.full(3, np.inf), np.array([1.0, 0.0]), falling(1e-9)],
    ids=str,
)
@pytest.mark.parametrize("is_relative", [True, False])
def test_unusual_curves_can_be_drawn(curve: Floats, is_relative: bool) -> None:
    ElementTree.fromstring(gradient_flow.plot_gradient_flow([flow_of([curve])], is_relative=is_relative))


@pytest.mark.parametrize("name", ["<b>&", "日本語", "שלום", "a\x01b", "$x$", "x" * 300, ""])
def test_names_of_any_kind_can_be_drawn(name: str) -> None:
    drawn = gradient_flow.plot_gradient_flow(
        [flow_of([falling(0.5)], name=name), flow_of([falling(0.6)], name="other")]
    )
    printable = name.replace("\x01", "␁")
    assert any(text.startswith(printable[:20]) for text in texts(drawn)[-2:])
    assert len(drawn) < 60_000


def test_gradient_flow_plot_has_no_fixed_colours_or_ids() -> None:
    drawn = gradient_flow.plot_gradient_flow([celled()])
    assert "currentColor" in drawn
    assert not re.search(r"#(000000|ffffff)|url\(", drawn)
