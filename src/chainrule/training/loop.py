"""The loop: epochs of updates, a rate that follows its schedule, validation, checkpoints, words when it goes wrong.

Lives here: the order of things. Not here: one update (step.py), what is read (batches.py), any architecture.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chainrule.progress import Progress, silent
from chainrule.training import advice, averaging, checkpoint, ending, optimizers, resuming, schedules
from chainrule.training.batches import Source, Stream
from chainrule.training.checkpoint import LOG, holds_model_or_run
from chainrule.training.config import Training
from chainrule.training.log import TrainLog
from chainrule.training.meter import Meter
from chainrule.training.signals import Stop
from chainrule.training.step import STEPS, Eager, Graphed, Objective, Step

Validate = Callable[[], float]
"""What the validation text says of the network as it stands, the lower the better: nats per token, or an error."""


SETTLED = 0.05  # of the time that is given: before it, how fast steps are is not known yet


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a run is given beside the network and its config."""

    source: Source
    objective: Objective
    validate: Validate | None
    device: torch.device
    progress: Progress = silent
    place: Path | None = None  # where the checkpoint and the log are kept
    resume: bool = False
    tensorboard: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)  # what a checkpoint must have been made from
    unigram_nats: float = float("inf")  # what word frequencies alone would give
    measure: Literal["nats", "error"] = "nats"  # what `validate` gives: per token, or a rate between 0 and 1
    unit: str = "tokens"  # what a target is, for the speed that is shown


@dataclass
class Position:
    """How far a run has come; all that is not a tensor."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    tokens: int | None = 0  # targets learnt from, those of earlier epochs included; None: not known
    averaged: int = 0  # how many times weights were added to the average
    best: float | None = None  # validation nats
    best_epoch: int = 0
    history: list[float] = field(default_factory=list)  # validation nats, one a validation
    history_epochs: list[float] = field(default_factory=list)  # epochs done at each validation
    waited: int = 0  # validations since the best, for early stopping
    validated_part: int = 0  # of the `validations` evenly spaced ones, the last that was due
    train_history: list[float] = field(default_factory=list)  # training nats, one an epoch
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)  # of this epoch: nats, tokens, clipped, steps
    norms: list[float] = field(default_factory=list)  # of this epoch's gradients, one mean a line of the log
    largest_norm: float = 0.0  # of this epoch
    validated_at: int = -1  # the step after which the last validation was
    plateau: dict[str, Any] | None = None
    log_size: int = 0
    words: list[str] = field(default_factory=list)  # what was advised already


class Trainer:
    """One run of learning; `fit` is its only verb."""

    def __init__(self, network: nn.Module, config: Training, run: Run) -> None:
        self.network, self.config, self.run = network, config, run
        config.check_validation(run.validate is not None)
        self.position = Position()
        self.rate = 0.0
        self.plateau = schedules.Plateau.start(config)
        self.step = Step(network, run.objective, config, run.device)
        self.average: Tensor | None = None
        self.best: Tensor | None = None
        is_steady = isinstance(run.source, Stream) and getattr(network, "is_capturable", False)
        use_graph = config.graphs and run.device.type == "cuda" and is_steady
        network.train()
        self.reader: Eager | Graphed = (Graphed if use_graph else Eager)(self.step, run.source)  # type: ignore[arg-type]
        self.meter = Meter(config, run)
        self.saved_at = time.perf_counter()
        self.has_checkpoint = False  # written or taken up by this run

    def fit(self) -> bytes:
        """Learn until the epochs or the time are over; the network is left with the weights kept. The log."""
        self._take_up()
        place = self.run.place
        log_path = None if place is None else place / LOG
        is_deferred = not self.run.resume and place is not None and holds_model_or_run(place)
        with Stop() as self.stop, TrainLog(log_path, self.run.tensorboard, is_deferred=is_deferred) as self.log:
            self.log.truncate(self.position.log_size)
            while self._is_unfinished():
                self._epoch()
            if self.position.step_in_epoch:  # the time was up before the epoch was
                self._look(is_due=bool(self.step.seen[STEPS] > 0))
                self._advise()
            self._validate(is_last=True)
            if self.stop.signal is not None:
                self._leave()
            self.log.write(event="end", step=self.position.step, epoch=self.position.epoch, best=self.position.best)
            self._adopt()
            return self.log.content()

    def summary(self) -> dict[str, Any]:
        """What the run did, the parts before a resumption included, as figures of the model."""
        position = self.position
        is_complete = position.epoch >= self.config.epochs
        epochs = position.epoch if is_complete else round(self._epochs_done(), 3)
        if is_complete:
            reason = "all epochs done"
        elif self._is_stopped_early():
            reason = ending.no_improvement(position.waited)
        else:
            reason = "time limit reached"  # the limit may be computed, so that its number means nothing to the user
        figures = {
            "train_seconds": round(self.meter.seconds(), 3),
            "train_epochs": epochs,
            "train_steps": position.step,
            "train_stopped": reason,
            **self._ending(epochs, is_complete=is_complete).figures(),
        }
        if position.tokens is not None:
            figures["train_tokens_processed"] = position.tokens
        if self.config.keep == "best" and self.best is not None:
            figures["best_epoch"] = position.best_epoch
        return figures

    def _ending(self, epochs: float, *, is_complete: bool) -> ending.Ending:
        """How the run ended, judged by its validations."""
        position = self.position
        waited = position.waited if self._is_stopped_early() and not is_complete else 0
        return ending.judge(epochs, self.config.epochs, position.history, position.history_epochs, waited)

    def _epochs_done(self) -> float:
        return self.position.epoch + self.position.step_in_epoch / max(1, self.steps)

    def _is_stopped_early(self) -> bool:
        return 0 < self.config.stop_after <= self.position.waited

    def _is_unfinished(self) -> bool:
        """Whether an epoch is left to read, or one that was read to be concluded."""
        is_read = 0 < self.steps <= self.position.step_in_epoch
        is_time_left = self._fraction() < 1 and not self._is_stopped_early()
        return self.position.epoch < self.config.epochs and (is_read or is_time_left)

    def _epoch(self) -> None:
        position = self.position
        self.steps = self.run.source.steps(position.epoch)
        for _ in self._updates():
            position.step += 1
            position.step_in_epoch += 1
            self._average()
            fraction = self._fraction()
            if position.step % self.config.log_every == 0 or self.run.device.type == "cpu":
                self._look(is_due=position.step % self.config.log_every == 0)
            if self._is_validation_due(fraction):
                self._validate()
            if self.stop.signal is not None:
                self._leave()
            if self.run.place is not None and time.perf_counter() - self.saved_at > self.config.checkpoint_seconds:
                self._look()
                self._save()
            if fraction >= 1 or self._is_stopped_early():
                break
            self._set_rate(fraction)
        if position.step_in_epoch >= self.steps:
            self._conclude()

    def _is_validation_due(self, fraction: float) -> bool:
        """Whether the run has come to the next of its evenly spaced validations; the last one follows the run."""
        part = int(fraction * self.config.validations)
        if fraction >= 1 or part <= self.position.validated_part:
            return False
        self.position.validated_part = part
        return True

    def _updates(self) -> Iterator[None]:
        """One update at each `next`; how far it moved each matrix is measured before a line of the log."""
        before = self._weights_to_compare()
        for _ in self.reader.epoch(self.position.epoch, self.position.step_in_epoch):
            if before is not None:
                self.step.blame.moved(before)
            yield
            before = self._weights_to_compare()

    def _weights_to_compare(self) -> Tensor | None:
        """The weights as they are, where the next step is the last before a line of the log."""
        position = self.position
        is_last = position.step_in_epoch + 1 == self.steps or (position.step + 1) % self.config.log_every == 0
        return self.step.flat.weights.clone() if is_last else None

    def _conclude(self) -> None:
        """The epoch is over: what it gave, and what to make of it."""
        position = self.position
        self._look(is_due=position.step % self.config.log_every != 0)  # else it was read
        position.epoch, position.step_in_epoch = position.epoch + 1, 0
        is_due = not self.config.validations and position.epoch % self.config.validate_every == 0
        if is_due and position.epoch < self.config.epochs:
            self._validate()
            self._set_rate(self._fraction())  # it may have been a plateau
        self._advise()

    def _leave(self) -> None:
        """A signal came: save, and end as it asked."""
        self._look()
        self._save()
        self.stop.leave()

    def _fraction(self) -> float:
        """How much of the run is done: by epochs, or by the clock where that runs out first."""
        position, config = self.position, self.config
        by_epochs = self._epochs_done() / config.epochs
        position.seconds = self.meter.seconds()
        if config.max_seconds is None:
            return by_epochs
        by_clock = position.seconds / config.max_seconds
        is_too_slow = by_clock > max(by_epochs, SETTLED) or by_clock >= 1
        return by_clock if is_too_slow else by_epochs

    def _set_rate(self, fraction: float) -> None:
        rate = schedules.rate(self.config, self.position.step, fraction)
        if self.config.schedule == "plateau":
            rate *= self.plateau.factor
        optimizers.set_rate(self.step.optimizer, rate)
        self.rate = rate

    def _average(self) -> None:
        if self.config.averaging == "none" or self._fraction() < self.config.average_from:
            return
        self.position.averaged += 1
        if self.average is None:
            self.average = self.step.flat.weights.clone()
            return
        kind, decay = self.config.averaging, self.config.average_decay
        averaging.update_(self.average, self.step.flat.weights, kind, decay, self.position.averaged)

    def _look(self, is_due: bool = False) -> None:
        """Stop where what the steps saw is no number; read it for the log, where that is due."""
        if not torch.isfinite(self.step.seen).all():
            raise self._diverged()
        if is_due:
            parts = self.step.blame.read()
            self.meter.read(self.step.seen, self.position, self.rate, self._fraction(), self.log, parts)

    def _diverged(self) -> advice.Diverged:
        flat = self.step.flat
        found = advice.name_the_bad(flat.named(flat.gradient)) or advice.name_the_bad(flat.named(flat.weights))
        if found is None:
            size, name = max((float(piece.abs().max()), name) for name, piece in flat.named(flat.weights))
            found = f"the loss is not finite, and {name} has weights of up to {size:.2g}"
        place = None if self.run.place is None else self.run.place / checkpoint.NAME
        kept = place if self.has_checkpoint else None
        return advice.Diverged.at(self.position.step, found, kept, self.config.precision == "fp16")

    def _validate(self, is_last: bool = False) -> None:
        """Measure with the weights that would be kept, and remember the best."""
        if self.run.validate is None or (is_last and self.position.step == self.position.validated_at):
            return
        self.position.validated_at = self.position.step
        weights = self.step.flat.weights
        learning = weights.clone()
        if self.average is not None:
            weights.copy_(self.average)
        self.network.eval()
        nats = self.run.validate()
        self.network.train()
        if not math.isfinite(nats):
            raise self._diverged()
        self.position.history.append(nats)
        self.position.history_epochs.append(self._epochs_done())
        self.position.waited += 1
        self.plateau = self.plateau.after(nats)
        if self.position.best is None or nats < self.position.best:
            self.position.best, self.position.best_epoch = nats, self.position.epoch
            self.position.waited = 0
            if self.config.keep == "best":
                self.best = weights.clone()
        weights.copy_(learning)
        self.meter.validated(nats, self.position, self.log)

    def _adopt(self) -> None:
        """Leave the network with the weights that are kept."""
        weights = self.step.flat.weights
        if self.config.keep == "best" and self.best is not None:
            weights.copy_(self.best)
        elif self.average is not None:
            weights.copy_(self.average)
        for parameter in self.network.parameters():
            parameter.grad = None
            parameter.data = parameter.data.clone()
        self.network.eval()

    def _advise(self) -> None:
        for words in self.meter.advice(self.network, self.reader.state, self.position):
            self.log.write(event="advice", step=self.position.step, words=words)

    def _save(self) -> None:
        self.saved_at = time.perf_counter()
        if self.run.place is None:
            return
        if not torch.isfinite(self.step.flat.weights).all():
            raise self._diverged()
        checkpoint.save(self.run.place, resuming.gather(self))
        self.has_checkpoint = True
        self.log.store()  # what the folder held before is replaced from here on

    def _take_up(self) -> None:
        """Go on from the checkpoint, where that is wanted and there is one."""
        found = checkpoint.load(self.run.place) if self.run.resume and self.run.place is not None else None
        if found is not None:
            checkpoint.check_identity(found.identity, self.run.identity)
            resuming.scatter(self, found)
            self.has_checkpoint = True
        self.steps = self.run.source.steps(self.position.epoch)
        self.meter.begin(self.position)
        self._set_rate(self._fraction())
