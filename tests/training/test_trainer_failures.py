"""Failures of a run: non-finite values, what is saved, and the messages."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.training import checkpoint
from chainrule.training.batches import Window
from chainrule.training.diagnostics import Diverged
from training.small_networks import (
    UP,
    Slopes,
    Weights,
    entries,
    events,
    linear_objective,
    lines,
    scripted_validation,
    sgd,
    train_briefly,
    trainer,
)


def objective_failing_at(at: int, value: float) -> Any:
    """An objective that returns this value at one step."""
    steps = iter(range(1, 1000))

    def objective(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
        loss, nats, state = linear_objective(network, window, state)
        factor = value if next(steps) == at else 1.0
        return loss * factor, nats * factor, state

    return objective


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_loss_stops_the_run(tmp_path: Path, value: float) -> None:
    config = sgd(checkpoint_seconds=0.0)
    run = trainer(
        Weights(1.0, 2.0),
        Slopes(*[(-1.0, -1.0)] * 4),
        config,
        objective=objective_failing_at(6, value),
        out=tmp_path,
    )
    with pytest.raises(Diverged, match=r"diverged at step 6: w has 2 (NaN|infinite) of 2 values") as stopped:
        run.fit()
    assert f"kept at {tmp_path / 'checkpoint'}" in str(stopped.value)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.position["step"] == 5
    assert loaded.weights["w"].tolist() == [6, 7]


def test_overflowed_weights_are_never_checkpointed(tmp_path: Path) -> None:
    """The loss and gradient of the step are finite; the updated weights are not."""
    config = sgd(learning_rate=3e38, checkpoint_seconds=0.0)
    run = trainer(Weights(0.0), Slopes((-0.5,), (-1.0,)), config, out=tmp_path)
    with pytest.raises(Diverged, match=r"step 2: w has 1 infinite of 1 values.*last good checkpoint"):
        run.fit()
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.position["step"] == 1
    assert loaded.weights["w"].isfinite().all()


def test_divergence_without_a_checkpoint_mentions_none() -> None:
    run = trainer(Weights(1.0), UP, sgd(), objective=objective_failing_at(1, math.nan))
    with pytest.raises(Diverged, match="step 1: ") as stopped:
        run.fit()
    assert "checkpoint" not in str(stopped.value)
    assert "lower learning_rate or clip" in str(stopped.value)


def test_divergence_does_not_mention_an_earlier_run_s_checkpoint(tmp_path: Path) -> None:
    trainer(Weights(0.0), UP, sgd(checkpoint_seconds=0.0), out=tmp_path).fit()
    assert (tmp_path / checkpoint.NAME).exists()
    second_run = trainer(Weights(1.0), UP, sgd(), objective=objective_failing_at(1, math.nan), out=tmp_path)
    with pytest.raises(Diverged, match="step 1: ") as stopped:
        second_run.fit()
    assert "checkpoint" not in str(stopped.value)
    resumed = trainer(
        Weights(0.0), UP, sgd(epochs=3), objective=objective_failing_at(1, math.nan), out=tmp_path, resume=True
    )
    with pytest.raises(Diverged, match=f"the last good checkpoint is kept at {tmp_path / checkpoint.NAME}"):
        resumed.fit()


def test_non_finite_validation_stops_the_run() -> None:
    run = trainer(Weights(1.0), UP, sgd(), validate=scripted_validation(math.nan))
    with pytest.raises(Diverged, match="step 4: the loss is not finite, and w has weights of up to 5;"):
        run.fit()


@pytest.mark.parametrize(
    ("family", "rate", "words"),
    [
        ("rnn", 1e30, r"\S+ has [\d,]+ (NaN|infinite) of [\d,]+ values"),
        ("lstm", 1e38, r"the loss is not finite, and \S+ has weights of up to \S+e\+3\d"),
    ],
)
def test_network_with_a_huge_learning_rate_diverges(tmp_path: Path, family: str, rate: float, words: str) -> None:
    huge: dict[str, Any] = {"optimizer": "sgd", "learning_rate": rate, "clip": 0.0, "warmup": 0}
    with pytest.raises(Diverged, match=rf"diverged at step \d+: {words}; the last good checkpoint"):
        train_briefly(family, run_dir=tmp_path, checkpoint_seconds=0.0, **huge)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert all(tensor.isfinite().all() for tensor in loaded.weights.values() if tensor.is_floating_point())


def test_checkpoints_follow_the_clock(tmp_path: Path) -> None:
    trainer(Weights(0.0), UP, sgd(checkpoint_seconds=1000.0), out=tmp_path).fit()
    assert checkpoint.load(tmp_path) is None
    trainer(Weights(0.0), UP, sgd(checkpoint_seconds=0.0), out=tmp_path).fit()
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.position["step"] == 8


def test_log_is_written_during_training(tmp_path: Path) -> None:
    path = tmp_path / "train_log.part.jsonl"
    path.write_text('{"of": "a run before"}\n')
    sizes: list[int] = []
    run = trainer(Weights(0.0), UP, sgd(), out=tmp_path, progress=lambda *_: sizes.append(path.stat().st_size))
    log = run.fit()
    assert sizes == sorted(set(sizes))
    assert path.read_bytes() == log
    assert json.loads(log.splitlines()[0])["step"] == 1


def test_each_diagnostic_is_reported_once() -> None:
    """Loss above the unigram entropy and clipping at every step, in both epochs; each is reported once."""
    run = trainer(Weights(9.0), Slopes((1.0,), (1.0,)), sgd(clip=1e-3), unigram_nats=2.0)
    with pytest.warns(ChainruleWarning) as warned:
        log = run.fit()
    advice = events(log, "advice")
    assert [entry["words"] for entry in advice] == [str(w.message) for w in warned]
    # w falls by a thousandth per step; a high loss is reported only at the end of a short run
    assert [entry["step"] for entry in advice] == [2, 4]
    assert "clipped on 100% of the steps" in advice[0]["words"]
    assert advice[1]["words"].startswith("the loss, 9.00 nats, is above that of word frequencies alone, 2.00")


def test_long_run_reports_a_high_loss_early() -> None:
    run = trainer(Weights(9.0), Slopes(*[(0.0,)] * 201), sgd(epochs=3), objective=constant_nats, unigram_nats=2.0)
    with pytest.warns(ChainruleWarning):
        log = run.fit()
    high, vanished, still = events(log, "advice")
    assert [entry["step"] for entry in (high, vanished, still)] == [201, 201, 603]
    assert "has not moved from 3.00 nats in 3 epochs" in still["words"]
    assert high["words"].startswith("the loss, 3.00 nats, is above")
    assert "gradients have nearly vanished" in vanished["words"]


def constant_nats(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
    loss, _, state = linear_objective(network, window, state)
    return loss, torch.tensor(3.0), state


def test_healthy_training_reports_no_diagnostics() -> None:
    log = train_briefly("lstm", clip=100.0, epochs=6, train=lines(40), valid=lines(40)).log
    assert events(log, "advice") == []
    first, *_, last = [entry["loss"] for entry in entries(log) if "loss" in entry]
    assert last < first


def test_plateau_schedule_requires_a_validation_text() -> None:
    with pytest.raises(ConfigError, match="'plateau', which needs a validation text: give --valid"):
        train_briefly("lstm", schedule="plateau", valid=None)


def test_sufficient_time_limit_does_not_affect_training() -> None:
    """A run that fits into the time limit equals one without a limit, bit for bit."""
    free, limited = (train_briefly("lstm", max_seconds=seconds) for seconds in (None, 600.0))
    for one, other in zip(free.network.parameters(), limited.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_run_out_of_time_has_a_complete_log(tmp_path: Path) -> None:
    model = train_briefly("lstm", epochs=10_000, max_seconds=0.3, log_every=10_000, run_dir=tmp_path)
    log_lines = [json.loads(line) for line in model.log.splitlines()]
    assert any("loss" in line for line in log_lines)
