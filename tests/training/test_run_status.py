"""Outcome of a run: early stopping, evenly spaced validations, metrics."""

from typing import Any

import pytest

from chainrule.errors import ConfigError
from chainrule.training.diagnostics import falling_percent, judge_convergence
from training.small_networks import (
    UP,
    Slopes,
    Weights,
    events,
    lines,
    scripted_validation,
    sgd,
    train_briefly,
    trainer,
)


@pytest.mark.parametrize(
    ("losses", "epochs", "percent"),
    [
        ([4.0, 3.0], [1, 2], 25.0),
        ([4.0, 3.8, 3.7, 3.61], [2.0, 2.5, 3.0, 3.5], 5.0),  # 3.8 -> 3.61 in the last epoch
        ([4.0, 2.0, 1.5], [0, 2, 2.5], 40.0),  # 2.5 at epoch 1.5, between two validations
        ([4.0, 2.0], [0.25, 0.75], 75.0),  # half in half an epoch, and half again in the other
        ([4.0, 5.0], [1, 2], -25.0),
        ([4.0], [1], None),
        ([], [], None),
        ([4.0, 3.0], [1, 1], None),
        ([0.0, 0.0], [1, 2], None),  # an error rate of 0 cannot fall
        ([4.0, 3.0, 2.0], [2, 3], None),  # a checkpoint of an earlier version lacks the first
    ],
)
def test_falling_percent_of_the_last_epoch(losses: list[float], epochs: list[float], percent: float | None) -> None:
    assert falling_percent(losses, epochs) == percent


@pytest.mark.parametrize(
    ("done", "losses", "waited", "status", "is_converged"),
    [
        (3.1, [5.0, 4.9], 0, "stopped at 3.1 of 12 epochs, validation still falling by 2 % per epoch", False),
        (10.25, [5.0, 4.0], 0, "stopped at 10.2 of 12 epochs, validation still falling by 20 % per epoch", False),
        (12, [5.0, 4.9], 0, "all 12 epochs done, validation still falling by 2 % per epoch", False),
        (12, [5.0, 4.96], 0, "converged", True),
        (3.1, [5.0, 5.1], 0, "converged", True),
        (3.1, [5.0, 5.1], 3, "stopped early: no improvement for 3 validations", True),
        (3.1, [5.0, 5.1], 1, "stopped early: no improvement for 1 validation", True),
        (0.04, [5.0], 0, "stopped at 0.04 of 12 epochs, too few validations to tell whether it converged", None),
        (12, [], 0, "all 12 epochs done, no validation text", None),
    ],
)
def test_judge_convergence_status(
    done: float, losses: list[float], waited: int, status: str, is_converged: bool | None
) -> None:
    ending = judge_convergence(done, 12, losses, [done - len(losses) + 1 + i for i in range(len(losses))], waited)
    assert (ending.status, ending.is_converged) == (status, is_converged)
    assert ("train_is_converged" in ending.figures()) == (is_converged is not None)


def test_training_stops_after_validations_without_improvement() -> None:
    # The best is 3; 4 and 3 do not improve on it, and the second of them ends the run after 4 of 9 epochs.
    network = Weights(0.0)
    run = trainer(network, UP, sgd(epochs=9, stop_after=2), validate=scripted_validation(5.0, 3.0, 4.0, 3.0))
    log = run.fit()
    assert [v["nats"] for v in events(log, "validation")] == [5, 3, 4, 3]
    assert network.w.tolist() == [8]  # the weights after two epochs of four steps
    summary = run.summary()
    assert summary["train_stopped"] == "no improvement for 2 validations"
    assert summary["status"] == "stopped early: no improvement for 2 validations"
    assert (summary["train_epochs"], summary["train_steps"], summary["train_is_converged"]) == (4, 16, True)


def test_improvement_resets_the_early_stopping_count() -> None:
    run = trainer(
        Weights(0.0), UP, sgd(epochs=6, stop_after=2), validate=scripted_validation(5.0, 6.0, 4.0, 6.0, 3.0, 6.0)
    )
    run.fit()
    assert (run.summary()["train_epochs"], run.summary()["train_stopped"]) == (6, "all epochs done")


def test_early_stopping_needs_a_validation_text() -> None:
    with pytest.raises(ConfigError, match=r"early stopping \(--patience\) needs a validation text: give --valid"):
        trainer(Weights(0.0), UP, sgd(stop_after=1))


def test_validations_are_spaced_evenly_within_epochs() -> None:
    # Two epochs of four steps; five validations: due at 1.6, 3.2, 4.8, 6.4 and 8 steps.
    run = trainer(Weights(0.0), UP, sgd(validations=5), validate=scripted_validation(9.0, 8.0, 7.0, 6.0, 5.0))
    log = run.fit()
    assert [v["step"] for v in events(log, "validation")] == [2, 4, 5, 7, 8]
    assert run.position.history_epochs == [0.5, 1.0, 1.25, 1.75, 2.0]


def test_training_stops_early_within_an_epoch() -> None:
    long = Slopes(*[(-1.0,)] * 10)
    run = trainer(
        Weights(0.0), long, sgd(epochs=1, validations=10, stop_after=2), validate=scripted_validation(2.0, 3.0, 3.0)
    )
    run.fit()
    assert (run.summary()["train_epochs"], run.summary()["train_steps"]) == (0.3, 3)
    assert run.summary()["status"] == "stopped early: no improvement for 2 validations"


@pytest.mark.parametrize("context", ["line", "stream"])
def test_validation_reads_a_part_of_the_text(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.neural import family

    sizes: list[int] = []
    real = family.mean_nats

    def recorded_mean_nats(model: Any, text: Any) -> float:
        sizes.append(text.tokens)
        return real(model, text)

    monkeypatch.setattr(family, "mean_nats", recorded_mean_nats)
    text = lines(60, seed=3)
    train_briefly("rnn", context, valid=text, validation_tokens=50, epochs=1)
    train_briefly("rnn", context, valid=text, validation_tokens=10_000, epochs=1)
    assert 30 <= sizes[0] <= 70
    assert sizes[1] == text.tokens


def test_subsample_takes_complete_lines() -> None:
    from chainrule.neural.family import subsample

    text = lines(40, seed=4)
    all_lines = [line.tolist() for line in split(text)]
    part = [line.tolist() for line in split(subsample(text, text.tokens // 4, "line"))]
    assert len(part) == 10
    assert (part[0], part[-1]) == (all_lines[0], all_lines[-1])
    assert all(line in all_lines for line in part)


def split(text: Any) -> list[Any]:
    import numpy as np

    return np.split(text.ids, np.flatnonzero(text.ids == text.eos) + 1)[:-1]
