"""Shared helpers of the training tests: a small text, a network of a few weights, and short runs."""

import dataclasses
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chainrule import families
from chainrule.config import build_config
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ChainruleWarning
from chainrule.lm import Context, Vocabulary
from chainrule.neural.model import NeuralModel
from chainrule.training.batches import Window
from chainrule.training.config import TrainingConfig
from chainrule.training.trainer import Trainer, TrainingPlan

BOS, EOS = 0, 1
VOCABULARY = Vocabulary(9, BOS, EOS, 2)
CPU = torch.device("cpu")


def lines(number: int = 12, seed: int = 1, longest: int = 9) -> EncodedText:
    """`number` lines of 1 to `longest` tokens including `</s>`; each word is most often followed by the next id."""
    rng = np.random.default_rng(seed)
    ids: list[int] = []
    for size in rng.integers(0, longest, number).tolist():
        first = int(rng.integers(7))
        ids += [2 + (first + t + int(rng.random() < 0.2)) % 7 for t in range(size)] + [EOS]
    return EncodedText(np.array(ids, dtype=np.int32), EOS, 2, 0, 0, 0)


def train_briefly(
    family: str, context: Context = "line", run_dir: Path | None = None, **settings: Any
) -> NeuralModel:
    """A network trained for a short run through the table of families; `resume` is not a model setting."""
    resume = bool(settings.pop("resume", False))
    train, valid = settings.pop("train", lines()), settings.pop("valid", lines(5, seed=2))
    data = TrainingData(
        train=train,
        valid=valid,
        vocabulary=VOCABULARY,
        options=RunOptions(
            context=context,
            device=settings.pop("device", "cpu"),
            out=run_dir,
            resume=resume,
            identity={"family": family},
        ),
    )
    kind = families.get(family)
    hush = settings.pop("hush", True)  # so short a run may well get the diagnostic to continue
    chosen = {"hidden": 8, "batch_size": 3, "bptt": 4, "epochs": 3, "learning_rate": 0.05, "log_every": 3}
    with warnings.catch_warnings():
        if hush:
            warnings.simplefilter("ignore", ChainruleWarning)
        model: Any = kind.train(data, build_config(kind.Config, chosen | settings, "model"))
    assert isinstance(model, NeuralModel)
    return model


def entries(log: bytes) -> list[dict[str, Any]]:
    """The log entries without timings."""
    entries_ = [json.loads(line) for line in log.splitlines()]
    return [{k: v for k, v in entry.items() if k not in ("seconds", "tokens_per_second")} for entry in entries_]


class Weights(nn.Module):
    """A network of bare weights, for losses worked by hand."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values))

    def start(self, rows: int) -> tuple[Tensor, ...]:
        return (torch.zeros(rows, 1),)


class Slopes:
    """A batch source whose window i has the i-th slope as its input; an epoch is all of them."""

    def __init__(self, *slopes: tuple[float, ...]) -> None:
        self.slopes = slopes

    def steps(self, epoch: int) -> int:
        return len(self.slopes)

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        for linear_objective in self.slopes[first:]:
            row = torch.tensor([linear_objective])
            yield Window(row, torch.zeros(1, 1))


def linear_objective(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
    """The objective g · w, whose gradient is the window's input."""
    loss = (network.w * window.inputs[0]).sum()
    return loss, loss, state


def trainer(network: nn.Module, source: Any, config: TrainingConfig, **options: Any) -> Trainer:
    """A trainer; `options` are fields of the plan and of the run options."""
    plan: dict[str, Any] = {"objective": linear_objective, "validate": None}
    plan |= {f.name: options.pop(f.name) for f in dataclasses.fields(TrainingPlan) if f.name in options}
    return Trainer(network, config, TrainingPlan(source=source, **plan), RunOptions(**options))


UP = Slopes((-1.0,), (-1.0,), (-1.0,), (-1.0,))  # w grows by the learning rate at each step


def sgd(**settings: Any) -> TrainingConfig:
    chosen: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1.0, "clip": 0.0, "schedule": "constant"}
    return TrainingConfig(**chosen | {"warmup": 0, "epochs": 2, "log_every": 1} | settings)


def events(log: bytes, name: str) -> list[dict[str, Any]]:
    return [entry for entry in entries(log) if entry.get("event") == name]


def scripted_validation(*nats: float) -> Any:
    """A validation function that returns these losses in turn."""
    losses = iter(nats)
    return lambda: next(losses)
