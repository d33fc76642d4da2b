"""Diagnostics appear with numbers and a remedy when they apply, and only then."""

from pathlib import Path
from typing import Any

import pytest
import torch

from chainrule.errors import ChainruleError
from chainrule.training.diagnostics import Diverged, RunStatistics, diagnose, first_nonfinite

HEALTHY: dict[str, Any] = {
    "epochs_done": 3,
    "learning_rate": 0.002,
    "loss": 4.0,
    "unigram_loss": 6.5,
    "clipped_share": 0.2,
    "gradient_norms": (0.5, 0.7, 0.6),
    "saturated_share": 0.01,
    "train_history": (5.0, 4.5, 4.0),
    "valid_history": (5.1, 4.8, 4.7),
    "valid_epochs": (1, 2, 3),
}


def test_healthy_run_has_no_diagnostics() -> None:
    assert diagnose(RunStatistics(**HEALTHY)) == {}


def test_unknown_statistics_give_no_diagnostics() -> None:
    assert diagnose(RunStatistics(epochs_done=1, learning_rate=0.1)) == {}


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        (
            "frequencies",
            {"loss": 7.914, "unigram_loss": 6.52, "valid_history": (7.6, 7.5)},
            ["7.91 nats, is above that of word frequencies alone, 6.52", "lower learning_rate, 0.002 now"],
        ),
        ("still", {"train_history": (5.0, 5.0004, 4.9998)}, ["not moved from 5.00 nats", "raise learning_rate"]),
        ("gradients", {"gradient_norms": (1e-9, 2e-9, 3e-9)}, ["vanished", "2.0e-09"]),
        (
            "gradients",
            {"gradient_norms": (0.5, 0.5, 80.0), "clipped_share": 0.0},
            ["leaps from 0.5 to 80", "set clip to about 1"],
        ),
        ("clipped", {"clipped_share": 0.97}, ["97% of the steps", "raise clip", "usually 0.6"]),
        ("saturated", {"saturated_share": 0.8}, ["80% of the states' values", "|h| > 0.99", "lower learning_rate"]),
        (
            "overfitted",
            {"valid_history": (4.7, 4.8, 5.0)},
            ["rose from 4.70 at epoch 1 to 5.00 at epoch 3", "training loss fell to 4.00", "dropout"],
        ),
        (
            "overfitted",
            {"valid_history": (5.5, 4.7, 4.9, 4.8, 4.6, 5.0), "valid_epochs": (0.5, 1, 1.5, 2, 2.5, 3)},
            ["rose from 4.70 at epoch 1 to 5.00 at epoch 3", "training loss fell to 4.00"],
        ),
        (
            "overfitted",
            {
                "epochs_done": 6,
                "train_history": (5.0, 4.8, 4.6, 4.5, 4.3, 4.2),
                "valid_history": (4.7, 4.8, 5.0),
                "valid_epochs": (2, 4, 6),
            },
            ["rose from 4.70 at epoch 2 to 5.00 at epoch 6", "training loss fell to 4.20"],
        ),
    ],
)
def test_each_fault_gives_one_diagnostic_with_numbers_and_remedy(
    name: str, changed: dict[str, Any], words: list[str]
) -> None:
    diagnostics = diagnose(RunStatistics(**(HEALTHY | changed)))
    assert diagnostics.keys() == {name}
    assert all(word in diagnostics[name] for word in words), diagnostics[name]


@pytest.mark.parametrize(
    "changed",
    [
        {"loss": 7.9, "epochs_done": 0},  # the first epoch has not ended
        {"loss": 7.9, "unigram_loss": float("inf")},  # unknown
        {"loss": 7.25, "unigram_loss": 6.82, "valid_history": (6.4, 6.0)},  # dropout and sampling raise the loss
        {"train_history": (9.0, 4.0, 4.0, 4.0)},  # converged is not stuck
        {"train_history": (4.0, 4.5, 5.0), "valid_history": (4.7, 4.8, 5.0)},  # both rise: no over-fitting
        {"valid_history": (4.7, 4.8, 4.75)},  # one bad validation
        {"valid_history": (5.1, 4.7, 4.8, 5.0), "valid_epochs": (1, 2.2, 2.6, 3)},  # within one epoch
        {"valid_history": (4.7, 4.8, 5.0), "valid_epochs": (0.2, 0.6, 1.0)},
        {"valid_history": (4.7, 4.8, 5.0), "valid_epochs": ()},  # a checkpoint without this field
        {"train_history": (5.0, 5.0, 5.0), "epochs_done": 2},  # the third epoch has not ended
        {"gradient_norms": (0.5, 0.5, 80.0)},  # a spike that clipping caught
    ],
)
def test_harmless_statistics_give_no_diagnostics(changed: dict[str, Any]) -> None:
    assert diagnose(RunStatistics(**(HEALTHY | changed))) == {}


def test_diagnostics_are_sorted_by_severity() -> None:
    changed = {"loss": 7.0, "clipped_share": 1.0, "valid_history": (7.0, 6.9)}
    messages = list(diagnose(RunStatistics(**(HEALTHY | changed))).values())
    assert [words.split(",")[0] for words in messages] == [
        "the loss",
        "the gradient was clipped on 100% of the steps",
    ]


def test_first_nonfinite_names_the_tensor_and_its_count() -> None:
    good, bad = torch.zeros(8), torch.zeros(64, 64)
    bad[0, :12] = float("nan")
    assert first_nonfinite([("W", good), ("layers.0.R", bad)]) == "layers.0.R has 12 NaN of 4,096 values"
    bad[1, :3] = float("inf")
    bad[1, 3] = -float("inf")
    assert first_nonfinite([("R", bad)]) == "R has 12 NaN and 4 infinite of 4,096 values"
    assert first_nonfinite([("R", bad[1]), ("W", bad)]) == "R has 4 infinite of 64 values"


def test_first_nonfinite_of_finite_tensors_is_none() -> None:
    assert first_nonfinite([("W", torch.ones(3)), ("ids", torch.tensor([1, 2]))]) is None


def test_diverged_names_step_tensor_and_remedy() -> None:
    error = Diverged.at(1234, "R has 12 NaN of 4,096 values", Path("runs/lstm/checkpoint"))
    assert str(error) == (
        "training diverged at step 1,234: R has 12 NaN of 4,096 values; "
        "the last good checkpoint is kept at runs/lstm/checkpoint: lower learning_rate or clip"
    )
    assert isinstance(error, ChainruleError)
    assert error.exit_code == 1


def test_diverged_without_checkpoint_or_tensor_names_a_remedy() -> None:
    message = str(Diverged.at(7, None, None))
    assert "step 7: the loss is not finite" in message
    assert "checkpoint" not in message
    assert message.endswith("lower learning_rate or clip")
