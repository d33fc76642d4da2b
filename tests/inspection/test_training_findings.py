"""Each sentence about a run from numbers worked by hand, and the runs that do not deserve it."""

import math
from typing import Any

import numpy as np
import pytest

from chainrule.inspection.training_findings import findings, per_cent, perplexity
from chainrule.inspection.training_log import Measure, TrainingLog, Validations
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


def said(log: TrainingLog, clip: float | None = None) -> list[str]:
    return [words for _, words in findings(log, clip)]


def test_a_run_with_nothing_to_say() -> None:
    assert said(run()) == []
    assert said(run([3.0])) == []


def test_a_loss_that_still_fell() -> None:
    losses = [5.0] * 16 + [4.62, 4.60, 4.59, 4.57]  # means 4.61 and 4.58; each mean is sure to 0.01
    assert said(run(losses)) == [
        "The loss still fell at the end, 4.61 → 4.58 in the last tenth: more epochs would help."
    ]


@pytest.mark.parametrize(
    "tail",
    [
        (4.61, 4.61, 4.607, 4.607),  # by 0.003
        (5.2, 4.02, 5.1, 4.06),  # by 0.03, and lines differ by a whole
        (4.57, 4.59, 4.60, 4.62),
    ],
)
def test_a_loss_that_did_not(tail: tuple[float, ...]) -> None:
    assert said(run([5.0] * 16 + list(tail))) == []


def test_more_epochs_help_only_where_validation_agrees() -> None:
    losses = [5.0] * 16 + [4.62, 4.60, 4.59, 4.57]
    (agreed,) = said(run(losses, validations=validations(5.0, math.log(100))))
    assert (
        "and validation was best at the end (4.61 nats a token (perplexity 100)): more epochs would help" in agreed
    )
    assert said(run(losses, validations=validations(4.6, 4.604))) == []  # neither a rise nor a fall


def test_a_text_learnt_by_heart() -> None:
    """Of 12 validations the seventh is the lowest; the training loss went on falling."""
    values = [5.0, 4.9, 4.8, 4.75, 4.7, 4.65, math.log(100), 4.62, 4.64, 4.66, 4.68, math.log(110)]
    (words,) = said(run(np.linspace(6, 3, 20), validations=validations(*values)))
    assert words == (
        "Validation was best after epoch 7 of 12, at 4.61 nats a token (perplexity 100), then rose to "
        "4.70 nats a token (perplexity 110): it learnt the training text by heart; stop there, raise dropout, "
        "or train a smaller model."
    )


def test_a_rise_of_both_is_no_learning_by_heart() -> None:
    (words,) = said(run([3.0] * 10 + [3.5] * 10, validations=validations(4.0, 5.0)))
    assert words.endswith("the training loss did not fall either; lower the learning rate.")
    assert "after epoch 1 of 2" in words


def test_a_small_rise_is_none() -> None:
    assert said(run(validations=validations(4.0, 4.004))) == []
    assert len(said(run(validations=validations(4.0, 4.006)))) == 1


def test_epochs_that_do_not_count_are_told_by_steps() -> None:
    """The time was up in the first epoch: both validations are of epoch 0."""
    valid = Validations(step=array(100, 200), epoch=array(0, 0), value=array(0.125, 0.25), measure="error")
    (words,) = said(run(validations=valid))
    assert words.startswith(
        "Validation was best after step 100 of 200, at an error of 12.5 %, then rose to an error of 25.0 %"
    )


def clipped(share: float, **times: float) -> TrainingLog:
    blame = {name: np.full(20, count) for name, count in times.items()}
    return run(clipped=np.full(20, share), clipped_by=blame)


@pytest.mark.parametrize(
    ("share", "times", "expected"),
    [
        (0.12, {"W": 9.0, "R": 1.0}, "12 % of the steps were clipped, 9 of 10 times by W."),
        (0.5, {"W": 2.0}, "50 % of the steps were clipped, every time by W."),
        (0.5, {"W": 99.0, "R": 1.0}, "50 % of the steps were clipped, nearly every time by W."),
        (0.5, {"W": 2.0, "R": 4.0, "b": 4.0}, "50 % of the steps were clipped, most often (40 %) by R."),
        (0.004, {}, "Below 1 % of the steps were clipped."),  # a log from before
        (
            0.95,
            {"R": 1.0},
            "95 % of the steps were clipped, every time by R; clip then sets the length of nearly every step: "
            "raise it, or lower the learning rate.",
        ),
    ],
)
def test_clipping_and_its_cause(share: float, times: dict[str, float], expected: str) -> None:
    assert said(clipped(share, **times), 1.0) == [expected]


def test_nothing_was_clipped() -> None:
    assert said(run(), 1.0) == ["No step was clipped: the largest norm of the gradient was 0.5, clip is 1."]
    assert said(run(), 0.0) == []  # it was not to be


def updates(**ratios: float) -> TrainingLog:
    return run(update_ratio={name: np.full(20, ratio) for name, ratio in ratios.items()})


def test_a_matrix_that_hardly_learns() -> None:
    assert said(updates(R=2e-5, W=1e-3, b=1e-2)) == [
        "Updates of R are 2e-5 of its size: it hardly learns (about 1e-3 is usual)."
    ]
    assert said(updates(R=1.01e-4, W=1e-3)) == []


def test_a_matrix_that_never_moves() -> None:
    assert said(updates(R=0.0, W=1e-3, b=1e-3)) == [
        "R is not moved by its updates: no gradient reaches it, and it does not learn."
    ]


def test_several_that_hardly_learn() -> None:
    assert said(updates(A=3e-5, B=2e-5, C=4e-5, D=5e-5, E=6e-5, F=1.0)) == [
        "Updates of B (2e-5), A (3e-5), C (4e-5) and 2 more are below 1e-4 of their size: they hardly learn "
        "(about 1e-3 is usual); raise the learning rate."
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
    assert second.startswith("Updates of R")
    assert third.startswith("10 % of the steps")


def test_numbers_as_a_person_says_them() -> None:
    assert [per_cent(share) for share in (0.0, 0.001, 0.126, 1.0)] == ["0 %", "below 1 %", "13 %", "100 %"]
    assert [perplexity(math.log(value)) for value in (1.5, 97.53, 12345.0)] == ["1.5", "97.5", "12,300"]
    assert perplexity(1e9) == "1.01e+304"  # e^700, where more would be no float
