"""Figures: self-contained SVG, text as text, colours of the page, labels that do not overlap."""

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from chainrule.errors import MissingExtra
from chainrule.plots import figures

pytest.importorskip("matplotlib")

SERIES = {
    "modified-kneser-ney": [(1.0, 2.2), (2.0, 1.8), (3.0, 1.70)],
    "kneser-ney": [(1.0, 2.2), (2.0, 1.8), (3.0, 1.71)],
    "a & <b> $x$": [(1.0, 2.2), (2.0, 1.8), (3.0, 1.72)],
    "laplace": [(1.0, 2.2), (2.0, 2.4), (3.0, 2.9)],
}
DOTS = [
    figures.Dot("small", "ngram", 1e4, 2.2),
    figures.Dot("wasteful", "ngram", 1e6, 2.3),
    figures.Dot("large", "lstm", 2e6, 1.7),
]


def by_facet() -> str:
    return figures.plot_by_facet(SERIES, title="By order", facet="order", quantity="bits per byte")


def by_facet_log() -> str:
    return figures.plot_by_facet(SERIES, title="Log", facet="order", quantity="perplexity", is_log_y=True)


def growth() -> str:
    thousands = {name: [(1000 * x, y) for x, y in points] for name, points in SERIES.items()}
    return figures.plot_learning_curves(thousands, title="Growth", quantity="bits per byte")


def bars() -> str:
    return figures.plot_bars({"kneser-ney": 1.7, "laplace": 2.9}, title="Bars", quantity="bits per byte")


def scatter() -> str:
    return figures.plot_cost_quality(
        DOTS, title="Size", cost="size", unit="B", quantity="bits per byte", description="3 models"
    )


FIGURES = [by_facet, by_facet_log, growth, bars, scatter]
each = pytest.mark.parametrize("draw", FIGURES)


def texts(drawn: str) -> dict[str, ElementTree.Element]:
    elements = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return {element.text or "": element for element in elements}


@each
def test_figure_is_one_self_contained_svg_element(draw: Callable[[], str]) -> None:
    drawn = draw()
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert set(re.findall(r"https?://[^\"]*", drawn)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in drawn
    assert "<style" not in drawn
    assert "<metadata" not in drawn


@each
def test_figures_are_deterministic(draw: Callable[[], str]) -> None:
    assert draw() == draw()


@each
def test_figures_inherit_colour_and_font(draw: Callable[[], str]) -> None:
    drawn = draw()
    assert figures.INK not in drawn
    assert "#000000" not in drawn
    assert "DejaVu" not in drawn
    assert "currentColor" in drawn
    assert "fill: #ffffff" not in drawn


def test_figures_on_one_page_share_no_id() -> None:
    ids = re.findall(r' id="([^"]*)"', "".join(draw() for draw in FIGURES))
    assert len(ids) == len(set(ids))


def test_figure_has_accessible_title_and_description() -> None:
    root = ElementTree.fromstring(scatter())
    assert root.get("role") == "img"
    assert root.get("aria-label") == "Size. 3 models"
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "Size"


def test_line_labels_are_text_and_do_not_overlap() -> None:
    labels = texts(by_facet())
    heights = sorted(float(labels[name].attrib["y"]) for name in SERIES)
    assert all(below - above > figures.FONT_SIZE for above, below in pairwise(heights))


def test_only_the_pareto_front_is_labelled() -> None:
    labels = texts(scatter())
    assert {"small", "large", "ngram", "lstm"} <= set(labels)
    assert "wasteful" not in labels


def test_pareto_front_excludes_dominated_points() -> None:
    equal = figures.Dot("equal", "ngram", 2e4, 2.2)
    assert [dot.name for dot in figures.pareto_front([*DOTS, equal])] == ["small", "large"]


def test_bars_start_at_zero_and_show_their_values() -> None:
    assert {"0.0", "1.700", "2.900", "laplace"} <= set(texts(bars()))


def test_learning_curves_are_plotted_by_bytes() -> None:
    assert {"bytes of training text", "1.2 kB"} <= set(texts(growth()))


def test_single_points_and_many_series_can_be_plotted() -> None:
    assert figures.plot_by_facet({"one": [(1.0, 2.0)]}, title="One", facet="order", quantity="bits")
    many = {f"model {place}": [(10.0, 2.0 + place), (1000.0, 1.0 + place)] for place in range(40)}
    labels = texts(figures.plot_learning_curves(many, title="Many", quantity="bits"))
    assert sum(name.startswith("model") for name in labels) == figures.MOST_LABELS


@each
def test_missing_matplotlib_names_the_extra(draw: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'chainrule\[plots\]'"):
        draw()


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", figures.PALETTE)
@pytest.mark.parametrize("paper", ["#ffffff", "#15171a"])
def test_palette_has_sufficient_contrast_on_light_and_dark(colour: str, paper: str) -> None:
    low, high = sorted((luminance(colour), luminance(paper)))
    assert (high + 0.05) / (low + 0.05) > 3  # WCAG 2.1, 1.4.11
