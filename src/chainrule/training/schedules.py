"""Learning-rate schedules: warm-up, constant, linear, cosine and exponential decay, and reduction on a plateau."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from chainrule.training.config import TrainingConfig

LONGEST_WARMUP = 0.1  # maximum share of the run


def learning_rate(config: TrainingConfig, step: int, progress: float) -> float:
    """Learning rate of the update after `step` others, at `progress` in [0, 1] of the run.

    For `plateau`, multiply by the factor of a `Plateau`.
    """
    warm = min(1.0, max((step + 1) / config.warmup, progress / LONGEST_WARMUP)) if config.warmup else 1.0
    return config.learning_rate * warm * _decay_factor(config, min(max(progress, 0.0), 1.0))


def _decay_factor(config: TrainingConfig, progress: float) -> float:
    is_flat = progress <= config.flat
    x = 0.0 if is_flat else (progress - config.flat) / (1 - config.flat)  # progress of the decay
    match config.schedule:
        case "constant" | "plateau":
            return 1.0
        case "linear":
            return 1 - x
        case "cosine":
            return (1 + math.cos(math.pi * x)) / 2
        case "exponential":
            return float(config.decay**x)  # geometric from 1 to decay


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """State of the plateau schedule; immutable."""

    decay: float  # multiplies the factor at each reduction
    patience: int  # validations without improvement before a reduction
    factor: float = 1.0
    best: float | None = None  # lowest loss so far
    waited: int = 0  # validations since the best or the last reduction

    @classmethod
    def start(cls, config: TrainingConfig) -> Self:
        """State before the first validation."""
        return cls(decay=config.decay, patience=config.patience)

    def after(self, validation: float) -> Self:
        """State after one more validation loss; NaN counts as no improvement."""
        if math.isfinite(validation) and (self.best is None or validation < self.best):
            return replace(self, best=validation, waited=0)
        if self.waited + 1 < self.patience:
            return replace(self, waited=self.waited + 1)
        return replace(self, factor=self.factor * self.decay, waited=0)

    def to_json(self) -> dict[str, Any]:
        """Fields for a checkpoint; the settings are in the config."""
        return {"factor": self.factor, "best": self.best, "waited": self.waited}

    @classmethod
    def from_json(cls, config: TrainingConfig, fields: dict[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return replace(cls.start(config), **fields)
