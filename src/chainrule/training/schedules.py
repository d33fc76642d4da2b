"""The learning rate over a run: warm-up, then a curve over its progress, or a fall at every plateau.

Lives here: numbers to numbers. Not here: giving the rate to an optimiser (optimizers.py).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from chainrule.training.config import Training

LONGEST_WARMUP = 0.1  # of a run: a short one is not all warm-up


def rate(config: Training, step: int, progress: float) -> float:
    """The learning rate of the update after `step` others, at `progress` in [0, 1] of the run.

    `plateau` has no curve of its own: multiply by the factor of a `Plateau`.
    """
    warm = min(1.0, max((step + 1) / config.warmup, progress / LONGEST_WARMUP)) if config.warmup else 1.0
    return config.learning_rate * warm * _curve(config, min(max(progress, 0.0), 1.0))


def _curve(config: Training, progress: float) -> float:
    is_flat = progress <= config.flat
    x = 0.0 if is_flat else (progress - config.flat) / (1 - config.flat)  # the part of the decay that is done
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
    """What the plateau schedule knows of the validations so far; a value."""

    decay: float  # the factor falls to this part of itself
    patience: int  # validations without a new best before it does
    factor: float = 1.0
    best: float | None = None  # the lowest loss so far
    waited: int = 0  # validations since the best, or since the last fall

    @classmethod
    def start(cls, config: Training) -> Self:
        """Before the first validation."""
        return cls(decay=config.decay, patience=config.patience)

    def after(self, validation: float) -> Self:
        """What it knows after one more validation loss; NaN is no progress."""
        if math.isfinite(validation) and (self.best is None or validation < self.best):
            return replace(self, best=validation, waited=0)
        if self.waited + 1 < self.patience:
            return replace(self, waited=self.waited + 1)
        return replace(self, factor=self.factor * self.decay, waited=0)

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps of it; the settings are in the config."""
        return {"factor": self.factor, "best": self.best, "waited": self.waited}

    @classmethod
    def from_json(cls, config: Training, fields: dict[str, Any]) -> Self:
        """Back from `to_json`."""
        return replace(cls.start(config), **fields)
