"""Per-parameter gradient statistics worked by hand; they do not affect training."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chainrule import families
from chainrule.training import checkpoint
from chainrule.training.batches import Window
from chainrule.training.step import FlatParameters, GradientStatistics, TrainingStep
from training.small_networks import CPU, Slopes, Weights, entries, sgd, train_briefly, trainer
from training.test_resume import run_interrupted, run_to_the_end, weights_file

PARTS = ("clipped_by", "gradient_norms", "update_ratio")


class Pair(nn.Module):
    """Two parameters; their gradients are the window's first two numbers and its third."""

    def __init__(self, a: tuple[float, float] = (0.0, 0.0), b: float = 0.0) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))
        self.b = nn.Parameter(torch.tensor([b]))

    def start(self, rows: int) -> tuple[Tensor, ...]:
        return (torch.zeros(rows, 1),)


def pull(network: Pair, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
    loss = (torch.cat([network.a, network.b]) * window.inputs[0]).sum()
    return loss, loss, state


def step_along(clip: float, *gradients: tuple[float, float, float], **settings: Any) -> TrainingStep:
    """A pair of zeros after one step along each gradient."""
    step = TrainingStep(Pair(), pull, sgd(clip=clip, **settings), CPU)
    for gradient in gradients:
        step(Window(torch.tensor([gradient]), torch.zeros(1, 1)), ())
    return step


STEPS = ((3.0, 4.0, 0.0), (0.6, 0.8, 12.0), (0.0, 1.0, 1.0))  # norms 5, √145 and √2


def test_gradient_statistics_of_three_steps_worked_by_hand() -> None:
    statistics = step_along(2.0, *STEPS).gradient_stats.flush()
    assert statistics["clipped_by"] == {"a": 1, "b": 1}  # 25 against 0, then 1 against 144; √2 is below 2
    # a: √((25 + 1 + 1) / 3), b: √((0 + 144 + 1) / 3) = 6.9522
    assert statistics["gradient_norms"] == {"a": 3.0, "b": 6.952}
    assert statistics["update_ratio"] == {}  # updates were not recorded


def test_clipped_by_names_only_the_largest_parameter() -> None:
    assert step_along(2.0, STEPS[0], STEPS[0]).gradient_stats.flush()["clipped_by"] == {"a": 2}
    assert step_along(99.0, *STEPS).gradient_stats.flush()["clipped_by"] == {}
    assert step_along(0.0, *STEPS).gradient_stats.flush()["clipped_by"] == {}  # no clipping


def test_clipped_by_breaks_ties_by_order() -> None:
    assert step_along(1.0, (0.0, 3.0, 3.0)).gradient_stats.flush()["clipped_by"] == {"a": 1}


def test_gradient_statistics_use_capped_values() -> None:
    """As in the norm used for clipping: (3, 4, 12) capped at 3 is (3, 3, 3)."""
    statistics = step_along(1.0, (3.0, 4.0, 12.0), clip_value=3.0).gradient_stats.flush()
    assert statistics == {"clipped_by": {"a": 1}, "gradient_norms": {"a": 4.243, "b": 3.0}, "update_ratio": {}}


def test_squared_norms_sum_to_the_total() -> None:
    step = step_along(0.0, (0.3, -1.7, 2.9))
    squared_norm = float(torch.linalg.vector_norm(step.flat.gradient)) ** 2
    assert float(step.gradient_stats.squares.sum()) == pytest.approx(squared_norm, rel=1e-6)


def test_gradient_statistics_reset_after_flush() -> None:
    step = step_along(2.0, *STEPS)
    step.gradient_stats.flush()
    assert step.gradient_stats.flush() == {"clipped_by": {}, "gradient_norms": {}, "update_ratio": {}}


def test_update_ratio_worked_by_hand() -> None:
    flat = FlatParameters(Pair((3.0, 4.0), 0.0))
    stats, before = GradientStatistics(flat), flat.weights.clone()
    dict(flat.named_slices(flat.weights))["a"].copy_(torch.tensor([3.0, 3.0]))
    stats.record_update(before)
    # ‖(0, −1)‖ / ‖(3, 3)‖ = 1 / √18; b stays 0
    assert stats.flush()["update_ratio"] == {"a": pytest.approx(1 / math.sqrt(18), abs=1e-4), "b": 0.0}


def test_log_contains_the_update_ratio_of_the_last_step() -> None:
    """Log lines after steps 2 and 3, where the epoch ends; b falls by 1, 2 and 4 from 10 to 9, 7 and 3."""
    source = Slopes((0.0, 0.0, 1.0), (0.0, 0.0, 2.0), (0.0, 0.0, 4.0))
    run = trainer(Pair(b=10.0), source, sgd(epochs=1, log_every=2), objective=pull)
    lines = [entry for entry in entries(run.fit()) if "loss" in entry]
    assert [line["step"] for line in lines] == [2, 3]
    assert [line["update_ratio"] for line in lines] == [{"a": 0, "b": 0.2857}, {"a": 0, "b": 1.333}]  # 2/7, 4/3
    assert [line["gradient_norms"]["b"] for line in lines] == [1.581, 4.0]  # √((1 + 4) / 2)
    assert [line["clipped_by"] for line in lines] == [{}, {}]


def test_unscheduled_log_line_has_no_update_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second, the time limit is reached after the first of four, and lines are logged every
    hundred.
    """
    run = trainer(Weights(1.0), Slopes(*[(1.0,)] * 4), sgd(log_every=100, max_seconds=1.0, epochs=1))
    monkeypatch.setattr(run.metrics, "seconds", lambda: float(run.position.step))
    lines = [entry for entry in entries(run.fit()) if "loss" in entry]
    assert [(line["step"], line["gradient_norms"], line["update_ratio"]) for line in lines] == [(1, {"w": 1.0}, {})]


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_gradient_statistics_do_not_affect_training(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"clip": 0.2, "dropout": 0.2, "log_every": 2}
    with_statistics = train_briefly(family, "stream", **settings)
    monkeypatch.setattr(GradientStatistics, "update", lambda *_: None)
    monkeypatch.setattr(GradientStatistics, "record_update", lambda *_: None)
    unseen = train_briefly(family, "stream", **settings)
    files = [families.get(family).files(model)["model.safetensors"] for model in (with_statistics, unseen)]
    assert files[0] == files[1]
    logs = [entries(model.log) for model in (with_statistics, unseen)]
    assert sum(sum(entry.get("clipped_by", {}).values()) for entry in logs[0]) > 3  # some steps were clipped
    for entry in logs[0] + logs[1]:
        for part in PARTS:
            entry.pop(part, None)
    assert logs[0] == logs[1]


def test_each_clipped_step_is_attributed_once() -> None:
    log = [entry for entry in entries(train_briefly("gru", "line", clip=0.3).log) if "loss" in entry]
    steps = [entry["step"] - before for entry, before in zip(log, [0, *(e["step"] for e in log)], strict=False)]
    clipped = [round(entry["clipped"] * n) for entry, n in zip(log, steps, strict=True)]
    assert [sum(entry["clipped_by"].values()) for entry in log] == clipped
    assert any(clipped)


def test_checkpoint_without_gradient_statistics_resumes(tmp_path: Path) -> None:
    """Such a checkpoint has no sums: weights are equal, and the first log line counts from the resumption."""
    run = "lstm-stream-adamw"
    uninterrupted = run_to_the_end(run)
    run_interrupted(tmp_path, run, 4)  # lines are logged after steps 3 and 5, where the epoch ends
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    state = {name: tensor for name, tensor in loaded.state.items() if name != "blame"}
    assert len(state) == len(loaded.state) - 1
    checkpoint.save(tmp_path, dataclasses.replace(loaded, state=state))
    again = run_to_the_end(run, tmp_path, resume=True)
    assert weights_file(run, again) == weights_file(run, uninterrupted)
    differing = [a for a, b in zip(entries(again.log), entries(uninterrupted.log), strict=True) if a != b]
    assert [entry["step"] for entry in differing] == [5]
    assert all(norm > 0 for norm in differing[0]["gradient_norms"].values())
