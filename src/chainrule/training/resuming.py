"""Convert a trainer to a checkpoint and back: weights, optimiser, RNG states, carried state, position."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from chainrule import tensors
from chainrule.errors import ModelFileError
from chainrule.tensors import TensorSpec, spec_of
from chainrule.training import optimizers
from chainrule.training.checkpoint import NAME, REMEDY, Checkpoint

if TYPE_CHECKING:
    from chainrule.training.loop import Trainer


def capture_state(trainer: "Trainer") -> Checkpoint:
    """Collect everything the rest of the run depends on."""
    state = {"rng.cpu": torch.get_rng_state()}
    if trainer.run.device.type == "cuda":
        state["rng.cuda"] = torch.cuda.get_rng_state(trainer.run.device)
    for i, tensor in enumerate(trainer.stepper.state or ()):
        state[f"carried.{i}"] = tensor
    for name in ("best", "average"):
        tensor = getattr(trainer, name)
        if tensor is not None:
            state[name] = tensor
    state["seen"], state["blame"] = trainer.step.statistics, trainer.step.gradient_stats.sums
    trainer.position.plateau = trainer.plateau.to_json()
    trainer.position.log_size = trainer.log.size
    named = dict(trainer.network.named_parameters()) | dict(trainer.network.named_buffers())
    return Checkpoint(
        weights={name: tensor.detach() for name, tensor in named.items()},
        optimizer=optimizers.state_tensors(trainer.step.optimizer),
        state=state,
        position=dataclasses.asdict(trainer.position),
        identity=trainer.run.identity,
    )


def restore_state(trainer: "Trainer", saved: Checkpoint) -> None:
    """Restore a trainer from a checkpoint; raise ModelFileError if it does not fit."""
    _check(trainer, saved)
    device = trainer.run.device
    named = dict(trainer.network.named_parameters()) | dict(trainer.network.named_buffers())
    with torch.no_grad():
        for name, tensor in named.items():
            tensor.copy_(saved.weights[name])
    optimizers.restore(trainer.step.optimizer, saved.optimizer)
    trainer.step.statistics.copy_(saved.state["seen"])
    if "blame" in saved.state:  # missing in older checkpoints
        trainer.step.gradient_stats.sums.copy_(saved.state["blame"])
    trainer.best, trainer.average = (_moved(saved.state.get(name), device) for name in ("best", "average"))
    carried = [saved.state[f"carried.{i}"].to(device) for i in range(_carried(saved))]
    if trainer.stepper.state is None:
        trainer.stepper.state = tuple(carried) or None
    else:
        for old, new in zip(trainer.stepper.state, carried, strict=True):
            old.copy_(new)
    trainer.position.tokens = None  # unknown in older checkpoints
    for key, value in saved.position.items():
        setattr(trainer.position, key, value)
    trainer.plateau = trainer.plateau.from_json(trainer.config, saved.position["plateau"])
    torch.set_rng_state(saved.state["rng.cpu"])
    if device.type == "cuda" and "rng.cuda" in saved.state:
        torch.cuda.set_rng_state(saved.state["rng.cuda"], device)


def _check(trainer: "Trainer", saved: Checkpoint) -> None:
    """Compare every tensor and scalar of a checkpoint with the run to be resumed.

    Older versions wrote fewer scalars and no "blame"; the carried states depend on the source.
    """
    folder = trainer.run.run_dir
    source = NAME if folder is None else str(folder / NAME)
    named = dict(trainer.network.named_parameters()) | dict(trainer.network.named_buffers())
    flat = spec_of(trainer.step.flat.weights)
    state = {"rng.cpu": spec_of(torch.get_rng_state()), "seen": spec_of(trainer.step.statistics)}
    optional = {
        "rng.cuda": TensorSpec("uint8", (None,)),
        "blame": spec_of(trainer.step.gradient_stats.sums),
        "best": flat,
        "average": flat,
        **{name: spec_of(tensor) for name, tensor in saved.state.items() if name.startswith("carried.")},
    }
    optimizer = {name: spec_of(tensor) for name, tensor in optimizers.state_tensors(trainer.step.optimizer).items()}
    tensors.check(saved.weights, {name: spec_of(tensor) for name, tensor in named.items()}, source)
    tensors.check_specs(saved.state, state, source, optional)
    for name, tensor in saved.state.items():
        if name in ("best", "average") or name.startswith("carried."):
            tensors.check_finite(np.asarray(tensor), f"{source}: {name}")
    _check_carried(trainer, saved, source)
    if optimizer.keys() == saved.optimizer.keys():  # else optimizers.restore raises
        tensors.check(saved.optimizer, optimizer, source)
    _check_position(saved.position, type(trainer.position)(), source)
    _check_position(saved.position["plateau"], trainer.plateau.to_json(), source)


def _check_position(fields: Any, template: Any, source: str) -> None:
    """Raise ModelFileError for scalars with unexpected names or types, or non-finite numbers."""
    expected = dict(template) if isinstance(template, dict) else dataclasses.asdict(template)
    if (
        not isinstance(fields, dict)
        or not fields.keys() <= expected.keys()
        or "plateau" in expected.keys() - fields.keys()
    ):
        raise ModelFileError(f"{source} has invalid progress fields; {REMEDY}")
    for name, value in fields.items():
        parts = value if isinstance(value, list) else [value]
        if name == "words":
            is_expected = isinstance(value, list) and all(isinstance(part, str) for part in parts)
        elif name == "plateau":
            is_expected = isinstance(value, dict)
        else:
            is_number = all(map(_is_number, parts)) and (type(expected[name]) is not int or type(value) is int)
            is_expected = is_number or (value is None and expected[name] is None)
            is_expected = is_expected and isinstance(value, list) == isinstance(expected[name], list)
        if not is_expected:
            raise ModelFileError(f"{source} has the invalid value {value!r:.40} for {name}; {REMEDY}")


def _is_number(value: Any) -> bool:
    """Whether the value is a finite float or an integer from -1 to 2⁵³ − 1."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and -1 <= value < 1 << 53)


def _check_carried(trainer: "Trainer", saved: Checkpoint, source: str) -> None:
    """Raise ModelFileError if carried states do not have the network's shapes; dimension 1 may be time."""
    carried = [saved.state.get(f"carried.{i}") for i in range(_carried(saved))]
    if not carried:
        return
    first = carried[0]
    rows = len(first) if first is not None and first.ndim else 0
    initial = trainer.network.start(rows) if rows else ()

    def outline(tensor: Tensor) -> tuple[Any, ...]:
        return tensor.dtype, tensor.ndim, tensor.shape[:1], tensor.shape[2:]

    is_expected = [outline(tensor) for tensor in carried if tensor is not None] == [outline(t) for t in initial]
    if not is_expected:
        raise ModelFileError(f"{source} holds states that are not this network's; {REMEDY}")


def _carried(saved: Checkpoint) -> int:
    return sum(name.startswith("carried.") for name in saved.state)


def _moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
