"""Optimizers over one flat parameter, capturable in a CUDA graph.

Fused kernels are used throughout: AdamW over 5M weights on the CPU takes 2.9 ms fused and 13 ms otherwise.
"""

from collections.abc import Mapping

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
