"""A run as a checkpoint and back: weights, optimiser, random numbers, carried state, position."""

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


def gather(trainer: "Trainer") -> Checkpoint:
    """All that the rest of the run depends on."""
    state = {"rng.cpu": torch.get_rng_state()}
    if trainer.run.device.type == "cuda":
        state["rng.cuda"] = torch.cuda.get_rng_state(trainer.run.device)
    for i, tensor in enumerate(trainer.reader.state or ()):
        state[f"carried.{i}"] = tensor
    for name in ("best", "average"):
        tensor = getattr(trainer, name)
        if tensor is not None:
            state[name] = tensor
    state["seen"], state["blame"] = trainer.step.seen, trainer.step.blame.sums
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


def scatter(trainer: "Trainer", found: Checkpoint) -> None:
    """Put a run where its checkpoint left it; ModelFileError where the checkpoint cannot be this run's."""
    _check(trainer, found)
    device = trainer.run.device
    named = dict(trainer.network.named_parameters()) | dict(trainer.network.named_buffers())
    with torch.no_grad():
        for name, tensor in named.items():
            tensor.copy_(found.weights[name])
    optimizers.restore(trainer.step.optimizer, found.optimizer)
    trainer.step.seen.copy_(found.state["seen"])
    if "blame" in found.state:  # earlier versions wrote none: the next line then counts from here
        trainer.step.blame.sums.copy_(found.state["blame"])
    trainer.best, trainer.average = (_moved(found.state.get(name), device) for name in ("best", "average"))
    carried = [found.state[f"carried.{i}"].to(device) for i in range(_carried(found))]
    if trainer.reader.state is None:
        trainer.reader.state = tuple(carried) or None
    else:
        for old, new in zip(trainer.reader.state, carried, strict=True):
            old.copy_(new)
    trainer.position.tokens = None  # unless it is told: earlier versions did not count them
    for key, value in found.position.items():
        setattr(trainer.position, key, value)
    trainer.plateau = trainer.plateau.from_json(trainer.config, found.position["plateau"])
    torch.set_rng_state(found.state["rng.cpu"])
    if device.type == "cuda" and "rng.cuda" in found.state:
        torch.cuda.set_rng_state(found.state["rng.cuda"], device)


def _check(trainer: "Trainer", found: Checkpoint) -> None:
    """Compare every tensor and every scalar of a checkpoint with the run that is to go on from it.

    Earlier versions wrote fewer scalars and no "blame"; which carried states there are is decided by the source.
    """
    place = trainer.run.place
    source = NAME if place is None else str(place / NAME)
    named = dict(trainer.network.named_parameters()) | dict(trainer.network.named_buffers())
    flat = spec_of(trainer.step.flat.weights)
    state = {"rng.cpu": spec_of(torch.get_rng_state()), "seen": spec_of(trainer.step.seen)}
    optional = {
        "rng.cuda": TensorSpec("uint8", (None,)),
        "blame": spec_of(trainer.step.blame.sums),
        "best": flat,
        "average": flat,
        **{name: spec_of(tensor) for name, tensor in found.state.items() if name.startswith("carried.")},
    }
    optimizer = {name: spec_of(tensor) for name, tensor in optimizers.state_tensors(trainer.step.optimizer).items()}
    tensors.check(found.weights, {name: spec_of(tensor) for name, tensor in named.items()}, source)
    tensors.check_specs(found.state, state, source, optional)
    for name, tensor in found.state.items():
        if name in ("best", "average") or name.startswith("carried."):
            tensors.check_finite(np.asarray(tensor), f"{source}: {name}")
    _check_carried(trainer, found, source)
    if optimizer.keys() == found.optimizer.keys():  # else the optimizer says which are its own
        tensors.check(found.optimizer, optimizer, source)
    _check_position(found.position, type(trainer.position)(), source)
    _check_position(found.position["plateau"], trainer.plateau.to_json(), source)


def _check_position(fields: Any, usual: Any, source: str) -> None:
    """Refuse scalars with another name or type than `usual` has, and numbers that are not finite."""
    expected = dict(usual) if isinstance(usual, dict) else dataclasses.asdict(usual)
    if (
        not isinstance(fields, dict)
        or not fields.keys() <= expected.keys()
        or "plateau" in expected.keys() - fields.keys()
    ):
        raise ModelFileError(f"{source} does not say how far its run had come; {REMEDY}")
    for name, value in fields.items():
        parts = value if isinstance(value, list) else [value]
        if name == "words":
            is_usual = isinstance(value, list) and all(isinstance(part, str) for part in parts)
        elif name == "plateau":
            is_usual = isinstance(value, dict)
        else:
            is_number = all(map(_is_number, parts)) and (type(expected[name]) is not int or type(value) is int)
            is_usual = is_number or (value is None and expected[name] is None)
            is_usual = is_usual and isinstance(value, list) == isinstance(expected[name], list)
        if not is_usual:
            raise ModelFileError(f"{source} says {name} is {value!r:.40}, which cannot be; {REMEDY}")


def _is_number(value: Any) -> bool:
    """Whether the value is a finite float, or a whole number from -1 on."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and -1 <= value < 1 << 53)


def _check_carried(trainer: "Trainer", found: Checkpoint, source: str) -> None:
    """Refuse states carried from batch to batch that are not the network's; dimension 1 may be time."""
    carried = [found.state.get(f"carried.{i}") for i in range(_carried(found))]
    if not carried:
        return
    first = carried[0]
    rows = len(first) if first is not None and first.ndim else 0
    usual = trainer.network.start(rows) if rows else ()

    def outline(tensor: Tensor) -> tuple[Any, ...]:
        return tensor.dtype, tensor.ndim, tensor.shape[:1], tensor.shape[2:]

    is_usual = [outline(tensor) for tensor in carried if tensor is not None] == [outline(t) for t in usual]
    if not is_usual:
        raise ModelFileError(f"{source} holds states that are not this network's; {REMEDY}")


def _carried(found: Checkpoint) -> int:
    return sum(name.startswith("carried.") for name in found.state)


def _moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
