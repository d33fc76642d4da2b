"""One run of learning, whatever is learnt: the seed's first weights, the device, the time there is, the loop."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from chainrule.data.training import Job
from chainrule.errors import ConfigError
from chainrule.neural import weights
from chainrule.neural.device import choose
from chainrule.training.batches import Source
from chainrule.training.loop import Run, Trainer, Validate
from chainrule.training.step import Objective

N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a network reads, what it learns by, how it is judged."""

    source: Source
    objective: Objective
    validate: Validate | None
    measure: Literal["nats", "error"] = "nats"
    unit: str = "tokens"  # what a target is
    unigram_nats: float = float("inf")  # what word frequencies alone would give


def learn(
    job: Job, config: Any, build: Callable[[], N], plan: Callable[[N, torch.device], Plan]
) -> tuple[N, bytes]:
    """The network as it is kept, and the log; `config` is a `Training` and whatever else `build` knows of.

    What the run did (epochs, steps, why it stopped) is added to `job.summary`.
    """
    device = choose(job.device)
    check_precision(config.precision, device)
    weights.specs(build)  # too large a net is refused before memory is taken
    seconds = [s for s in (config.max_seconds, job.max_seconds) if s is not None]
    config = dataclasses.replace(config, max_seconds=min(seconds, default=None))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(job.seed)
        network: N = build().to(device)
        made = plan(network, device)
        run = Run(
            source=made.source,
            objective=made.objective,
            validate=made.validate,
            measure=made.measure,
            unit=made.unit,
            unigram_nats=made.unigram_nats,
            device=device,
            progress=job.progress,
            place=job.place,
            resume=job.resume,
            tensorboard=job.tensorboard,
            identity=job.identity,
        )
        trainer = Trainer(network, config, run)
        log = trainer.fit()
        job.summary.update(trainer.summary())
    return network, log


def check_precision(precision: str, device: torch.device) -> None:
    """Half precision is the GPU's; some processors claim bf16 and stop at its first instruction."""
    if precision != "fp32" and device.type == "cpu":
        raise ConfigError(f"model.precision is '{precision}', and the processor computes in fp32; leave it at fp32")
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("model.precision is 'bf16', which this GPU cannot compute in; choose fp32 or fp16")
