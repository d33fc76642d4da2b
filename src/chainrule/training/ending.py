"""Outcome of a training run, judged by its validation losses: converged, stopped early or still improving."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

CONVERGED_PERCENT: Final = 1.0
"""A run has converged when its last epoch lowered the validation loss by less than this many per cent."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of a run as text and as data."""

    status: str
    is_converged: bool | None = None  # None: too few validations
    falling_percent: float | None = None  # decrease of the validation loss over the last epoch

    def figures(self) -> dict[str, Any]:
        """Fields for `metrics.json`; unknown values are omitted."""
        figures: dict[str, Any] = {"status": self.status}
        if self.is_converged is not None:
            figures["train_is_converged"] = self.is_converged
        if self.falling_percent is not None:
            figures["train_falling_percent"] = round(self.falling_percent, 3)
        return figures


def judge_convergence(
    epochs: float, planned: int, losses: Sequence[float], losses_epochs: Sequence[float], waited: int = 0
) -> RunOutcome:
    """Judge a run.

    Args:
        epochs: Epochs done.
        planned: Epochs of the config.
        losses: The validation loss at each validation.
        losses_epochs: Epochs done at each validation.
        waited: Validations without improvement if early stopping ended the run, else 0.

    >>> judge(3.1, 12, [5.0, 4.9], [2.1, 3.1]).status
    'stopped at 3.1 of 12 epochs, validation still falling by 2 % per epoch'

    """
    percent = falling_percent(losses, losses_epochs)
    if waited:
        return RunOutcome(f"stopped early: {no_improvement(waited)}", True, percent)
    if percent is not None and percent < CONVERGED_PERCENT:
        return RunOutcome("converged", True, percent)
    shown = f"{epochs:.2g}" if epochs < 10 else f"{epochs:.1f}"
    progress = f"all {planned} epochs done" if epochs >= planned else f"stopped at {shown} of {planned} epochs"
    if percent is None:
        missing = "too few validations to tell whether it converged" if losses else "no validation text"
        return RunOutcome(f"{progress}, {missing}")
    return RunOutcome(f"{progress}, validation still falling by {_short(percent)} % per epoch", False, percent)


def no_improvement(validations: int) -> str:
    """Reason given for early stopping.

    >>> no_improvement(1), no_improvement(3)
    ('no improvement for 1 validation', 'no improvement for 3 validations')
    """
    return f"no improvement for {validations} validation{'' if validations == 1 else 's'}"


def _short(percent: float) -> str:
    return f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"


def falling_percent(losses: Sequence[float], epochs: Sequence[float]) -> float | None:
    """Decrease of the validation loss over the last epoch in per cent; negative if it rose.

    The loss one epoch before the last validation is interpolated. If all validations lie within an epoch, the
    relative decrease is extrapolated to one. None if it cannot be computed.

    >>> falling_percent([5.0, 4.0, 3.8], [1.0, 2.0, 3.0])
    5.0
    >>> falling_percent([5.0, 4.5], [0.25, 0.5])
    34.39
    """
    if len(losses) != len(epochs) or len(losses) < 2 or epochs[-1] <= epochs[0]:
        return None
    span = min(1.0, epochs[-1] - epochs[0])
    before = float(np.interp(epochs[-1] - span, epochs, losses))
    if before <= 0 or losses[-1] < 0:
        return None
    remaining: float = (losses[-1] / before) ** (1 / span)
    return round(100 * (1 - remaining), 9)
