"""Each finding about a run from numbers worked by hand, and runs without it."""

import math
from typing import Any

import numpy as np
import pytest

from chainrule.inspection.training import (
    OVERFITTING,
    STILL_IMPROVING,
    Measure,
    TrainingLog,
    Validations,
    diagnose,
    fluctuation,
    format_percent,
    format_perplexity,
    has_risen,
)
from chainrule.lm import Floats


def array(*values: float) -> Floats:
    return np.array(values)


def run(losses: Any = (3.0,) * 20, **more: Any) -> TrainingLog:
    """A run of ten steps per line, at one rate, without clipping."""
    n = len(losses)
    usual: dict[str, Any] = {
        "step": 10.0 * np.arange(1, n + 1),
        "loss": np.array(losses, dtype=float),
        "learning_rate": np.full(n, 0.1),
        "gradient_norm": np.full(n, 0.25),
        "largest_gradient_norm": np.full(n, 0.5),
        "clipped": np.zeros(n),
    }
    return TrainingLog(**usual | more)


def validations(*values: float, measure: Measure = "nats") -> Validations:
    """One validation per epoch; epochs share the 200 steps."""
    n = len(values)
    epochs = np.arange(1.0, n + 1)
    return Validations(step=200 * epochs / n, epoch=epochs, value=np.array(values), measure=measure)


def spread_validations(values: Floats, steps: int) -> Validations:
    """One validation per epoch; epochs share the steps."""
    epochs = np.arange(1.0, len(values) + 1)
    return Validations(step=steps * epochs / len(values), epoch=epochs, value=values)


def ranks(log: TrainingLog) -> list[int]:
    return [rank for rank, _ in diagnose(log)]


def messages(log: TrainingLog, clip: float | None = None) -> list[str]:
    return [words for _, words in diagnose(log, clip)]


def test_unremarkable_run_has_no_findings() -> None:
    assert messages(run()) == []
    assert messages(run([3.0])) == []


def test_falling_loss_is_reported() -> None:
    losses = [5.0] * 24 + [4.62, 4.61, 4.60, 4.59, 4.58, 4.57]  # means 4.61 and 4.58, lines fall evenly
    assert messages(run(losses)) == [
        "The loss was still falling at the end, 4.61 → 4.58 in the last tenth: more epochs may help."
    ]


@pytest.mark.parametrize(
    "tail",
    [
        (4.61, 4.61, 4.61, 4.607, 4.607, 4.607),  # by 0.003
        (5.2, 4.02, 5.1, 4.06, 5.1, 4.9),  # by 0.09, and lines differ by a whole
        (4.57, 4.58, 4.59, 4.60, 4.61, 4.62),
    ],
)
def test_flat_or_noisy_loss_is_not_reported_as_falling(tail: tuple[float, ...]) -> None:
    assert messages(run([5.0] * 24 + list(tail))) == []


def test_last_tenth_of_one_or_two_lines_is_not_judged() -> None:
    """The scatter of one or two lines is unknown, however far apart they are."""
    assert messages(run([5.0] * 9 + [4.0])) == []
    assert messages(run([5.0] * 18 + [4.0] * 2)) == []


@pytest.mark.parametrize("lines", [10, 30, 100])
def test_noise_is_rarely_reported_as_falling(lines: int) -> None:
    reported = 0
    for seed in range(200):
        losses = 3.0 + np.random.default_rng(seed).normal(0, 0.1, lines)
        reported += STILL_IMPROVING in ranks(run(losses))
    assert reported <= 6  # 3 %


@pytest.mark.parametrize("lines", [30, 100])
def test_fall_under_noise_is_reported(lines: int) -> None:
    """A fall of 0.3 nats per tenth, lines scatter by 0.05: a standard error of 0.04 with three lines per tenth."""
    reported = 0
    for seed in range(100):
        losses = np.linspace(6.0, 3.0, lines) + np.random.default_rng(seed).normal(0, 0.05, lines)
        reported += STILL_IMPROVING in ranks(run(losses))
    assert reported >= 85


def test_more_epochs_are_advised_only_if_validation_agrees() -> None:
    losses = [5.0] * 24 + [4.62, 4.61, 4.60, 4.59, 4.58, 4.57]
    (agreed,) = messages(run(losses, validations=validations(5.0, math.log(100))))
    assert "and validation was best at the end, at 4.61 nats per token (perplexity 100): more epochs" in agreed
    assert messages(run(losses, validations=validations(4.6, 4.604))) == []  # neither a rise nor a fall


def test_overfitting_is_reported() -> None:
    """Of 12 validations the seventh is the lowest; the training loss kept falling."""
    values = [5.0, 4.9, 4.8, 4.75, 4.7, 4.65, math.log(100), 4.62, 4.64, 4.66, 4.68, math.log(110)]
    (words,) = messages(run(np.linspace(6, 3, 20), validations=validations(*values)))
    assert words == (
        "Validation was best after epoch 7 of 12, at 4.61 nats per token (perplexity 100), then rose to "
        "4.70 nats per token (perplexity 110): the model overfits; stop earlier, raise dropout, "
        "or train a smaller model."
    )


def test_rise_of_both_losses_is_not_overfitting() -> None:
    (words,) = messages(run([3.0] * 10 + [3.5] * 10, validations=validations(4.0, 5.0)))
    assert words.endswith("the training loss did not fall either; lower the learning rate.")
    assert "after epoch 1 of 2" in words


def test_small_validation_rise_is_ignored() -> None:
    assert messages(run(validations=validations(4.1, 4.0, 4.01, 4.029))) == []
    assert messages(run(validations=validations(4.0, 4.09))) == []  # a single one, by less than 0.1
    assert len(messages(run(validations=validations(4.1, 4.0, 4.031, 4.032)))) == 1


def test_temporary_validation_rise_is_ignored() -> None:
    assert not has_risen(array(5.0, 4.0, 4.2, 4.01))
    assert not has_risen(array(5.0, 4.0, 4.01, 4.2))


def test_fluctuation_worked_by_hand() -> None:
    # against the trend: up by 0.25 before the lowest, 3.5, and down by 0.125 after it
    values = array(5.0, 4.0, 4.25, 3.5, 4.0, 3.875)
    assert fluctuation(values) == 0.25
    assert not has_risen(values)  # 0.375 is less than twice that
    assert not has_risen(array(5.0, 4.0, 4.25, 3.5, 4.0, 4.0))  # 0.5 is no more
    assert has_risen(array(5.0, 4.0, 4.25, 3.5, 4.01, 4.01))
    assert fluctuation(array(3.0)) == fluctuation(array(3.0, 2.0)) == 0.0


def test_validation_noise_is_rarely_reported_as_overfitting() -> None:
    """Ten of 4 nats with noise 0.01, while the training loss keeps falling."""
    reported = 0
    for seed in range(200):
        values = 4.0 + np.random.default_rng(seed).normal(0, 0.01, 10)
        reported += OVERFITTING in ranks(run(np.linspace(6, 3, 100), validations=spread_validations(values, 1000)))
    assert reported <= 6  # 3 %


@pytest.mark.parametrize("before", [3, 7, 17])
def test_rise_over_three_validations_is_reported(before: int) -> None:
    """After a curve that falls to 4.5 as steeply as typical at first; each has noise 0.01."""
    reported = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        curve = 4.5 + 2 * np.exp(-np.arange(before) / 1.5)
        values = np.append(curve, curve[-1] + array(0.033, 0.067, 0.1)) + rng.normal(0, 0.01, before + 3)
        losses = np.linspace(6, 3, 300) + rng.normal(0, 0.05, 300)
        words = messages(run(losses, validations=spread_validations(values, 3000)))
        reported += any("overfits" in word for word in words)
    assert reported >= 95


def test_training_noise_is_rarely_reported_as_falling() -> None:
    values = array(4.5, 4.2, 4.0, 4.1, 4.2, 4.3)
    reported = 0
    for seed in range(200):
        losses = 3.0 + np.random.default_rng(seed).normal(0, 0.1, 100)
        (words,) = messages(run(losses, validations=spread_validations(values, 1000)))[:1]
        reported += "overfits" in words
    assert reported <= 6  # 3 %


def test_validation_rise_without_training_loss_is_reported() -> None:
    log = run([math.nan] * 20, validations=validations(4.2, 4.0, 4.2, 4.4))
    (words,) = messages(log)
    assert words.endswith(
        "then rose to 4.40 nats per token (perplexity 81.5): further training did not help; stop earlier."
    )


def test_findings_count_steps_if_epochs_are_unknown() -> None:
    """The time limit was reached in the first epoch: both validations are of epoch 0."""
    valid = Validations(step=array(100, 200), epoch=array(0, 0), value=array(0.125, 0.25), measure="error")
    (words,) = messages(run(validations=valid))
    assert words.startswith(
        "Validation was best after step 100 of 200, at an error rate of 12.5 %, then rose to an error rate of "
        "25.0 %"
    )


def clipped(share: float, **times: float) -> TrainingLog:
    blame = {name: np.full(20, count) for name, count in times.items()}
    return run(clipped=np.full(20, share), clipped_by=blame)


@pytest.mark.parametrize(
    ("share", "times", "expected"),
    [
        (0.12, {"W": 9.0, "R": 1.0}, "12 % of the steps were clipped, 9 of 10 times because of W."),
        (0.5, {"W": 2.0}, "50 % of the steps were clipped, every time because of W."),
        (0.5, {"W": 99.0, "R": 1.0}, "50 % of the steps were clipped, nearly every time because of W."),
        (0.5, {"W": 2.0, "R": 4.0, "b": 4.0}, "50 % of the steps were clipped, most often (40 %) because of R."),
        (0.004, {}, "Below 1 % of the steps were clipped."),  # a log of an earlier version
        (
            0.95,
            {"R": 1.0},
            "95 % of the steps were clipped, every time because of R: nearly every gradient is rescaled to the "
            "clipping threshold, so the learning rate alone sets the step size.",
        ),
        (
            1.0,
            {},
            "100 % of the steps were clipped: every gradient is rescaled to the clipping threshold, so the "
            "learning rate alone sets the step size.",
        ),
    ],
)
def test_clipping_is_reported_with_its_cause(share: float, times: dict[str, float], expected: str) -> None:
    assert messages(clipped(share, **times), 1.0) == [expected]


def test_no_clipping_is_reported() -> None:
    assert messages(run(), 1.0) == ["No step was clipped: the largest gradient norm was 0.5, the threshold is 1."]
    assert messages(run(), 0.0) == []  # clipping was off


def updates(**ratios: float) -> TrainingLog:
    return run(update_ratio={name: np.full(20, ratio) for name, ratio in ratios.items()})


def test_parameter_with_tiny_updates_is_reported() -> None:
    assert messages(updates(R=2e-5, W=1e-3, b=1e-2)) == [
        "The updates of R are 2e-5 of its norm: it hardly learns (about 1e-3 is typical)."
    ]
    assert messages(updates(R=1.01e-4, W=1e-3)) == []


def test_updates_of_short_runs_are_not_judged() -> None:
    ratios = {"R": np.full(4, 2e-5), "W": np.full(4, 1e-3)}
    assert messages(run([3.0] * 4, update_ratio=ratios)) == []  # 40 steps
    assert len(messages(run([3.0] * 5, update_ratio={"R": np.full(5, 2e-5), "W": np.full(5, 1e-3)}))) == 1


def test_parameter_without_updates_is_reported() -> None:
    assert messages(updates(R=0.0, W=1e-3, b=1e-3)) == ["R is not updated: it receives no gradient."]


def test_several_parameters_with_tiny_updates_are_summarised() -> None:
    assert messages(updates(A=3e-5, B=2e-5, C=4e-5, D=5e-5, E=6e-5, F=1.0)) == [
        "The updates of B (2e-5), A (3e-5), C (4e-5) and 2 more are below 1e-4 of their norms: they hardly learn "
        "(about 1e-3 is typical); raise the learning rate."
    ]


def test_findings_are_sorted_by_severity() -> None:
    log = run(
        np.linspace(6, 3, 20),
        clipped=np.full(20, 0.1),
        update_ratio={"R": np.full(20, 1e-6), "W": np.full(20, 1e-3), "b": np.full(20, 1e-3)},
        validations=validations(4.0, 5.0),
    )
    first, second, third = messages(log)
    assert first.startswith("Validation was best")
    assert second.startswith("The updates of R")
    assert third.startswith("10 % of the steps")


def test_numbers_are_formatted_readably() -> None:
    assert [format_percent(share) for share in (0.0, 0.001, 0.126, 1.0)] == ["0 %", "below 1 %", "13 %", "100 %"]
    assert [format_perplexity(math.log(value)) for value in (1.5, 97.53, 12345.0)] == ["1.5", "97.5", "12,300"]
    assert format_perplexity(1e9) == "1.01e+304"  # e^700; more would overflow
