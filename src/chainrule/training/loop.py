"""Training loop: epochs, learning-rate schedule, validation, checkpoints, early stopping and diagnostics."""

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
from chainrule.training.batches import BatchSource, StreamBatches
from chainrule.training.checkpoint import LOG, holds_model_or_run
from chainrule.training.config import Training
from chainrule.training.log import TrainLog
from chainrule.training.meter import TrainingMetrics
from chainrule.training.signals import GracefulStop
from chainrule.training.step import STEPS, CudaGraphStepper, EagerStepper, Objective, TrainingStep

Validate = Callable[[], float]
"""Return the validation loss in nats per token, or an error rate; lower is better."""

SETTLED = 0.05  # share of the time limit before which the speed estimate is unreliable


@dataclass(frozen=True, kw_only=True)
class Run:
    """Data, objective and environment of a run, in addition to network and config."""

    source: BatchSource
    objective: Objective
    validate: Validate | None
    device: torch.device
    progress: Progress = silent
    run_dir: Path | None = None  # folder of the checkpoint and the log
    resume: bool = False
    tensorboard: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)  # must match that of a checkpoint to resume
    unigram_nats: float = float("inf")  # loss of the unigram distribution
    measure: Literal["nats", "error"] = "nats"  # unit of `validate`: nats per token, or an error rate
    unit: str = "tokens"  # name of a target unit, for the displayed speed


@dataclass
class Position:
    """Progress of a run: all resumable state that is not a tensor."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    tokens: int | None = 0  # target tokens processed; None: unknown
    averaged: int = 0  # number of averaged samples
    best: float | None = None  # lowest validation loss
    best_epoch: int = 0
    history: list[float] = field(default_factory=list)  # validation losses
    history_epochs: list[float] = field(default_factory=list)  # epochs done at each validation
    waited: int = 0  # validations since the best
    validated_part: int = 0  # index of the last evenly spaced validation
    train_history: list[float] = field(default_factory=list)  # training loss of each epoch
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)  # in this epoch: nats, tokens, clipped, steps
    norms: list[float] = field(default_factory=list)  # mean gradient norm of each log line in this epoch
    largest_norm: float = 0.0  # in this epoch
    validated_at: int = -1  # step of the last validation
    plateau: dict[str, Any] | None = None
    log_size: int = 0
    words: list[str] = field(default_factory=list)  # keys of the diagnostics already reported


class Trainer:
    """Trains one network; call `fit`."""

    def __init__(self, network: nn.Module, config: Training, run: Run) -> None:
        self.network, self.config, self.run = network, config, run
        config.check_validation(run.validate is not None)
        self.position = Position()
        self.rate = 0.0
        self.plateau = schedules.Plateau.start(config)
        self.step = TrainingStep(network, run.objective, config, run.device)
        self.average: Tensor | None = None
        self.best: Tensor | None = None
        can_capture = config.graphs and run.device.type == "cuda" and getattr(network, "is_capturable", False)
        network.train()
        self.stepper: EagerStepper | CudaGraphStepper
        if can_capture and isinstance(run.source, StreamBatches):
            self.stepper = CudaGraphStepper(self.step, run.source)
        else:
            self.stepper = EagerStepper(self.step, run.source)
        self.metrics = TrainingMetrics(config, run)
        self.saved_at = time.perf_counter()
        self.has_checkpoint = False  # whether this run wrote or resumed one

    def fit(self) -> bytes:
        """Train until the epochs or the time limit end; load the selected weights and return the log."""
        self._resume()
        run_dir = self.run.run_dir
        log_path = None if run_dir is None else run_dir / LOG
        is_deferred = not self.run.resume and run_dir is not None and holds_model_or_run(run_dir)
        with (
            GracefulStop() as self.stop,
            TrainLog(log_path, self.run.tensorboard, is_deferred=is_deferred) as self.log,
        ):
            self.log.truncate(self.position.log_size)
            while self._is_unfinished():
                self._epoch()
            if self.position.step_in_epoch:  # the time limit ended the epoch early
                self._check_finite_and_log(is_due=bool(self.step.statistics[STEPS] > 0))
                self._report_diagnostics()
            self._validate(is_last=True)
            if self.stop.signal is not None:
                self._stop_on_signal()
            self.log.write(event="end", step=self.position.step, epoch=self.position.epoch, best=self.position.best)
            self._load_final_weights()
            return self.log.content()

    def summary(self) -> dict[str, Any]:
        """Metrics of the run, including the parts before a resumption."""
        position = self.position
        is_complete = position.epoch >= self.config.epochs
        epochs = position.epoch if is_complete else round(self._epochs_done(), 3)
        if is_complete:
            reason = "all epochs done"
        elif self._is_stopped_early():
            reason = ending.no_improvement(position.waited)
        else:
            reason = "time limit reached"  # the limit may be computed, so it is not shown
        figures = {
            "train_seconds": round(self.metrics.seconds(), 3),
            "train_epochs": epochs,
            "train_steps": position.step,
            "train_stopped": reason,
            **self._outcome(epochs, is_complete=is_complete).figures(),
        }
        if position.tokens is not None:
            figures["train_tokens_processed"] = position.tokens
        if self.config.keep == "best" and self.best is not None:
            figures["best_epoch"] = position.best_epoch
        return figures

    def _outcome(self, epochs: float, *, is_complete: bool) -> ending.RunOutcome:
        """Outcome of the run, judged by its validations."""
        position = self.position
        waited = position.waited if self._is_stopped_early() and not is_complete else 0
        return ending.judge_convergence(
            epochs, self.config.epochs, position.history, position.history_epochs, waited
        )

    def _epochs_done(self) -> float:
        return self.position.epoch + self.position.step_in_epoch / max(1, self.steps)

    def _is_stopped_early(self) -> bool:
        return 0 < self.config.stop_after <= self.position.waited

    def _is_unfinished(self) -> bool:
        """Whether to continue: epochs and time are left, or a fully read epoch is not yet concluded."""
        is_read = 0 < self.steps <= self.position.step_in_epoch
        is_time_left = self._fraction() < 1 and not self._is_stopped_early()
        return self.position.epoch < self.config.epochs and (is_read or is_time_left)

    def _epoch(self) -> None:
        position = self.position
        self.steps = self.run.source.steps(position.epoch)
        for _ in self._updates():
            position.step += 1
            position.step_in_epoch += 1
            self._update_average()
            fraction = self._fraction()
            if position.step % self.config.log_every == 0 or self.run.device.type == "cpu":
                self._check_finite_and_log(is_due=position.step % self.config.log_every == 0)
            if self._is_validation_due(fraction):
                self._validate()
            if self.stop.signal is not None:
                self._stop_on_signal()
            if (
                self.run.run_dir is not None
                and time.perf_counter() - self.saved_at > self.config.checkpoint_seconds
            ):
                self._check_finite_and_log()
                self._save()
            if fraction >= 1 or self._is_stopped_early():
                break
            self._set_rate(fraction)
        if position.step_in_epoch >= self.steps:
            self._end_epoch()

    def _is_validation_due(self, fraction: float) -> bool:
        """Whether the next evenly spaced validation is due; the last one happens after the run."""
        part = int(fraction * self.config.validations)
        if fraction >= 1 or part <= self.position.validated_part:
            return False
        self.position.validated_part = part
        return True

    def _updates(self) -> Iterator[None]:
        """One update per `next`; the update ratio is measured before each log line."""
        before = self._weights_to_compare()
        for _ in self.stepper.epoch(self.position.epoch, self.position.step_in_epoch):
            if before is not None:
                self.step.gradient_stats.record_update(before)
            yield
            before = self._weights_to_compare()

    def _weights_to_compare(self) -> Tensor | None:
        """Copy of the weights if the next step is the last before a log line."""
        position = self.position
        is_last = position.step_in_epoch + 1 == self.steps or (position.step + 1) % self.config.log_every == 0
        return self.step.flat.weights.clone() if is_last else None

    def _end_epoch(self) -> None:
        """End an epoch: log, validate and run diagnostics."""
        position = self.position
        self._check_finite_and_log(is_due=position.step % self.config.log_every != 0)  # else already logged
        position.epoch, position.step_in_epoch = position.epoch + 1, 0
        is_due = not self.config.validations and position.epoch % self.config.validate_every == 0
        if is_due and position.epoch < self.config.epochs:
            self._validate()
            self._set_rate(self._fraction())  # the plateau schedule may have reduced it
        self._report_diagnostics()

    def _stop_on_signal(self) -> None:
        """Save a checkpoint and exit after a signal."""
        self._check_finite_and_log()
        self._save()
        self.stop.exit_if_signalled()

    def _fraction(self) -> float:
        """Completed share of the run: by epochs, or by time if that runs out first."""
        position, config = self.position, self.config
        by_epochs = self._epochs_done() / config.epochs
        position.seconds = self.metrics.seconds()
        if config.max_seconds is None:
            return by_epochs
        by_clock = position.seconds / config.max_seconds
        is_too_slow = by_clock > max(by_epochs, SETTLED) or by_clock >= 1
        return by_clock if is_too_slow else by_epochs

    def _set_rate(self, fraction: float) -> None:
        rate = schedules.learning_rate(self.config, self.position.step, fraction)
        if self.config.schedule == "plateau":
            rate *= self.plateau.factor
        optimizers.set_rate(self.step.optimizer, rate)
        self.rate = rate

    def _update_average(self) -> None:
        if self.config.averaging == "none" or self._fraction() < self.config.average_from:
            return
        self.position.averaged += 1
        if self.average is None:
            self.average = self.step.flat.weights.clone()
            return
        kind, decay = self.config.averaging, self.config.average_decay
        averaging.update_(self.average, self.step.flat.weights, kind, decay, self.position.averaged)

    def _check_finite_and_log(self, is_due: bool = False) -> None:
        """Raise if the step statistics are not finite; write a log line if due."""
        if not torch.isfinite(self.step.statistics).all():
            raise self._diverged()
        if is_due:
            parts = self.step.gradient_stats.flush()
            self.metrics.log_step(self.step.statistics, self.position, self.rate, self._fraction(), self.log, parts)

    def _diverged(self) -> advice.Diverged:
        flat = self.step.flat
        cause = advice.first_nonfinite(flat.named_slices(flat.gradient)) or advice.first_nonfinite(
            flat.named_slices(flat.weights)
        )
        if cause is None:
            size, name = max((float(piece.abs().max()), name) for name, piece in flat.named_slices(flat.weights))
            cause = f"the loss is not finite, and {name} has weights of up to {size:.2g}"
        path = None if self.run.run_dir is None else self.run.run_dir / checkpoint.NAME
        checkpoint_path = path if self.has_checkpoint else None
        return advice.Diverged.at(self.position.step, cause, checkpoint_path, self.config.precision == "fp16")

    def _validate(self, is_last: bool = False) -> None:
        """Validate with the averaged weights, if any, and remember the best."""
        if self.run.validate is None or (is_last and self.position.step == self.position.validated_at):
            return
        self.position.validated_at = self.position.step
        weights = self.step.flat.weights
        training_weights = weights.clone()
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
        weights.copy_(training_weights)
        self.metrics.log_validation(nats, self.position, self.log)

    def _load_final_weights(self) -> None:
        """Load the selected weights into the network."""
        weights = self.step.flat.weights
        if self.config.keep == "best" and self.best is not None:
            weights.copy_(self.best)
        elif self.average is not None:
            weights.copy_(self.average)
        for parameter in self.network.parameters():
            parameter.grad = None
            parameter.data = parameter.data.clone()
        self.network.eval()

    def _report_diagnostics(self) -> None:
        for message in self.metrics.diagnose(self.network, self.stepper.state, self.position):
            self.log.write(event="advice", step=self.position.step, words=message)

    def _save(self) -> None:
        self.saved_at = time.perf_counter()
        if self.run.run_dir is None:
            return
        if not torch.isfinite(self.step.flat.weights).all():
            raise self._diverged()
        checkpoint.save(self.run.run_dir, resuming.capture_state(self))
        self.has_checkpoint = True
        self.log.store()  # replaces the log of an earlier run

    def _resume(self) -> None:
        """Resume from the checkpoint if requested and present."""
        saved = checkpoint.load(self.run.run_dir) if self.run.resume and self.run.run_dir is not None else None
        if saved is not None:
            checkpoint.check_identity(saved.identity, self.run.identity)
            resuming.restore_state(self, saved)
            self.has_checkpoint = True
        self.steps = self.run.source.steps(self.position.epoch)
        self.metrics.start_clock(self.position)
        self._set_rate(self._fraction())
