"""Train small networks in fp64 on one, two and four processes; started as a program by test_ranks.py.

    python -m training.rank_cases FOLDER

The processes of each number of ranks are forked after torch was imported, and run all cases in turn. Rank 0 writes
`FOLDER/SIZE.safetensors` with the tensors of each case, and `FOLDER/SIZE.json` with what each rank noticed.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which each process would import at its first step
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from chainrule.config import build_config
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ChainruleWarning, LostRankError
from chainrule.neural import gru, lstm, transformer
from chainrule.neural.family import training_source
from chainrule.training import ranks
from chainrule.training.batches import Window
from chainrule.training.diagnostics import Diverged
from chainrule.training.step import EagerStepper, TrainingStep, next_token
from chainrule.training.trainer import Trainer, TrainingPlan
from training.small_networks import CPU, VOCABULARY, lines, scripted_validation

PLAIN: dict[str, Any] = {"hidden": 16, "batch_size": 8, "bptt": 4, "epochs": 2, "log_every": 4, "dropout": 0.0}
SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.5, "clip": 0.5, "warmup": 0}
ADAM: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 0.01, "averaging": "ema", "average_from": 0.2}
DROPPED: dict[str, Any] = {"dropout": 0.3, "embedding_dropout": 0.2}
PENALTIES: dict[str, Any] = {"weight_dropout": 0.3, "activation_penalty": 2.0, "temporal_penalty": 1.0, "layers": 2}
HEADS: dict[str, Any] = {"heads": 2, "layers": 2, "window": 4, "attention_dropout": 0.3}


@dataclass(frozen=True)
class Case:
    """A run of the trainer."""

    module: Any
    context: Any
    settings: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64


CASES = {
    "lstm-stream": Case(lstm, "stream", SGD | DROPPED | PENALTIES),
    "lstm-stream-accumulate": Case(lstm, "stream", SGD | DROPPED | PENALTIES | {"accumulate": 2}),
    "lstm-stream-adam": Case(lstm, "stream", ADAM),
    "gru-line": Case(gru, "line", SGD | DROPPED | {"locked": False, "batch_size": 5, "output": "sampled"}),
    "gru-line-accumulate": Case(gru, "line", SGD | DROPPED | {"batch_size": 5, "accumulate": 2}),
    "transformer-stream": Case(transformer, "stream", SGD | DROPPED | HEADS),
    "transformer-line-adam": Case(transformer, "line", ADAM | DROPPED | HEADS | {"batch_size": 5}),
    "plateau": Case(lstm, "stream", SGD | {"schedule": "plateau", "validations": 5, "stop_after": 4}),
    "fp32": Case(lstm, "stream", ADAM | {"epochs": 17, "log_every": 1}, torch.float32),
}
FEW = ("lstm-stream", "gru-line-accumulate", "transformer-line-adam")
BY_SIZE: dict[int, tuple[str, ...]] = {
    0: tuple(CASES),
    1: FEW,
    2: tuple(CASES),
    4: tuple(name for name in CASES if name not in ("fp32", "plateau", "lstm-stream-adam")),
}
RESUMED = "lstm-stream"
STOPPED_AT = 7


def make_trainer(
    case: Case, out: Path | None = None, *, resume: bool = False, objective: Any = next_token
) -> Trainer:
    """A trainer of the case, in which only rank 0 has a validation function."""
    config = build_config(case.module.Config, PLAIN | case.settings, "model")
    data = TrainingData(
        train=lines(60, longest=12), valid=None, vocabulary=VOCABULARY, options=RunOptions(context=case.context)
    )
    torch.set_default_dtype(case.dtype)
    torch.manual_seed(3 + ranks.current().rank)  # rank 0's weights are sent to the others
    network = case.module.build(config, VOCABULARY, np.ones(VOCABULARY.size)).to(case.dtype)
    torch.manual_seed(5)
    has_validation = config.training.validations and ranks.current().is_first
    plan = TrainingPlan(
        source=training_source(data, config.training, network, CPU),
        objective=objective,
        validate=scripted_validation(2.0, 2.5, 1.5, 1.6, 1.7, 1.8) if has_validation else None,
    )
    return Trainer(network, config.training, plan, RunOptions(out=out, resume=resume))


def fit(trainer: Trainer) -> dict[str, Tensor]:
    """Run the trainer; return the weights, average and the losses of the log."""
    log = [json.loads(line) for line in trainer.fit().splitlines()]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    tensors = {"weights": trainer.step.flat.weights.clone(), "steps": torch.tensor(trainer.position.step)}
    return tensors | {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "best": torch.tensor(trainer.position.best or 0.0),
    }


def at_step(trainer: Trainer, step: int, rank: int, number: int) -> None:
    """Send a signal to a rank at a step."""
    epoch = trainer.stepper.epoch

    def interrupted(*arguments: int) -> Iterator[None]:
        for _ in epoch(*arguments):
            if trainer.position.step + 1 == step and ranks.current().rank == rank:
                os.kill(os.getpid(), number)
            yield

    trainer.stepper.epoch = interrupted  # type: ignore[assignment, method-assign]


def stop_by_signal(folder: Path) -> list[int]:
    """SIGTERM to the last rank; return the exit status and the step of each rank."""
    trainer = make_trainer(CASES[RESUMED], folder)
    at_step(trainer, STOPPED_AT, ranks.current().size - 1, signal.SIGTERM)
    status: Any = None
    try:
        trainer.fit()
    except SystemExit as stop:
        status = stop.code
    return [status, trainer.position.step]


def diverge() -> str:
    """A loss of the last rank that is not a number; return the message."""
    steps = iter(range(1, 1000))

    def objective(network: Any, window: Window, state: Any) -> Any:
        loss, nats, state = next_token(network, window, state)
        is_bad = next(steps) == 5 and ranks.current().rank == ranks.current().size - 1
        return (loss * float("nan") if is_bad else loss), nats, state

    try:
        make_trainer(CASES["lstm-stream-adam"], objective=objective).fit()
    except Diverged as error:
        return str(error)
    return "it did not stop"


def lose_a_rank() -> str:
    """SIGKILL to the last rank; return the message of the others."""
    trainer = make_trainer(CASES["lstm-stream-adam"])
    at_step(trainer, 3, ranks.current().size - 1, signal.SIGKILL)
    try:
        trainer.fit()
    except LostRankError as error:
        return str(error)
    return "it did not stop"


def ddp_weights() -> Tensor:
    """Weights after an epoch with the gradients averaged by torch's DistributedDataParallel."""
    case = Case(lstm, "stream", SGD | {"epochs": 1})
    trainer = make_trainer(case)
    network: Any = trainer.network
    step = TrainingStep(network, next_token, trainer.config, CPU)
    wrapped = DistributedDataParallel(network)

    class Learner:
        output = network.output

        def __call__(self, *arguments: Any) -> Any:
            return wrapped(*arguments)

    step.learner = Learner()
    stepper = EagerStepper(step, None)
    windows = [replace(window, part=None) for window in trainer.plan.source.windows(0)]
    stepper.source = type("Windows", (), {"windows": lambda self, epoch, first: iter(windows)})()
    for _ in stepper.epoch(0, 0):
        pass
    return step.flat.weights.clone()


def own_weights() -> Tensor:
    """Weights after an epoch as in `ddp_weights`, with the all-reduce of the flat gradient."""
    trainer = make_trainer(Case(lstm, "stream", SGD | {"epochs": 1}))
    for _ in trainer.stepper.epoch(0, 0):
        pass
    return trainer.step.flat.weights.clone()


def resume(folder: Path) -> dict[str, Tensor]:
    """Resume the runs that were stopped so far."""
    tensors: dict[str, Tensor] = {}
    for other in (0, 2, 4):
        if (folder / str(other) / "checkpoint").exists():
            resumed = make_trainer(CASES[RESUMED], folder / str(other), resume=True)
            tensors |= {f"resumed-{other}/{key}": tensor for key, tensor in fit(resumed).items()}
    return tensors


def run_cases(folder: Path, size: int) -> None:
    """Run all cases as one of `size` ranks, without a process group if it is 0."""
    tensors: dict[str, Tensor] = {}
    for name in BY_SIZE[size]:
        tensors |= {f"{name}/{key}": tensor for key, tensor in fit(make_trainer(CASES[name])).items()}
    notes: dict[str, Any] = {}
    if size > 1:
        tensors |= {"ddp": ddp_weights(), "own": own_weights()}
    notes["signal"] = stop_by_signal(folder / str(size))
    notes["diverged"] = diverge()
    tensors |= resume(folder)
    all_notes: list[Any] = [notes]
    if size:
        all_notes = [None] * size
        dist.all_gather_object(all_notes, notes)
    if size == 4:
        message = lose_a_rank()
        all_notes[0]["lost"] = message
    if ranks.current().is_first:
        save_file(tensors, folder / f"{size}.safetensors")
        (folder / f"{size}.json").write_text(json.dumps(all_notes))


def main(folder: Path) -> None:
    """Run the cases without and with process groups of 1, 2 and 4 ranks."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ChainruleWarning)
    for size in (0, 1, 2, 4):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        os.environ |= {
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "LOCAL_WORLD_SIZE": str(size),
            "WORLD_SIZE": str(size),
        }
        children = [start(folder, size, rank) for rank in range(max(1, size))]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        expected = [0] * 3 + [-signal.SIGKILL] if size == 4 else [0] * len(children)
        assert statuses == expected, (size, statuses)
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    save_file(resume(folder), folder / "resumed.safetensors")


def start(folder: Path, size: int, rank: int) -> int:
    """Fork a rank; return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        if size:
            with ranks.process_group("cpu"):
                run_cases(folder, size)
        else:
            run_cases(folder, size)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
