"""Each sentence about a run from numbers worked by hand, and the runs that do not deserve it."""

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
    """A run of ten steps a line, at one rate, that clipped nothing."""
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
    """One after every epoch; epochs share the 200 steps."""
    n = len(values)
    epochs = np.arange(1.0, n + 1)
    return Validations(step=200 * epochs / n, epoch=epochs, value=np.array(values), measure=measure)


def spread_validations(values: Floats, steps: int) -> Validations:
    """One after every epoch; epochs share the steps."""
    epochs = np.arange(1.0, len(values) + 1)
    return Validations(step=steps * epochs / len(values), epoch=epochs, value=values)


def ranks(log: TrainingLog) -> list[int]:
    return [rank for rank, _ in diagnose(log)]


def said(log: TrainingLog, clip: float | None = None) -> list[str]:
    return [words for _, words in diagnose(log, clip)]


def test_a_run_with_nothing_to_say() -> None:
    assert said(run()) == []
    assert said(run([3.0])) == []


def test_a_loss_that_still_fell() -> None:
    losses = [5.0] * 24 + [4.62, 4.61, 4.60, 4.59, 4.58, 4.57]  # means 4.61 and 4.58, lines fall evenly
    assert said(run(losses)) == [
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
def test_a_loss_that_did_not(tail: tuple[float, ...]) -> None:
    assert said(run([5.0] * 24 + list(tail))) == []


def test_tenths_of_a_line_or_two_say_nothing() -> None:
    """Of one line, or two, nobody knows how they scatter, however far apart they lie."""
    assert said(run([5.0] * 9 + [4.0])) == []
    assert said(run([5.0] * 18 + [4.0] * 2)) == []


@pytest.mark.parametrize("lines", [10, 30, 100])
def test_a_loss_of_noise_alone_is_not_said_to_fall(lines: int) -> None:
    told = 0
    for seed in range(200):
        losses = 3.0 + np.random.default_rng(seed).normal(0, 0.1, lines)
        told += STILL_IMPROVING in ranks(run(losses))
    assert told <= 6  # 3 %


@pytest.mark.parametrize("lines", [30, 100])
def test_a_loss_that_falls_under_noise_is_said_to(lines: int) -> None:
    """By 0.3 nats a tenth, lines scatter by 0.05: sure to 0.04 where a tenth has three."""
    told = 0
    for seed in range(100):
        losses = np.linspace(6.0, 3.0, lines) + np.random.default_rng(seed).normal(0, 0.05, lines)
        told += STILL_IMPROVING in ranks(run(losses))
    assert told >= 85


def test_more_epochs_help_only_where_validation_agrees() -> None:
    losses = [5.0] * 24 + [4.62, 4.61, 4.60, 4.59, 4.58, 4.57]
    (agreed,) = said(run(losses, validations=validations(5.0, math.log(100))))
    assert "and validation was best at the end, at 4.61 nats per token (perplexity 100): more epochs" in agreed
    assert said(run(losses, validations=validations(4.6, 4.604))) == []  # neither a rise nor a fall


def test_a_text_learnt_by_heart() -> None:
    """Of 12 validations the seventh is the lowest; the training loss went on falling."""
    values = [5.0, 4.9, 4.8, 4.75, 4.7, 4.65, math.log(100), 4.62, 4.64, 4.66, 4.68, math.log(110)]
    (words,) = said(run(np.linspace(6, 3, 20), validations=validations(*values)))
    assert words == (
        "Validation was best after epoch 7 of 12, at 4.61 nats per token (perplexity 100), then rose to "
        "4.70 nats per token (perplexity 110): the model overfits; stop earlier, raise dropout, "
        "or train a smaller model."
    )


def test_a_rise_of_both_is_no_learning_by_heart() -> None:
    (words,) = said(run([3.0] * 10 + [3.5] * 10, validations=validations(4.0, 5.0)))
    assert words.endswith("the training loss did not fall either; lower the learning rate.")
    assert "after epoch 1 of 2" in words


def test_a_small_rise_is_none() -> None:
    assert said(run(validations=validations(4.1, 4.0, 4.01, 4.029))) == []
    assert said(run(validations=validations(4.0, 4.09))) == []  # one alone, by less than 0.1
    assert len(said(run(validations=validations(4.1, 4.0, 4.031, 4.032)))) == 1


def test_a_rise_that_went_back_is_none() -> None:
    assert not has_risen(array(5.0, 4.0, 4.2, 4.01))
    assert not has_risen(array(5.0, 4.0, 4.01, 4.2))


def test_the_wobble_by_hand() -> None:
    # against the trend: up by 0.25 before the lowest, 3.5, and down by 0.125 after it
    values = array(5.0, 4.0, 4.25, 3.5, 4.0, 3.875)
    assert fluctuation(values) == 0.25
    assert not has_risen(values)  # 0.375 is less than twice that
    assert not has_risen(array(5.0, 4.0, 4.25, 3.5, 4.0, 4.0))  # 0.5 is no more
    assert has_risen(array(5.0, 4.0, 4.25, 3.5, 4.01, 4.01))
    assert fluctuation(array(3.0)) == fluctuation(array(3.0, 2.0)) == 0.0


def test_validations_of_noise_alone_are_no_learning_by_heart() -> None:
    """Ten of 4 nats, each off by 0.01, while the training loss falls for good."""
    told = 0
    for seed in range(200):
        values = 4.0 + np.random.default_rng(seed).normal(0, 0.01, 10)
        told += OVERFITTING in ranks(run(np.linspace(6, 3, 100), validations=spread_validations(values, 1000)))
    assert told <= 6  # 3 %


@pytest.mark.parametrize("before", [3, 7, 17])
def test_a_rise_of_a_tenth_over_three_validations_is_told(before: int) -> None:
    """After a curve that falls to 4.5 as steeply as they do at first; each is off by 0.01."""
    told = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        curve = 4.5 + 2 * np.exp(-np.arange(before) / 1.5)
        values = np.append(curve, curve[-1] + array(0.033, 0.067, 0.1)) + rng.normal(0, 0.01, before + 3)
        losses = np.linspace(6, 3, 300) + rng.normal(0, 0.05, 300)
        words = said(run(losses, validations=spread_validations(values, 3000)))
        told += any("overfits" in each for each in words)
    assert told >= 95


def test_a_training_loss_of_noise_is_not_said_to_have_fallen() -> None:
    values = array(4.5, 4.2, 4.0, 4.1, 4.2, 4.3)
    told = 0
    for seed in range(200):
        losses = 3.0 + np.random.default_rng(seed).normal(0, 0.1, 100)
        (words,) = said(run(losses, validations=spread_validations(values, 1000)))[:1]
        told += "overfits" in words
    assert told <= 6  # 3 %


def test_a_rise_without_a_training_loss_is_told_for_what_it_is() -> None:
    log = run([math.nan] * 20, validations=validations(4.2, 4.0, 4.2, 4.4))
    (words,) = said(log)
    assert words.endswith(
        "then rose to 4.40 nats per token (perplexity 81.5): further training did not help; stop earlier."
    )


def test_epochs_that_do_not_count_are_told_by_steps() -> None:
    """The time was up in the first epoch: both validations are of epoch 0."""
    valid = Validations(step=array(100, 200), epoch=array(0, 0), value=array(0.125, 0.25), measure="error")
    (words,) = said(run(validations=valid))
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
        (0.004, {}, "Below 1 % of the steps were clipped."),  # a log from before
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
def test_clipping_and_its_cause(share: float, times: dict[str, float], expected: str) -> None:
    assert said(clipped(share, **times), 1.0) == [expected]


def test_nothing_was_clipped() -> None:
    assert said(run(), 1.0) == ["No step was clipped: the largest gradient norm was 0.5, the threshold is 1."]
    assert said(run(), 0.0) == []  # it was not to be


def updates(**ratios: float) -> TrainingLog:
    return run(update_ratio={name: np.full(20, ratio) for name, ratio in ratios.items()})


def test_a_matrix_that_hardly_learns() -> None:
    assert said(updates(R=2e-5, W=1e-3, b=1e-2)) == [
        "The updates of R are 2e-5 of its norm: it hardly learns (about 1e-3 is typical)."
    ]
    assert said(updates(R=1.01e-4, W=1e-3)) == []


def test_of_a_run_of_a_few_steps_nothing_is_said_about_updates() -> None:
    ratios = {"R": np.full(4, 2e-5), "W": np.full(4, 1e-3)}
    assert said(run([3.0] * 4, update_ratio=ratios)) == []  # 40 steps
    assert len(said(run([3.0] * 5, update_ratio={"R": np.full(5, 2e-5), "W": np.full(5, 1e-3)}))) == 1


def test_a_matrix_that_never_moves() -> None:
    assert said(updates(R=0.0, W=1e-3, b=1e-3)) == ["R is not updated: it receives no gradient."]


def test_several_that_hardly_learn() -> None:
    assert said(updates(A=3e-5, B=2e-5, C=4e-5, D=5e-5, E=6e-5, F=1.0)) == [
        "The updates of B (2e-5), A (3e-5), C (4e-5) and 2 more are below 1e-4 of their norms: they hardly learn "
        "(about 1e-3 is typical); raise the learning rate."
    ]


def test_the_gravest_comes_first() -> None:
    log = run(
        np.linspace(6, 3, 20),
        clipped=np.full(20, 0.1),
        update_ratio={"R": np.full(20, 1e-6), "W": np.full(20, 1e-3), "b": np.full(20, 1e-3)},
        validations=validations(4.0, 5.0),
    )
    first, second, third = said(log)
    assert first.startswith("Validation was best")
    assert second.startswith("The updates of R")
    assert third.startswith("10 % of the steps")


def test_numbers_as_a_person_says_them() -> None:
    assert [format_percent(share) for share in (0.0, 0.001, 0.126, 1.0)] == ["0 %", "below 1 %", "13 %", "100 %"]
    assert [format_perplexity(math.log(value)) for value in (1.5, 97.53, 12345.0)] == ["1.5", "97.5", "12,300"]
    assert format_perplexity(1e9) == "1.01e+304"  # e^700, where more would be no float
