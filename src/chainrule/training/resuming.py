"""A run as a checkpoint and back: weights, optimiser, random numbers, carried state, position."""

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from chainrule.training import optimizers
from chainrule.training.checkpoint import Checkpoint

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
    """Put a run where its checkpoint left it."""
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
    for key, value in found.position.items():
        setattr(trainer.position, key, value)
    trainer.plateau = trainer.plateau.from_json(trainer.config, found.position["plateau"])
    torch.set_rng_state(found.state["rng.cpu"])
    if device.type == "cuda" and "rng.cuda" in found.state:
        torch.cuda.set_rng_state(found.state["rng.cuda"], device)


def _carried(found: Checkpoint) -> int:
    return sum(name.startswith("carried.") for name in found.state)


def _moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
