"""Gate plots and coloured text: well-formed, described, escaped, small."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.inspection import gates as cells_plot
from chainrule.inspection.gates import Panel, activation_html, gate_statistics, survival_curve
from chainrule.plots.html import BLUE, MAX_OPACITY, ORANGE

matplotlib = pytest.importorskip("matplotlib")

RNG = np.random.default_rng(0)


def text_of(markup: str) -> str:
    texts = list[str]()
    parser = HTMLParser()
    parser.handle_data = texts.append  # type: ignore[assignment, method-assign]
    parser.feed(markup)
    return "".join(texts)


def test_histogram_for_every_gate_and_layer() -> None:
    panels = [Panel(name, np.full(20, 0.05), 0.0, 1.0, "shut 3 %") for name in ("input gate i", "forget gate f")]
    drawn = cells_plot.plot_histograms({"layer 1": panels, "layer 2": panels}, title="Gates of <a>")
    root = ElementTree.fromstring(drawn)
    names = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"layer 1, input gate i", "layer 2, forget gate f", "shut 3 %"} <= names
    assert "layer 2, forget gate f: shut 3 %" in (root.get("aria-label") or "")


def test_histogram_bars_are_as_high_as_the_shares() -> None:
    """Half of the values in the first bin, the rest in the last: two bars of equal height, nothing between."""
    shares = np.array([0.5, 0.0, 0.0, 0.5])
    drawn = cells_plot.plot_histograms({"layer 1": [Panel("x", shares, 0.0, 1.0, "")]}, title="x")
    (path,) = re.findall(r'd="(M[^"]*)"\s*style="fill: #0072b2', drawn)
    points = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]
    assert len({x for x, _ in points}) >= 4
    assert len({y for _, y in points}) == 2


def test_saturation_plot_has_a_dot_per_cell_and_gate() -> None:
    gates = {name: gate_statistics(RNG.random((50, 30))) for name in ("i", "f", "o")}
    drawn = cells_plot.plot_saturation({"layer 1": gates, "layer 2": gates}, title="Saturation")
    described = ElementTree.fromstring(drawn).get("aria-label") or ""
    assert re.search(r"layer 1, input gate i: open at \d+ %, closed at \d+ % of tokens", described)
    assert drawn.count("h0") == 2 * 3 * 30
    wide = {name: gate_statistics(RNG.random((5, 650))) for name in ("i", "f", "o")}
    assert len(cells_plot.plot_saturation({"1": wide, "2": wide}, title="x")) < 80_000


def test_infinite_time_constants_can_be_drawn() -> None:
    drawn = cells_plot.plot_time_constants({"layer 1": np.array([np.inf, 0.0, 3.0])}, title="Memory")
    root = ElementTree.fromstring(drawn)
    assert "layer 1: median 3 tokens" in (root.get("aria-label") or "")
    assert "100 %" in {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "inf" not in drawn.replace("infer", "")


def test_survival_curve_worked_by_hand() -> None:
    x, y = survival_curve(np.array([2.0, 8.0, 4.0, 1.0]))
    assert x.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert y.tolist() == [8.0, 4.0, 2.0, 1.0]
    x, y = survival_curve(RNG.random(5000))
    assert len(x) <= cells_plot.MOST_POINTS
    assert (x[-1], len(y)) == (1.0, len(x))
    assert survival_curve(np.array([5.0]))[0].tolist() == [1.0]


def test_activations_above_the_mean_are_orange_and_below_blue() -> None:
    # mean 0, deviation 1: ±1 is half of two deviations, rounded to 2 of 5 levels (2.5 to even)
    markup = activation_html(["a", "b"], np.array([1.0, -1.0]))
    depth = f"{MAX_OPACITY * 2 / 5:.2f}"
    assert re.findall(r"rgba\(([\d,.]+)\)\">(.)", markup) == [(f"{ORANGE},{depth}", "a"), (f"{BLUE},{depth}", "b")]


def test_neighbouring_tokens_of_one_colour_share_an_element() -> None:
    values = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    assert activation_html(list("abcdef"), values).count("background") == 2
    assert activation_html(["a", "b"], np.array([0.5, 0.5])).count("background") == 0  # no variation: no colour
    assert text_of(activation_html(["x"], np.array([3.0]))) == "x"


def test_coloured_text_is_escaped_and_has_automatic_direction() -> None:
    markup = activation_html(["<b>", "&", "\n", "\0", "שלום"], np.array([1.0, -1.0, 0.5, 0.2, 0.9]))
    assert text_of(markup) == "<b>&↵\n␀שלום"
    assert 'dir="auto"' in markup
