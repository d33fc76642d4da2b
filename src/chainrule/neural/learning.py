"""Train a network: seed, build, move to the device, run the `Trainer`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from chainrule.data.training import Job
from chainrule.errors import ConfigError
from chainrule.neural import weights
from chainrule.neural.device import select_device
from chainrule.training.batches import BatchSource
from chainrule.training.loop import Run, Trainer, Validate
from chainrule.training.step import Objective

N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Data, objective and validation of a training run."""

    source: BatchSource
    objective: Objective
    validate: Validate | None
    measure: Literal["nats", "error"] = "nats"
    unit: str = "tokens"  # name of a target unit
    unigram_nats: float = float("inf")  # loss of the unigram distribution


def fit(
    job: Job, config: Any, build: Callable[[], N], plan: Callable[[N, torch.device], TrainingPlan]
) -> tuple[N, bytes]:
    """Train a network; return it with its final weights, and the training log.

    `config` is a `Training` config. The run summary (epochs, steps, reason to stop) is added to `job.summary`.
    """
    device = select_device(job.device)
    check_precision(config.precision, device)
    weights.tensor_specs(build)  # reject an oversized network before allocating memory
    seconds = [s for s in (config.max_seconds, job.max_seconds) if s is not None]
    config = dataclasses.replace(config, max_seconds=min(seconds, default=None))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(job.seed)
        network: N = build().to(device)
        training_plan = plan(network, device)
        run = Run(
            source=training_plan.source,
            objective=training_plan.objective,
            validate=training_plan.validate,
            measure=training_plan.measure,
            unit=training_plan.unit,
            unigram_nats=training_plan.unigram_nats,
            device=device,
            progress=job.progress,
            run_dir=job.run_dir,
            resume=job.resume,
            tensorboard=job.tensorboard,
            identity=job.identity,
        )
        trainer = Trainer(network, config, run)
        log = trainer.fit()
        job.summary.update(trainer.summary())
    return network, log


def check_precision(precision: str, device: torch.device) -> None:
    """Raise ConfigError for a precision the device does not support.

    Some CPUs claim to support bf16 and crash at its first instruction.
    """
    if precision != "fp32" and device.type == "cpu":
        raise ConfigError(f"model.precision is '{precision}', and the processor computes in fp32; leave it at fp32")
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("model.precision is 'bf16', which this GPU cannot compute in; choose fp32 or fp16")
