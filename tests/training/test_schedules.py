"""Learning rates worked by hand: peak rate 8, decay after half of the run."""

import json
from typing import Any

import pytest

from chainrule.training.config import Schedule, TrainingConfig
from chainrule.training.optimizers import Plateau, learning_rate


def config(**fields: Any) -> TrainingConfig:
    return TrainingConfig(**{"learning_rate": 8.0, "warmup": 0, "flat": 0.5, **fields})


def test_warm_up_rises_linearly_from_the_first_step() -> None:
    rates = [learning_rate(config(warmup=4, schedule="constant"), step, 0.0) for step in range(6)]
    assert rates == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # at 0, 1/2, 3/4 and 1 of the run: 0, 0, 1/2 and 1 of the decay
        ("constant", [8.0, 8.0, 8.0, 8.0]),
        ("plateau", [8.0, 8.0, 8.0, 8.0]),
        ("linear", [8.0, 8.0, 4.0, 0.0]),
        ("cosine", [8.0, 8.0, 4.0, 0.0]),
        ("exponential", [8.0, 8.0, 8.0 / 2, 8.0 / 4]),  # √(1/4) = 1/2
    ],
)
def test_schedule_curves_worked_by_hand(schedule: Schedule, expected: list[float]) -> None:
    rates = [learning_rate(config(schedule=schedule, decay=0.25), 10, at) for at in (0.0, 0.5, 0.75, 1.0)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_cosine_differs_from_linear() -> None:
    # a third of the decay: (1 + cos 60°) / 2 = 3/4, where linear has 2/3
    assert learning_rate(config(schedule="cosine"), 0, 0.5 + 0.5 / 3) == pytest.approx(6.0)
    assert learning_rate(config(schedule="linear"), 0, 0.5 + 0.5 / 3) == pytest.approx(16 / 3)


def test_warm_up_and_decay_multiply() -> None:
    # at 1/20 of the run: 2 of 4 steps of warm-up; 1/20 of the decay, which begins at once
    rate = learning_rate(config(warmup=4, schedule="linear", flat=0.0), 1, 0.05)
    assert rate == pytest.approx(8 * 2 / 4 * 19 / 20)


def test_warm_up_takes_at_most_a_tenth_of_the_run() -> None:
    long = config(warmup=1000, schedule="constant")
    assert learning_rate(long, 1, 0.05) == pytest.approx(8 * 0.05 / 0.1)
    assert learning_rate(long, 3, 0.1) == 8.0


def test_fully_flat_schedule_does_not_divide_by_zero() -> None:
    assert learning_rate(config(schedule="linear", flat=1.0), 0, 1.0) == 8.0


def test_progress_beyond_the_end_is_clamped() -> None:
    assert learning_rate(config(schedule="linear"), 0, 1.01) == 0.0


def test_plateau_lowers_the_factor_after_patience_validations() -> None:
    plateau = Plateau.start(config(schedule="plateau", decay=0.5, patience=2))
    factors = []
    for validation in (3.0, 2.0, 2.0, 2.5, 2.1, 1.9, 2.0, 1.95, 5.0, 5.0):
        plateau = plateau.after(validation)
        factors.append(plateau.factor)
    #   best  best  1st  2nd: ½  1st  best  1st  2nd: ¼  1st   2nd: ⅛
    assert factors == [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    assert plateau.best == 1.9


@pytest.mark.parametrize("validation", [float("nan"), float("inf")])
def test_non_finite_validation_is_not_a_best(validation: float) -> None:
    plateau = Plateau.start(config(decay=0.5, patience=1)).after(validation)
    assert (plateau.best, plateau.factor) == (None, 0.5)


def test_plateau_is_immutable() -> None:
    before = Plateau.start(config(patience=3))
    before.after(1.0)
    assert before == Plateau.start(config(patience=3))


def test_plateau_round_trips_through_json() -> None:
    settings = config(decay=0.5, patience=2)
    halfway = Plateau.start(settings).after(2.0).after(3.0)
    again = Plateau.from_json(settings, json.loads(json.dumps(halfway.to_json(), allow_nan=False)))
    assert again == halfway
    assert again.after(3.0).factor == 0.5
