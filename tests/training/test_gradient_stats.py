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
from training.small_networks import CPU, Slopes, Weights, entries, learn, sgd, trainer
from training.test_resume import finished, interrupted, weights

PARTS = ("clipped_by", "gradient_norms", "update_ratio")


class Pair(nn.Module):
    """Two matrices; their gradients are the window's first two numbers and its third."""

    def __init__(self, a: tuple[float, float] = (0.0, 0.0), b: float = 0.0) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))
        self.b = nn.Parameter(torch.tensor([b]))

    def start(self, rows: int) -> tuple[Tensor, ...]:
        return (torch.zeros(rows, 1),)


def pull(network: Pair, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
    loss = (torch.cat([network.a, network.b]) * window.inputs[0]).sum()
    return loss, loss, state


def after(clip: float, *gradients: tuple[float, float, float], **settings: Any) -> TrainingStep:
    """A pair of zeros after one step down each of these."""
    step = TrainingStep(Pair(), pull, sgd(clip=clip, **settings), CPU)
    for each in gradients:
        step(Window(torch.tensor([each]), torch.zeros(1, 1)), ())
    return step


STEPS = ((3.0, 4.0, 0.0), (0.6, 0.8, 12.0), (0.0, 1.0, 1.0))  # norms 5, √145 and √2


def test_parts_of_three_steps_by_hand() -> None:
    found = after(2.0, *STEPS).gradient_stats.flush()
    assert found["clipped_by"] == {"a": 1, "b": 1}  # 25 against 0, then 1 against 144; √2 is below 2
    # a: √((25 + 1 + 1) / 3), b: √((0 + 144 + 1) / 3) = 6.9522
    assert found["gradient_norms"] == {"a": 3.0, "b": 6.952}
    assert found["update_ratio"] == {}  # no step was compared


def test_only_what_was_to_blame_is_named() -> None:
    assert after(2.0, STEPS[0], STEPS[0]).gradient_stats.flush()["clipped_by"] == {"a": 2}
    assert after(99.0, *STEPS).gradient_stats.flush()["clipped_by"] == {}
    assert after(0.0, *STEPS).gradient_stats.flush()["clipped_by"] == {}  # never clipped


def test_the_first_of_equals_is_to_blame() -> None:
    assert after(1.0, (0.0, 3.0, 3.0)).gradient_stats.flush()["clipped_by"] == {"a": 1}


def test_values_that_were_capped_count_as_capped() -> None:
    """As in the norm that clips: (3, 4, 12) capped at 3 is (3, 3, 3)."""
    found = after(1.0, (3.0, 4.0, 12.0), clip_value=3.0).gradient_stats.flush()
    assert found == {"clipped_by": {"a": 1}, "gradient_norms": {"a": 4.243, "b": 3.0}, "update_ratio": {}}


def test_the_squares_add_up_to_that_of_the_whole() -> None:
    step = after(0.0, (0.3, -1.7, 2.9))
    whole = float(torch.linalg.vector_norm(step.flat.gradient)) ** 2
    assert float(step.gradient_stats.squares.sum()) == pytest.approx(whole, rel=1e-6)


def test_sums_start_anew_after_a_line() -> None:
    step = after(2.0, *STEPS)
    step.gradient_stats.flush()
    assert step.gradient_stats.flush() == {"clipped_by": {}, "gradient_norms": {}, "update_ratio": {}}


def test_how_far_a_step_moved_each() -> None:
    flat = FlatParameters(Pair((3.0, 4.0), 0.0))
    stats, before = GradientStatistics(flat), flat.weights.clone()
    dict(flat.named_slices(flat.weights))["a"].copy_(torch.tensor([3.0, 3.0]))
    stats.record_update(before)
    # ‖(0, −1)‖ / ‖(3, 3)‖ = 1 / √18; b was and is 0
    assert stats.flush()["update_ratio"] == {"a": pytest.approx(1 / math.sqrt(18), abs=1e-4), "b": 0.0}


def test_the_log_tells_of_the_last_step_before_each_line() -> None:
    """Lines after steps 2 and 3, where the epoch ends; b falls by 1, 2 and 4 from 10 to 9, 7 and 3."""
    source = Slopes((0.0, 0.0, 1.0), (0.0, 0.0, 2.0), (0.0, 0.0, 4.0))
    run = trainer(Pair(b=10.0), source, sgd(epochs=1, log_every=2), objective=pull)
    lines = [entry for entry in entries(run.fit()) if "loss" in entry]
    assert [line["step"] for line in lines] == [2, 3]
    assert [line["update_ratio"] for line in lines] == [{"a": 0, "b": 0.2857}, {"a": 0, "b": 1.333}]  # 2/7, 4/3
    assert [line["gradient_norms"]["b"] for line in lines] == [1.581, 4.0]  # √((1 + 4) / 2)
    assert [line["clipped_by"] for line in lines] == [{}, {}]


def test_a_line_at_a_time_nobody_knew_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second, the time is up after the first of four, and lines come every hundred."""
    run = trainer(Weights(1.0), Slopes(*[(1.0,)] * 4), sgd(log_every=100, max_seconds=1.0, epochs=1))
    monkeypatch.setattr(run.metrics, "seconds", lambda: float(run.position.step))
    lines = [entry for entry in entries(run.fit()) if "loss" in entry]
    assert [(line["step"], line["gradient_norms"], line["update_ratio"]) for line in lines] == [(1, {"w": 1.0}, {})]


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_what_is_learnt_is_the_same_without_any_of_it(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"clip": 0.2, "dropout": 0.2, "log_every": 2}
    seen = learn(family, "stream", **settings)
    monkeypatch.setattr(GradientStatistics, "update", lambda *_: None)
    monkeypatch.setattr(GradientStatistics, "record_update", lambda *_: None)
    unseen = learn(family, "stream", **settings)
    files = [families.get(family).files(model)["model.safetensors"] for model in (seen, unseen)]
    assert files[0] == files[1]
    logs = [entries(model.log) for model in (seen, unseen)]
    assert sum(sum(entry.get("clipped_by", {}).values()) for entry in logs[0]) > 3  # there was something to see
    for entry in logs[0] + logs[1]:
        for part in PARTS:
            entry.pop(part, None)
    assert logs[0] == logs[1]


def test_clipped_steps_are_blamed_once_each() -> None:
    log = [entry for entry in entries(learn("gru", "line", clip=0.3).log) if "loss" in entry]
    steps = [entry["step"] - before for entry, before in zip(log, [0, *(e["step"] for e in log)], strict=False)]
    clipped = [round(entry["clipped"] * n) for entry, n in zip(log, steps, strict=True)]
    assert [sum(entry["clipped_by"].values()) for entry in log] == clipped
    assert any(clipped)


def test_a_checkpoint_from_before_goes_on(tmp_path: Path) -> None:
    """It kept no such sums: the weights are the same, the first line counts from where it was taken up."""
    run = "lstm-stream-adamw"
    whole = finished(run)
    interrupted(tmp_path, run, 4)  # lines come after steps 3 and 5, where the epoch ends
    found = checkpoint.load(tmp_path)
    assert found is not None
    state = {name: tensor for name, tensor in found.state.items() if name != "blame"}
    assert len(state) == len(found.state) - 1
    checkpoint.save(tmp_path, dataclasses.replace(found, state=state))
    again = finished(run, tmp_path, resume=True)
    assert weights(run, again) == weights(run, whole)
    differing = [a for a, b in zip(entries(again.log), entries(whole.log), strict=True) if a != b]
    assert [entry["step"] for entry in differing] == [5]
    assert all(norm > 0 for norm in differing[0]["gradient_norms"].values())
