"""Plots of a run: self-contained SVG, correct names and ticks, runs of any length."""

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.inspection import training
from chainrule.inspection.training import MOST_POINTS, TrainingLog, Validations, downsample
from chainrule.plots import figures

pytest.importorskip("matplotlib")


def run(lines: int = 40, matrices: int = 3, **more: Any) -> TrainingLog:
    """A run whose loss falls by one nat in all; parameter i moves by 10^-i."""
    steps = np.arange(1.0, lines + 1)
    usual: dict[str, Any] = {
        "step": 10 * steps,
        "loss": 6 - steps / lines,
        "learning_rate": np.full(lines, 0.1),
        "gradient_norm": np.full(lines, 0.3),
        "largest_gradient_norm": np.full(lines, 3.0),
        "clipped": np.full(lines, 0.25),
        "clipped_by": {f"R{i}": np.full(lines, 1.0) for i in range(matrices)},
        "update_ratio": {f"R{i}": np.full(lines, 10.0**-i) for i in range(matrices)},
        "validations": Validations(step=np.array([200.0]), epoch=np.array([1.0]), value=np.array([5.5])),
    }
    return TrainingLog(**usual | more)


def texts(drawn: str) -> list[str]:
    elements = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [element.text or "" for element in elements]


FIGURES: list[Callable[[TrainingLog], str]] = [
    lambda log: training.plot_loss({"a": log}),
    lambda log: training.plot_loss({"a": log, "b & <c>": log}, is_nats=False),
    lambda log: training.plot_gradient_norm("a", log, clip=1.0),
    lambda log: training.plot_gradient_norm("a", log),
    lambda log: training.plot_clipping("a", log),
    lambda log: training.plot_learning_rate({"a": log, "b & <c>": log}),
    lambda log: training.plot_update_ratio("a", log),
]
each = pytest.mark.parametrize("draw", FIGURES)


@each
@pytest.mark.parametrize("lines", [1, 2, 1000])
def test_training_plot_is_small_and_self_contained(draw: Callable[[TrainingLog], str], lines: int) -> None:
    drawn = draw(run(lines))
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert set(re.findall(r"https?://[^\"]*", drawn)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in drawn
    assert figures.INK not in drawn
    assert "#000000" not in drawn
    assert "nan" not in drawn.lower().split("<path")[-1]
    assert len(drawn) < 60_000


@each
def test_training_plots_are_deterministic(draw: Callable[[TrainingLog], str]) -> None:
    assert draw(run()) == draw(run())


def test_loss_ticks_give_nats_and_perplexity() -> None:
    labels = texts(training.plot_loss({"a": run()}))
    assert "nats per token (perplexity)" in labels
    assert "5 (148)" in labels  # e^5 = 148.4
    assert "5" in texts(training.plot_loss({"a": run()}, is_nats=False))


def test_only_several_runs_are_named() -> None:
    assert {"a", "b & <c>"} <= set(texts(training.plot_loss({"a": run(), "b & <c>": run()})))
    assert "a" not in texts(training.plot_loss({"a": run()}))


def test_validations_are_points_only_in_nats() -> None:
    def circles(log: TrainingLog) -> int:
        return training.plot_loss({"a": log}).count("<use ")

    rates = Validations(step=np.array([200.0]), epoch=np.array([1.0]), value=np.array([0.5]), measure="error")
    assert circles(run()) == circles(run(validations=None)) + 1
    assert circles(run(validations=rates)) == circles(run(validations=None))


def test_clip_line_is_labelled_if_present() -> None:
    assert "clip, 1.5" in texts(training.plot_gradient_norm("a", run(), clip=1.5))
    assert not any(text.startswith("clip,") for text in texts(training.plot_gradient_norm("a", run(), clip=0.0)))


def test_clipping_bars_are_shares_of_clipped_steps() -> None:
    log = run(clipped_by={"W": np.full(40, 3.0), "R": np.full(40, 1.0), "b": np.zeros(40)})
    labels = texts(training.plot_clipping("a", log))
    assert labels.index("W") < labels.index("R")
    assert {"75 %", "25 %"} <= set(labels)
    assert "b" not in labels


def test_minor_clipping_causes_are_summed_up() -> None:
    labels = texts(training.plot_clipping("a", run(matrices=14)))
    assert "4 others" in labels
    assert "29 %" in labels  # 4 of 14
    assert labels.count("7 %") == 10


def test_least_and_most_updated_parameters_are_drawn() -> None:
    assert training.select_matrices(run(matrices=3)) == ["R0", "R1", "R2"]
    assert training.select_matrices(run(matrices=12)) == ["R0", "R1", "R2", "R3", "R8", "R9", "R10", "R11"]
    assert training.select_matrices(run(update_ratio={"R": np.zeros(40)})) == []  # not representable on a log scale


def test_downsample_drops_non_finite_values() -> None:
    x, y = downsample(np.array([1.0, 2.0, 3.0]), np.array([1.0, np.nan, np.inf]))
    assert (x.tolist(), y.tolist()) == ([1], [1])
    log = run(loss=np.full(40, np.nan), gradient_norm=np.zeros(40))
    for draw in FIGURES:
        ElementTree.fromstring(draw(log))


def test_downsample_can_keep_the_maximum() -> None:
    x, y = downsample(np.arange(1000.0), np.arange(1000.0), np.max)
    assert len(x) == len(y) == MOST_POINTS
    assert (x[-1], y[-1]) == (999, 999)
    assert (x[0], y[0]) == (3, 3)  # the largest of 0, 1, 2, 3
    assert downsample(np.arange(1000.0), np.arange(1000.0))[1][0] == 1.5
