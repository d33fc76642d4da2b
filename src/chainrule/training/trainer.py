"""Training loop: epochs, learning-rate schedule, validation, checkpoints, early stopping and diagnostics."""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ChainruleWarning, ModelFileError
from chainrule.progress import Progress, silent
from chainrule.storage import tensors
from chainrule.storage.tensors import TensorSpec, spec_of
from chainrule.training import checkpoint, diagnostics, optimizers, schedules
from chainrule.training.batches import BatchSource, StreamBatches
from chainrule.training.checkpoint import LOG, NAME, REMEDY, Checkpoint, holds_model_or_run
from chainrule.training.config import Averaging, Training
from chainrule.training.flat_parameters import ParameterFields
from chainrule.training.log import TrainLog
from chainrule.training.signals import GracefulStop
from chainrule.training.step import (
    CLIPPED,
    LARGEST_NORM,
    NATS,
    NORM,
    STEPS,
    TOKENS,
    CudaGraphStepper,
    EagerStepper,
    Objective,
    Tensors,
    TrainingStep,
)

PARTS = 10_000  # resolution of the progress bar
BOUND = 0.99  # |h| above it counts as saturated
FIRST_STEPS = 200  # steps in which a high loss is normal
NO_PARTS: ParameterFields = {}


class TrainingMetrics:
    """Turns accumulated step statistics into log lines, progress and diagnostics."""

    def __init__(self, config: Training, run: "Run") -> None:
        self.config, self.run = config, run
        self.started = time.perf_counter()
        self.before = 0.0  # seconds before the resumption
        self.read_at = self.started
        self.loss = float("nan")

    def start_clock(self, position: "Position") -> None:
        """Start the clock, continuing from a resumed position."""
        self.started = self.read_at = time.perf_counter()
        self.before = position.seconds

    def seconds(self) -> float:
        """Training time, including that before a resumption."""
        return self.before + time.perf_counter() - self.started

    def log_step(
        self,
        seen: Any,
        position: "Position",
        rate: float,
        fraction: float,
        log: TrainLog,
        parts: ParameterFields = NO_PARTS,
    ) -> None:
        """Write one log line from the statistics and reset them; `parts` are per-parameter fields."""
        sums = seen.tolist()
        now = time.perf_counter()
        steps, tokens = max(1.0, sums[STEPS]), max(1.0, sums[TOKENS])
        speed = tokens / max(1e-9, now - self.read_at)
        self.read_at = now
        self.loss = sums[NATS] / tokens
        position.sums = [a + sums[i] for a, i in zip(position.sums, (NATS, TOKENS, CLIPPED, STEPS), strict=True)]
        if position.tokens is not None:
            position.tokens += round(sums[TOKENS])
        position.norms.append(sums[NORM] / steps)
        position.largest_norm = max(position.largest_norm, sums[LARGEST_NORM])
        log.write(
            step=position.step,
            epoch=position.epoch,
            loss=self.loss,
            learning_rate=rate,
            gradient_norm=sums[NORM] / steps,
            largest_gradient_norm=sums[LARGEST_NORM],
            clipped=sums[CLIPPED] / steps,
            **parts,
            tokens_per_second=speed,
            seconds=self.seconds(),
        )
        seen.zero_()
        self.show_progress(position, fraction, speed)

    def show_progress(self, position: "Position", fraction: float, speed: float) -> None:
        """Update the progress bar."""
        if self.run.measure == "nats":
            best = "" if position.best is None else f", validation {math.exp(min(position.best, 700)):.4g}"
            now = f"perplexity {math.exp(min(self.loss, 700)):.4g}{best}"
        else:
            best = "" if position.best is None else f", validation error {position.best:.2%}"
            now = f"loss {self.loss:.3g}{best}"
        what = (
            f"training: epoch {position.epoch + 1} of {self.config.epochs}, {now}, {speed:,.0f} {self.run.unit}/s"
        )
        self.run.progress(what, int(PARTS * min(1.0, fraction)), PARTS)

    def log_validation(self, loss: float, position: "Position", log: TrainLog) -> None:
        """Write a validation log line."""
        is_nats = self.run.measure == "nats"
        figures = {"nats": loss, "perplexity": math.exp(min(loss, 700))} if is_nats else {"error": loss}
        log.write(
            event="validation",
            step=position.step,
            epoch=position.epoch,
            **figures,
            best=position.best,
            seconds=self.seconds(),
        )
        self.read_at = time.perf_counter()

    def diagnose(self, network: Any, state: Tensors | None, position: "Position") -> Iterator[str]:
        """Yield diagnostics at the end of an epoch; each is also issued as a warning."""
        nats, tokens, clipped, steps = position.sums
        norms = (*position.norms, position.largest_norm) if position.norms else ()
        position.sums, position.norms, position.largest_norm = [0.0] * 4, [], 0.0
        if tokens:
            position.train_history.append(nats / tokens)
        is_time = position.step >= FIRST_STEPS or position.epoch >= self.config.epochs
        facts = diagnostics.RunStatistics(
            epochs_done=position.epoch,
            loss=nats / tokens if tokens and is_time else None,
            unigram_loss=self.run.unigram_nats,
            clipped_share=clipped / steps if steps else 0.0,
            gradient_norms=norms,
            saturated_share=_saturated(network, state),
            train_history=tuple(position.train_history),
            valid_history=tuple(position.history) if self.run.measure == "nats" else (),
            valid_epochs=tuple(position.history_epochs) if self.run.measure == "nats" else (),
            learning_rate=self.config.learning_rate,
        )
        for name, message in diagnostics.diagnose(facts).items():
            if name not in position.words:  # report each only once
                position.words.append(name)
                warnings.warn(message, ChainruleWarning, stacklevel=2)
                yield message


def _saturated(network: Any, state: Tensors | None) -> float | None:
    """Share of saturated values in the state; None if the state is unbounded."""
    bounded = getattr(network, "saturating_states", None)
    values = bounded(state) if bounded is not None and state is not None else ()
    if not values:
        return None
    return float((torch.cat([v.flatten() for v in values]).abs() > BOUND).float().mean())


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


def update_(average: Tensor, weights: Tensor, kind: Averaging, decay: float, n: int) -> None:
    """Add `weights` (N,) as the n-th sample, n = 1, 2, …, to `average` (N,) in place; the first is copied.

    `decay` is the retained share of an exponential moving average.
    """
    if kind != "none":
        average.lerp_(weights.detach(), _share(kind, decay, n))  # a ← a + share·(w − a)


def _share(kind: Averaging, decay: float, n: int) -> float:
    """Weight of the new sample: 1/n for the mean; 1 at first, then 1 − decay for ema."""
    return 1 / n if kind == "mean" or n == 1 else 1 - decay


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
            reason = diagnostics.no_improvement(position.waited)
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

    def _outcome(self, epochs: float, *, is_complete: bool) -> diagnostics.RunOutcome:
        """Outcome of the run, judged by its validations."""
        position = self.position
        waited = position.waited if self._is_stopped_early() and not is_complete else 0
        return diagnostics.judge_convergence(
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
        update_(self.average, self.step.flat.weights, kind, decay, self.position.averaged)

    def _check_finite_and_log(self, is_due: bool = False) -> None:
        """Raise if the step statistics are not finite; write a log line if due."""
        if not torch.isfinite(self.step.statistics).all():
            raise self._diverged()
        if is_due:
            parts = self.step.gradient_stats.flush()
            self.metrics.log_step(self.step.statistics, self.position, self.rate, self._fraction(), self.log, parts)

    def _diverged(self) -> diagnostics.Diverged:
        flat = self.step.flat
        cause = diagnostics.first_nonfinite(flat.named_slices(flat.gradient)) or diagnostics.first_nonfinite(
            flat.named_slices(flat.weights)
        )
        if cause is None:
            size, name = max((float(piece.abs().max()), name) for name, piece in flat.named_slices(flat.weights))
            cause = f"the loss is not finite, and {name} has weights of up to {size:.2g}"
        path = None if self.run.run_dir is None else self.run.run_dir / checkpoint.NAME
        checkpoint_path = path if self.has_checkpoint else None
        return diagnostics.Diverged.at(self.position.step, cause, checkpoint_path, self.config.precision == "fp16")

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
        checkpoint.save(self.run.run_dir, capture_state(self))
        self.has_checkpoint = True
        self.log.store()  # replaces the log of an earlier run

    def _resume(self) -> None:
        """Resume from the checkpoint if requested and present."""
        saved = checkpoint.load(self.run.run_dir) if self.run.resume and self.run.run_dir is not None else None
        if saved is not None:
            checkpoint.check_identity(saved.identity, self.run.identity)
            restore_state(self, saved)
            self.has_checkpoint = True
        self.steps = self.run.source.steps(self.position.epoch)
        self.metrics.start_clock(self.position)
        self._set_rate(self._fraction())
