"""Training loop: learning rates, validations, selected weights, stopping."""

import math
from typing import Any

import pytest
import torch

from chainrule.training.optimizers import learning_rate
from training.small_networks import (
    UP,
    Slopes,
    Weights,
    entries,
    events,
    scripted_validation,
    sgd,
    train_briefly,
    trainer,
)


def test_training_runs_all_epochs() -> None:
    network = Weights(0.0)
    log = entries(trainer(network, UP, sgd(epochs=3)).fit())
    assert network.w.tolist() == [12]
    steps = [entry for entry in log if "event" not in entry]
    assert [entry["step"] for entry in steps] == list(range(1, 13))
    assert [entry["epoch"] for entry in steps] == [0] * 4 + [1] * 4 + [2] * 4
    assert [entry["loss"] for entry in steps] == [-w for w in range(12)]  # g · w before each step
    assert log[-1] == {"event": "end", "step": 12, "epoch": 3, "best": None}


def test_network_is_in_eval_mode_without_gradients_after_training() -> None:
    network = Weights(0.0)
    run = trainer(network, UP, sgd())
    run.fit()
    assert not network.training
    assert network.w.grad is None
    before = network.w.tolist()
    run.step.flat.weights.fill_(77)
    assert network.w.tolist() == before


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential"])
def test_every_step_uses_the_scheduled_rate(schedule: Any) -> None:
    config = sgd(schedule=schedule, warmup=2, flat=0.25)
    network = Weights(0.0)
    log = [entry for entry in entries(trainer(network, UP, config).fit()) if "event" not in entry]
    expected = [learning_rate(config, done, done / 8) for done in range(8)]
    assert [entry["learning_rate"] for entry in log] == pytest.approx(expected)
    assert network.w.item() == pytest.approx(sum(expected), rel=1e-6)
    assert len(set(expected)) > 4


def test_log_contains_every_nth_step_and_epoch_ends() -> None:
    log = entries(trainer(Weights(0.0), UP, sgd(log_every=3)).fit())
    steps = [(entry["step"], entry["loss"]) for entry in log if "event" not in entry]
    # losses 0, −1, −2 | −3 | −4, −5 | −6, −7: means since the last line
    assert steps == [(3, -1.0), (4, -3.0), (6, -4.5), (8, -6.5)]


@pytest.mark.parametrize(("keep", "expected_weight"), [("best", 4), ("last", 12)])
def test_best_or_last_weights_are_restored(keep: Any, expected_weight: int) -> None:
    network = Weights(0.0)
    config = sgd(epochs=3, keep=keep)
    log = trainer(network, UP, config, validate=scripted_validation(1.0, 3.0, 2.0)).fit()
    assert network.w.tolist() == [expected_weight]
    validations = events(log, "validation")
    assert [(v["epoch"], v["nats"], v["best"]) for v in validations] == [(1, 1, 1), (2, 3, 1), (3, 2, 1)]
    assert validations[1]["perplexity"] == pytest.approx(math.exp(3))
    assert events(log, "end")[0]["best"] == 1


def test_validation_runs_every_n_epochs_and_at_the_end() -> None:
    config = sgd(epochs=5, validate_every=2)
    log = trainer(Weights(0.0), UP, config, validate=scripted_validation(3.0, 2.0, 1.0)).fit()
    assert [v["epoch"] for v in events(log, "validation")] == [2, 4, 5]


def test_validation_runs_in_eval_mode() -> None:
    network = Weights(0.0)
    modes: list[bool] = []

    def validate() -> float:
        modes.append(network.training)
        return 1.0

    trainer(network, UP, sgd(), validate=validate).fit()
    assert modes == [False, False]


@pytest.mark.parametrize("averaging", ["mean", "ema"])
def test_validation_uses_averaged_weights(averaging: Any) -> None:
    network = Weights(0.0)
    validated_weights: list[float] = []

    def validate() -> float:
        validated_weights.append(network.w.item())
        return 1.0

    config = sgd(averaging=averaging, average_from=0.6, average_decay=0.75)
    trainer(network, UP, config, validate=validate).fit()
    joined = [5.0, 6.0, 7.0, 8.0]  # after step 5 of 8, 0.625 of the run, and on
    ema = joined[0]
    for w in joined[1:]:
        ema = 0.75 * ema + 0.25 * w
    expected = 6.5 if averaging == "mean" else ema
    assert validated_weights[0] == 4  # no average yet
    assert validated_weights[1] == pytest.approx(expected)
    # both validations are 1: the first was the best, so its weights are restored
    assert network.w.item() == 4
    last = Weights(0.0)
    trainer(last, UP, sgd(averaging=averaging, average_from=0.6, average_decay=0.75, keep="last")).fit()
    assert last.w.item() == pytest.approx(expected)


def test_training_continues_from_unaveraged_weights() -> None:
    network = Weights(0.0)
    validated_weights: list[float] = []

    def validate() -> float:
        validated_weights.append(network.w.item())
        return 1.0

    config = sgd(epochs=3, averaging="mean", average_from=0.5, keep="last")
    trainer(network, UP, config, validate=validate).fit()
    assert validated_weights == pytest.approx([4, (6 + 7 + 8) / 3, (6 + 7 + 8 + 9 + 10 + 11 + 12) / 7])
    assert network.w.item() == pytest.approx(9)


def test_only_the_plateau_schedule_reacts_to_plateaus() -> None:
    log = trainer(Weights(0.0), UP, sgd(epochs=3, decay=0.5), validate=scripted_validation(1.0, 2.0, 3.0)).fit()
    assert {entry["learning_rate"] for entry in entries(log) if "event" not in entry} == {1.0}


def test_plateau_lowers_the_rate_from_the_next_step() -> None:
    config = sgd(epochs=4, schedule="plateau", decay=0.5)
    log = trainer(Weights(0.0), UP, config, validate=scripted_validation(2.0, 2.5, 1.0, 1.0)).fit()
    rates = [entry["learning_rate"] for entry in entries(log) if "event" not in entry]
    assert rates == [1.0] * 8 + [0.5] * 8  # the second validation did not improve, the third did


def test_time_limit_ends_a_run_within_an_epoch() -> None:
    network = Weights(0.0)
    endless = Slopes(*[(-1.0,)] * 1_000_000)
    run = trainer(network, endless, sgd(max_seconds=0.05, log_every=1000), validate=scripted_validation(1.0))
    log = run.fit()
    assert 0 < network.w.item() < 1_000_000
    (end,) = events(log, "end")
    assert (end["step"], end["epoch"], end["best"]) == (network.w.item(), 0, 1)


def test_summary_of_a_complete_run() -> None:
    # Four windows of one target each, two epochs: 8 steps and 8 targets.
    run = trainer(Weights(0.0), UP, sgd(), validate=scripted_validation(1.0, 2.0))
    run.fit()
    summary = run.summary()
    assert summary.pop("train_seconds") > 0
    assert summary == {
        "train_epochs": 2,
        "train_steps": 8,
        "train_stopped": "all epochs done",
        "status": "converged",  # the second validation was no better
        "train_is_converged": True,
        "train_falling_percent": -100.0,
        "train_tokens_processed": 8,
        "best_epoch": 1,
    }


def test_summary_of_a_run_out_of_time() -> None:
    run = trainer(Weights(0.0), Slopes(*[(-1.0,)] * 1_000_000), sgd(max_seconds=0.05, log_every=1000))
    run.fit()
    summary = run.summary()
    assert summary["train_stopped"] == "time limit reached"
    assert summary["train_steps"] == summary["train_tokens_processed"] == run.position.step
    assert summary["train_epochs"] == round(run.position.step / 1_000_000, 3)


def test_trainer_reports_progress() -> None:
    calls: list[tuple[str, int, int | None]] = []
    run = trainer(
        Weights(0.0), UP, sgd(), progress=lambda *call: calls.append(call), validate=scripted_validation(1.0, 2.0)
    )
    run.fit()
    assert [done for _, done, _ in calls] == [1250 * step for step in range(1, 9)]
    assert {total for _, _, total in calls} == {10_000}
    assert calls[0][0].startswith("training: epoch 1 of 2, perplexity 1, ")
    assert ", validation 2.718, " in calls[-1][0]


def test_training_does_not_disturb_the_global_rng() -> None:
    """Training uses its own generator: the caller's random numbers are unaffected."""
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train_briefly("lstm", epochs=1)
    assert torch.equal(torch.rand(3), expected)
