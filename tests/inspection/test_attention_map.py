"""Attention maps: self-contained and small SVG, every token as an escaped label."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.inspection import attention_heads
from chainrule.inspection.attention_heads import (
    CrossHead,
    Head,
    cross_table,
    draw_by_distance,
    draw_grid,
    draw_head,
    heads_table,
    score_table,
    token_label,
)
from chainrule.inspection.attention_scaling import HeadScores
from chainrule.lm import Floats
from chainrule.plots import figures

pytest.importorskip("matplotlib")

SVG = "{http://www.w3.org/2000/svg}"
ODD = ["<s>", "a&b", "مرحبا", "日本語", "😀", " ", "\n", "x$y$", "\u2028", "incomprehensibly"]

ALIGNED = ' style="text-align:right"'  # of numbers in tables


def maps(H: int, T: int) -> Floats:
    scores = np.random.default_rng(1).normal(size=(H, T, T)) * 3
    exponents = np.where(np.tri(T, dtype=bool), np.exp(scores), 0.0)
    weights: Floats = exponents / exponents.sum(axis=-1, keepdims=True)
    return weights


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def images(drawn: str) -> int:
    return len(list(ElementTree.fromstring(drawn).iter(f"{SVG}image")))


def head(**chosen: float) -> Head:
    usual = {"distance": 2.0, "entropy": 1.0, "possible": 4.0, "itself": 0.0, "previous": 0.92, "first": 0.03}
    return Head(layer=1, head=2, by_distance=np.zeros(1), pairs=np.zeros(1), **(usual | chosen))


def test_maps_of_sixteen_heads_are_small() -> None:
    """A grid and two large maps of 4 layers × 4 heads over 32 tokens stay far below 300 kB."""
    grid = draw_grid([maps(4, 32)] * 4, model="a <b> model")
    large = draw_head(maps(1, 32)[0], ["token"] * 32, ["token"] * 32, title="a <b> head")
    assert len(grid) + 2 * len(large) < 150_000
    assert images(grid) == 16
    assert images(large) == 1
    for drawn in (grid, large):
        assert "<b>" not in drawn
        assert "http" not in drawn.replace("http://www.w3.org/", "")
        assert "<script" not in drawn
    assert texts(grid) == ["1", "2", "3", "4", "head", "1", "2", "3", "4", "layer"]


def test_attention_grid_is_deterministic() -> None:
    assert draw_grid([maps(2, 5)], model="m") == draw_grid([maps(2, 5)], model="m")


@pytest.mark.parametrize(("layers", "H", "T"), [(1, 1, 1), (12, 16, 3), (2, 1, 40)])
def test_attention_grids_of_any_size(layers: int, H: int, T: int) -> None:
    drawn = draw_grid([maps(H, T)] * layers, model="m")
    assert images(drawn) == layers * H


def test_pixel_opacity_is_the_root_of_the_weight() -> None:
    """The image read back: opacity is the square root of the weight, rows are queries."""
    import base64
    import io

    from matplotlib.image import imread

    alpha = np.array([[1.0, 0.0], [0.25, 0.75]])
    drawn = draw_head(alpha, ["a", "b"], ["a", "b"], title="one")
    match = re.search(r'href="data:image/png;base64,([^"]*)"', drawn)
    assert match is not None
    pixels = imread(io.BytesIO(base64.b64decode(match[1])))
    image = next(ElementTree.fromstring(drawn).iter(f"{SVG}image"))
    is_turned = "-1" in (image.get("transform") or "") and "scale(1 -1)" in (image.get("transform") or "")
    opacity = pixels[::-1, :, 3] if is_turned else pixels[..., 3]
    assert opacity[0, 0] == 1.0
    assert opacity[0, -1] == 0.0
    assert opacity[-1, 0] == pytest.approx(0.5, abs=0.01)
    assert opacity[-1, -1] == pytest.approx(np.sqrt(0.75), abs=0.01)


def test_tokens_of_any_script_are_labels() -> None:
    drawn = draw_head(maps(1, 10)[0], ODD, ODD, title="مرحبا \x00")
    labels = texts(drawn)
    for token in ("<s>", "a&b", "مرحبا", "日本語", "😀", "␣", "␊", "x$y$", "incomprehen…"):
        assert labels.count(token) >= 2, token
    assert "\x00" not in drawn


def test_description_names_the_largest_weights() -> None:
    alpha = np.array([[1.0, 0.0], [0.3, 0.7]])
    root = ElementTree.fromstring(draw_head(alpha, ["we", "go"], ["we", "go"], title="one"))
    words = root.get("aria-label") or ""
    assert "The largest weights: we (row 1) to we (column 1), 100 %; go (row 2) to go (column 2), 70 %" in words


def test_curves_by_distance_are_labelled() -> None:
    curves = {"layer 1": np.array([0.5, 0.25, 0.0, 0.01]), "layer <2>": np.array([0.1])}
    drawn = draw_by_distance(curves, np.array([1.0, 0.5]), title="By distance")
    labels = texts(drawn)
    assert {"layer 1", "layer <2>", "uniform weights", "tokens back"} <= set(labels)
    label_ = ElementTree.fromstring(drawn).get("aria-label") or ""
    assert "layer 1: 50.0 % on the current token, 25.0 % one back, none ten back" in label_
    assert figures.PALETTE[0] in drawn
    assert figures.PALETTE[1] in drawn


@pytest.mark.parametrize("curve", [np.zeros(3), np.array([1.0]), np.full(5000, 2e-4)])
def test_any_curve_by_distance_can_be_drawn(curve: Floats) -> None:
    drawn = draw_by_distance({"only": curve}, None, title="By distance")
    assert "nan" not in drawn
    assert len(drawn) < 20_000
    assert "uniform weights" not in drawn


def test_heads_table_worked_by_hand() -> None:
    """Entropy 1 of 4 bits is 25 %."""
    table = heads_table([head()]).replace(ALIGNED, "")
    assert "<td>2</td><td>3</td><td>previous token</td><td>2.0</td><td>1.00</td><td>25 %</td>" in table
    assert "<td>0 %</td><td>92 %</td><td>3 %</td></tr>" in table
    assert table.count('<th scope="col"') == 9


def test_score_table_worked_by_hand() -> None:
    """Variance 1,600 with d = 16: deviation 40, divided by √16 it is 10; 1600/800 = 2."""
    scores = HeadScores(
        layer=0, head=0, width=16, mean=0.0, visible=1600.0, every=900.0, predicted=800.0, products=700.0
    )
    table = score_table([scores]).replace(ALIGNED, "")
    cells = "<td>16</td><td>40</td><td>10</td><td>1,600</td><td>900</td><td>800</td><td>2.00</td>"
    assert f"<td>1</td><td>1</td>{cells}" in table
    still = HeadScores(layer=0, head=0, width=1, mean=0.0, visible=0.0, every=0.0, predicted=0.0, products=0.0)
    assert "<td>–</td></tr>" in score_table([still]).replace(ALIGNED, "")
    assert attention_heads.scores_json(still)["ratio"] is None


def test_cross_table_worked_by_hand() -> None:
    head_ = CrossHead(layer=0, head=1, entropy=1.5, possible=3.0, strongest=0.625, diagonal=1.25)
    table = cross_table([head_]).replace(ALIGNED, "")
    assert "<td>1</td><td>2</td><td>1.50</td><td>3.00</td><td>62 %</td><td>1.2</td>" in table


def test_token_labels_replace_control_characters() -> None:
    assert token_label("a\tb") == "a␉b"
    assert token_label("\u00a0") == "␣"
