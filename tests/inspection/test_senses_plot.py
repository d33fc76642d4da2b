"""Sense plot: self-contained SVG, one titled point per sentence, escaped text."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.inspection.senses import SensePlot, Separation, context, draw, render_page
from chainrule.plots import figures
from chainrule.plots.figures import standalone

pytest.importorskip("matplotlib")

SENTENCES = [f"we saw the bank number {i} there".split() for i in range(6)]
SENSES = ["river"] * 3 + ["<money> & more"] * 3
SVG = "{http://www.w3.org/2000/svg}"


def picture(static: int = 1) -> SensePlot:
    vectors = np.random.default_rng(1).normal(size=(6, 4))
    vectors[3:] += 3
    layers = [Separation(0, 0.5, 1.0, 1.0, static), Separation(1, 5 / 6, 0.8, 0.3, 6)]
    return SensePlot("bank", "a <b> model", SENSES, SENTENCES, [3] * 6, layers, vectors)


def titles(drawn: str) -> list[str]:
    """Titles of the points, without the figure's."""
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter(f"{SVG}title")][1:]


def test_every_point_is_titled_with_its_sentence() -> None:
    drawn = draw(picture())
    assert titles(drawn) == [f"{sense}: {' '.join(s)}" for sense, s in zip(SENSES, SENTENCES, strict=True)]
    assert "<a " not in drawn
    for colour in figures.PALETTE[:2]:
        assert colour in drawn


def test_sense_plot_legend_axes_and_description() -> None:
    texts = " | ".join(element.text or "" for element in ElementTree.fromstring(draw(picture())).iter(f"{SVG}text"))
    assert "river (3)" in texts
    assert "<money> & more (3)" in texts
    assert "static vector: all 6 in one point" in texts
    assert re.search(r"first principal component, \d+ % of the variance", texts)
    assert "saw the bank number 0" in texts
    root = ElementTree.fromstring(draw(picture()))
    label = root.get("aria-label") or ""
    assert "identifies the sense of 83.3 % of them; always choosing “river” is right for 50.0 %." in label
    assert "The static vector is the same in every sentence" in label


def test_static_vector_is_omitted_if_not_unique() -> None:
    drawn = draw(picture(static=2))
    assert "in one point" not in drawn
    assert "The static vector is the same" not in drawn


def test_sense_plot_is_deterministic() -> None:
    assert draw(picture()) == draw(picture())
    assert render_page(picture()) == render_page(picture())


def test_standalone_sense_plot_has_light_and_dark_colours() -> None:
    drawn = standalone(draw(picture()))
    ElementTree.fromstring(drawn)
    assert drawn.count("<style>") == 1
    assert "prefers-color-scheme:dark" in drawn
    assert "currentColor" in drawn
    assert "<style>" not in draw(picture())  # in a page it inherits the page's


def test_sense_page_is_self_contained_and_escaped() -> None:
    page = render_page(picture())
    assert "<b>" not in page
    assert "&lt;money&gt; &amp; more" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in page
    assert "<td>0 (static)</td><td>50.0 %</td><td>50.0 %</td><td>1.000</td><td>1.000</td><td>+0.000</td>" in page
    assert (
        "<tr class=best><td>1</td><td>83.3 %</td><td>50.0 %</td><td>0.800</td><td>0.300</td><td>+0.500</td>" in page
    )
    assert page.count("<mark>bank</mark>") == 6
    assert page.startswith("<!doctype html>")


def test_context_shows_a_few_words() -> None:
    words = ["we", "sat", "on", "the", "bank"]
    assert context(words, 4, 2) == "… on the bank"
    assert context(words, 0, 1) == "we sat …"
    assert context(["bank"], 0, 2) == "bank"
