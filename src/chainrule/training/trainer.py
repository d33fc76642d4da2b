"""Training loop: epochs, learning-rate schedule, validation, weight averaging, checkpoints, diagnostics, logs."""

import dataclasses
import math
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, ModelFileError
from chainrule.progress import Progress
from chainrule.storage import tensors
from chainrule.storage.tensors import TensorSpec, spec_of
from chainrule.training import checkpoint, diagnostics, optimizers, ranks
from chainrule.training.batches import BatchSource, ExampleBatches, MappedStream, StreamBatches
from chainrule.training.checkpoint import (
    LOG,
    NAME,
    REMEDY,
    Checkpoint,
    CheckpointWriter,
    holds_model_or_run,
)
from chainrule.training.config import Averaging, TrainingConfig
from chainrule.training.log import TrainLog
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
    ParameterFields,
    TrainingStep,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GracefulStop:
    """Context manager that records the first SIGINT or SIGTERM; a second SIGINT interrupts immediately.

    Ignored signals stay ignored. Has no effect outside the main thread, where Python does not deliver signals.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # first signal received
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):  # None: installed outside Python, cannot be restored
                    self._before[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def exit_if_signalled(self) -> None:
        """Exit as the recorded signal would have; does nothing if there was none."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt


PROGRESS_STEPS = 10_000  # resolution of the progress bar
SATURATED = 0.99  # |h| above it counts as saturated
FIRST_STEPS = 200  # steps in which a high loss is normal
SETTLED = 0.05  # share of the time limit before which the speed estimate is unreliable

Validate = Callable[[], float]
"""Return the validation loss in nats per token, or an error rate; lower is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Batches, objective and validation of a training run."""

    source: BatchSource
    objective: Objective
    validate: Validate | None
    measure: Literal["nats", "error"] = "nats"  # unit of `validate`: nats per token, or an error rate
    unit: str = "tokens"  # name of a target unit, for the displayed speed
    unigram_nats: float = float("inf")  # loss of the unigram distribution


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

    def add(self, sums: list[float]) -> None:
        """Add the step statistics of one log line."""
        self.sums = [a + sums[i] for a, i in zip(self.sums, (NATS, TOKENS, CLIPPED, STEPS), strict=True)]
        if self.tokens is not None:
            self.tokens += round(sums[TOKENS])
        self.norms.append(sums[NORM] / max(1.0, sums[STEPS]))
        self.largest_norm = max(self.largest_norm, sums[LARGEST_NORM])


class Trainer:
    """Trains one network; call `fit`."""

    def __init__(self, network: nn.Module, config: TrainingConfig, plan: TrainingPlan, options: RunOptions) -> None:
        self.network, self.config, self.plan, self.options = network, config, plan, options
        self.device: torch.device = next(network.parameters()).device
        self.ranks = ranks.current()
        self.has_validation: bool = self.ranks.from_first(lambda: plan.validate is not None)
        config.check_validation(self.has_validation)
        if config.accumulate > 1 and isinstance(plan.source, ExampleBatches):
            raise ConfigError(
                "training.accumulate is for language models; leave it at 1, or choose a smaller batch_size"
            )
        self.position = Position()
        self.rate = 0.0
        self.plateau = optimizers.Plateau.start(config)
        self.step = TrainingStep(network, plan.objective, config, self.device, self.ranks)
        self.ranks.copy_from_first([self.step.flat.weights, *network.buffers()])
        self.average: Tensor | None = None
        self.best: Tensor | None = None
        can_capture = config.graphs and self.device.type == "cuda" and getattr(network, "is_capturable", False)
        network.train()
        self.stepper: EagerStepper | CudaGraphStepper
        if can_capture and isinstance(plan.source, StreamBatches | MappedStream):
            self.stepper = CudaGraphStepper(self.step, plan.source)
        else:
            self.stepper = EagerStepper(self.step, plan.source)
        self.metrics = TrainingMetrics(config, plan, options.progress)
        self.writer: CheckpointWriter | None = None
        if options.out is not None and self.ranks.is_first:
            self.writer = CheckpointWriter(options.out, config.checkpoint_seconds)
        self.has_checkpoint = False  # whether this run wrote or resumed one
        self._agreed_signal: int | None = None
        self._is_due = 0.0  # whether the ranks agreed to save a checkpoint

    def fit(self) -> bytes:
        """Train until the epochs or the time limit end; load the selected weights and return the log."""
        self._resume()
        out = self.options.out if self.ranks.is_first else None
        log_path = None if out is None else out / LOG
        is_deferred = not self.options.resume and out is not None and holds_model_or_run(out)
        with (
            GracefulStop() as self.stop,
            self._finishing_checkpoint(),
            TrainLog(log_path, self.options.tensorboard_dir, is_deferred=is_deferred) as self.log,
        ):
            self.log.truncate(self.position.log_size)
            while self._is_unfinished():
                self._epoch()
            if self.position.step_in_epoch:  # the time limit ended the epoch early
                self._check_finite_and_log(is_due=bool(self.step.statistics[STEPS] > 0))
                self._report_diagnostics()
            self._validate(is_last=True)
            self._agree()
            if self._signal is not None:
                self._stop_on_signal()
            self.log.write(event="end", step=self.position.step, epoch=self.position.epoch, best=self.position.best)
            self._load_final_weights()
            return self.log.content()

    @contextmanager
    def _finishing_checkpoint(self) -> Iterator[None]:
        """Wait for the checkpoint that is being written when the block ends, also by an error."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is reported
                self._finish_checkpoint()
            raise
        self._finish_checkpoint()

    def _finish_checkpoint(self) -> None:
        if self.writer is not None:
            self.writer.finish()

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
        self.steps = self.plan.source.steps(position.epoch)
        for _ in self._updates():
            position.step += 1
            position.step_in_epoch += 1
            is_log_line = position.step % self.config.log_every == 0
            if is_log_line or self.device.type == "cpu":
                self._agree()
            self._update_average()
            fraction = self._fraction()
            if is_log_line or self.device.type == "cpu":
                self._check_finite_and_log(is_due=is_log_line)
            if self._is_validation_due(fraction):
                self._validate()
            if self._signal is not None:
                self._stop_on_signal()
            if self._is_checkpoint_due():
                self._check_finite_and_log()
                self._save_checkpoint()
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

    def _agree(self) -> None:
        """Agree with the other ranks on the time, a signal and a checkpoint; the clock is that of rank 0."""
        if not self.ranks.is_distributed:
            return
        number = self.stop.signal or (signal.SIGTERM if ranks.is_launcher_gone() else 0)
        seconds = self.metrics.seconds() if self.ranks.is_first else 0.0
        is_due = self.ranks.is_first and self._is_writer_ready()
        self.position.seconds, agreed, self._is_due = self.ranks.largest([seconds, number, is_due])
        self._agreed_signal = int(agreed) or None

    @property
    def _signal(self) -> int | None:
        """The signal on which to stop; several ranks stop on one that they agreed on."""
        return self._agreed_signal if self.ranks.is_distributed else self.stop.signal

    def _is_checkpoint_due(self) -> bool:
        """Whether to save a checkpoint; several ranks do it at the same step."""
        is_due, self._is_due = self._is_due, 0.0
        return bool(is_due) if self.ranks.is_distributed else self._is_writer_ready()

    def _is_writer_ready(self) -> bool:
        """Whether the run has a folder and it is time for the next checkpoint."""
        if self.writer is None:
            return False
        self.writer.check()
        return self.writer.is_due

    def _updates(self) -> Iterator[None]:
        """Yield after every update of the epoch; the update ratio is measured before each log line."""
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
        self._save_checkpoint(wait=True)
        self.stop.signal = self._signal
        self.stop.exit_if_signalled()

    def _fraction(self) -> float:
        """Completed share of the run: by epochs, or by time if that runs out first."""
        position, config = self.position, self.config
        by_epochs = self._epochs_done() / config.epochs
        if not self.ranks.is_distributed:
            position.seconds = self.metrics.seconds()
        if config.max_seconds is None:
            return by_epochs
        by_clock = position.seconds / config.max_seconds
        is_too_slow = by_clock > max(by_epochs, SETTLED) or by_clock >= 1
        return by_clock if is_too_slow else by_epochs

    def _set_rate(self, fraction: float) -> None:
        rate = optimizers.learning_rate(self.config, self.position.step, fraction)
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
        update_average(self.average, self.step.flat.weights, kind, decay, self.position.averaged)

    def _check_finite_and_log(self, is_due: bool = False) -> None:
        """Raise if the step statistics are not finite; write a log line if due."""
        statistics = self.step.statistics
        if not torch.isfinite(statistics).all():
            raise self._diverged()
        if is_due:
            parameter_fields, fraction = self.step.gradient_stats.flush(), self._fraction()
            sums = statistics.tolist()
            statistics.zero_()
            self.position.add(sums)
            self.metrics.log_step(sums, self.position, self.rate, fraction, self.log, parameter_fields)

    def _diverged(self) -> diagnostics.Diverged:
        flat = self.step.flat
        cause = diagnostics.first_nonfinite(flat.named_slices(flat.gradient)) or diagnostics.first_nonfinite(
            flat.named_slices(flat.weights)
        )
        if cause is None:
            size, name = max((float(piece.abs().max()), name) for name, piece in flat.named_slices(flat.weights))
            cause = f"the loss is not finite, and {name} has weights of up to {size:.2g}"
        with suppress(Exception):  # of a checkpoint that is being written
            self._finish_checkpoint()
        path = self._checkpoint_path if self.has_checkpoint else None
        path = path if path is not None and path.exists() else None
        return diagnostics.Diverged.at(self.position.step, cause, path, self.config.precision == "fp16")

    def _validate(self, is_last: bool = False) -> None:
        """Validate with the averaged weights, if any, and remember the best."""
        if not self.has_validation or (is_last and self.position.step == self.position.validated_at):
            return
        self.position.validated_at = self.position.step
        weights = self.step.flat.weights
        training_weights = weights.clone()
        if self.average is not None:
            weights.copy_(self.average)
        self.network.eval()
        nats = self.ranks.from_first(self._validation_loss)
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

    def _validation_loss(self) -> float:
        assert self.plan.validate is not None
        return self.plan.validate()

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
        """Issue the diagnostics of the epoch as warnings and log lines, each only once in a run."""
        for name, message in diagnostics.diagnose(self._epoch_statistics()).items():
            if name not in self.position.words:
                self.position.words.append(name)
                if not self.ranks.is_first:
                    continue
                warnings.warn(message, ChainruleWarning, stacklevel=2)
                self.log.write(event="advice", step=self.position.step, words=message)

    def _epoch_statistics(self) -> diagnostics.RunStatistics:
        """Collect the statistics of the epoch and start those of the next."""
        position = self.position
        nats, tokens, clipped, steps = position.sums
        norms = (*position.norms, position.largest_norm) if position.norms else ()
        position.sums, position.norms, position.largest_norm = [0.0] * 4, [], 0.0
        if tokens:
            position.train_history.append(nats / tokens)
        is_loss_settled = position.step >= FIRST_STEPS or position.epoch >= self.config.epochs
        is_nats = self.plan.measure == "nats"
        return diagnostics.RunStatistics(
            epochs_done=position.epoch,
            loss=nats / tokens if tokens and is_loss_settled else None,
            unigram_loss=self.plan.unigram_nats,
            clipped_share=clipped / steps if steps else 0.0,
            gradient_norms=norms,
            saturated_share=self._saturated_share(),
            train_history=tuple(position.train_history),
            valid_history=tuple(position.history) if is_nats else (),
            valid_epochs=tuple(position.history_epochs) if is_nats else (),
            learning_rate=self.config.learning_rate,
        )

    def _saturated_share(self) -> float | None:
        """Share of saturated values in the carried state; None if the state is unbounded."""
        bounded, state = getattr(self.network, "saturating_states", None), self.stepper.state
        values = bounded(state) if bounded is not None and state is not None else ()
        if not values:
            return None
        return float((torch.cat([v.flatten() for v in values]).abs() > SATURATED).float().mean())

    @property
    def _checkpoint_path(self) -> Path | None:
        return None if self.options.out is None else self.options.out / NAME

    def _save_checkpoint(self, *, wait: bool = False) -> None:
        """Save a checkpoint, in the background unless the run ends or replaces the log of an earlier run."""
        if self.options.out is None:
            return
        if not torch.isfinite(self.step.flat.weights).all():
            raise self._diverged()
        state = self.state_dict()
        if self.writer is not None:
            self.writer.save(state, wait=wait or self.log.is_deferred)
            self.has_checkpoint = True
            self.log.store()  # replaces the log of an earlier run
        if wait:
            self.ranks.wait()  # the others must not end before rank 0 has written

    def _resume(self) -> None:
        """Resume from the checkpoint if requested and present."""
        saved = self._load_checkpoint() if self.ranks.is_first else None
        self.ranks.wait()
        saved = saved if self.ranks.is_first else self._load_checkpoint()
        if saved is not None:
            self.load_state_dict(saved)
            self.has_checkpoint = True
        self.steps = self.plan.source.steps(self.position.epoch)
        self.metrics.start_clock(self.position.seconds)
        self._set_rate(self._fraction())

    def _load_checkpoint(self) -> Checkpoint | None:
        out = self.options.out
        saved = checkpoint.load(out) if self.options.resume and out is not None else None
        if saved is not None:
            checkpoint.check_identity(saved.identity, self.options.identity)
        return saved

    def state_dict(self) -> Checkpoint:
        """Everything the rest of the run depends on; of several ranks, all must call it."""
        state = {"rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            generators = self.ranks.gather(torch.cuda.get_rng_state(self.device))
            state |= {_cuda_generator(rank): generator for rank, generator in enumerate(generators)}
        state |= {f"carried.{i}": tensor for i, tensor in enumerate(self._carried_state())}
        state |= {k: v for k, v in (("best", self.best), ("average", self.average)) if v is not None}
        state["seen"], state["blame"] = self.step.statistics, self.step.gradient_stats.sums
        self.position.plateau = self.plateau.to_json()
        self.position.log_size = self.log.size
        position = dataclasses.asdict(self.position)
        if self.position.tokens is None:
            del position["tokens"]  # as in the older checkpoint that this run was resumed from
        return Checkpoint(
            weights={name: tensor.detach() for name, tensor in self._named_tensors().items()},
            optimizer=optimizers.state_tensors(self.step.optimizer),
            state=state,
            position=position,
            identity=dict(self.options.identity),
        )

    def _carried_state(self) -> tuple[Tensor, ...]:
        """State carried to the next batch, with the rows of all ranks."""
        state, part = self.stepper.state or (), self.stepper.part
        if part is None:
            return state
        rows = part.rows if part.row_share else part.rows[:0]
        return tuple(self.ranks.gather_rows(tensor, rows, part.total_rows) for tensor in state)

    def load_state_dict(self, saved: Checkpoint) -> None:
        """Restore the state from a checkpoint; raise ModelFileError if it does not fit."""
        self._check_state(saved)
        with torch.no_grad():
            for name, tensor in self._named_tensors().items():
                tensor.copy_(saved.weights[name])
        optimizers.restore(self.step.optimizer, saved.optimizer)
        state = {name: tensor.to(self.device) for name, tensor in saved.state.items() if "rng" not in name}
        self.step.statistics.copy_(state["seen"])
        if "blame" in state:  # missing in older checkpoints
            self.step.gradient_stats.sums.copy_(state["blame"])
        self.best, self.average = state.get("best"), state.get("average")
        carried = saved.carried()
        if carried:
            self.stepper.restore(tuple(tensor.to(self.device) for tensor in carried))
        self.position = Position(**{"tokens": None} | saved.position)  # tokens: unknown in older checkpoints
        self.plateau = optimizers.Plateau.from_json(self.config, saved.position["plateau"])
        torch.set_rng_state(saved.state["rng.cpu"])
        name = _cuda_generator(self.ranks.rank)
        if self.device.type == "cuda" and name in saved.state:
            torch.cuda.set_rng_state(saved.state[name], self.device)

    def _named_tensors(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters()) | dict(self.network.named_buffers())

    def _check_state(self, saved: Checkpoint) -> None:
        """Raise ModelFileError if a tensor or scalar of the checkpoint does not fit this run.

        Older versions wrote fewer scalars and no "blame"; the carried states depend on the source.
        """
        source = str(self._checkpoint_path or NAME)
        flat = spec_of(self.step.flat.weights)
        state = {"rng.cpu": spec_of(torch.get_rng_state()), "seen": spec_of(self.step.statistics)}
        carried = saved.carried()
        optional = {
            **{name: TensorSpec("uint8", (None,)) for name in saved.state if CUDA_GENERATOR.fullmatch(name)},
            "blame": spec_of(self.step.gradient_stats.sums),
            "best": flat,
            "average": flat,
            **{f"carried.{i}": spec_of(tensor) for i, tensor in enumerate(carried)},
        }
        tensors.check(saved.weights, {name: spec_of(t) for name, t in self._named_tensors().items()}, source)
        tensors.check_specs(saved.state, state, source, optional)
        for name, tensor in saved.state.items():
            if name in ("best", "average") or name.startswith("carried."):
                tensors.check_finite(np.asarray(tensor), f"{source}: {name}")
        self._check_carried(carried, source)
        optimizer = {name: spec_of(t) for name, t in optimizers.state_tensors(self.step.optimizer).items()}
        if optimizer.keys() == saved.optimizer.keys():  # else optimizers.restore raises
            tensors.check(saved.optimizer, optimizer, source)
        checkpoint.check_scalars(saved.position, dataclasses.asdict(Position()), source)
        checkpoint.check_scalars(saved.position["plateau"], self.plateau.to_json(), source)

    def _check_carried(self, carried: list[Tensor], source: str) -> None:
        """Raise ModelFileError if carried states do not have the network's shapes; dimension 1 may be time."""
        rows = len(carried[0]) if carried and carried[0].ndim else 0

        def outline(tensor: Tensor) -> tuple[Any, ...]:
            return tensor.dtype, tensor.ndim, tensor.shape[:1], tensor.shape[2:]

        expected = self.network.start(rows) if rows else ()
        if list(map(outline, carried)) != list(map(outline, expected)):
            raise ModelFileError(f"{source} contains states that are not this network's; {REMEDY}")


CUDA_GENERATOR = re.compile(r"rng\.cuda(\.[1-9][0-9]{0,5})?")


def _cuda_generator(rank: int) -> str:
    """Name of the state of a rank's random generator on the GPU in a checkpoint."""
    return f"rng.cuda.{rank}" if rank else "rng.cuda"


class TrainingMetrics:
    """Measures the time of a run and writes its log lines and progress."""

    def __init__(self, config: TrainingConfig, plan: TrainingPlan, progress: Progress) -> None:
        self.config, self.plan, self.progress = config, plan, progress
        self.loss = float("nan")
        self.start_clock(0.0)

    def start_clock(self, seconds_before: float) -> None:
        """Start the clock; `seconds_before` is the training time before a resumption."""
        self.started = self.logged_at = time.perf_counter()
        self.seconds_before = seconds_before

    def seconds(self) -> float:
        """Training time, including that before a resumption."""
        return self.seconds_before + time.perf_counter() - self.started

    def log_step(
        self,
        sums: list[float],
        position: Position,
        rate: float,
        fraction: float,
        log: TrainLog,
        parameter_fields: ParameterFields,
    ) -> None:
        """Write one log line from the accumulated step statistics, and show the progress."""
        now = time.perf_counter()
        steps, tokens = max(1.0, sums[STEPS]), max(1.0, sums[TOKENS])
        speed = tokens / max(1e-9, now - self.logged_at)
        self.logged_at = now
        self.loss = sums[NATS] / tokens
        log.write(
            step=position.step,
            epoch=position.epoch,
            loss=self.loss,
            learning_rate=rate,
            gradient_norm=sums[NORM] / steps,
            largest_gradient_norm=sums[LARGEST_NORM],
            clipped=sums[CLIPPED] / steps,
            **parameter_fields,
            tokens_per_second=speed,
            seconds=self.seconds(),
        )
        self.show_progress(position, fraction, speed)

    def show_progress(self, position: Position, fraction: float, speed: float) -> None:
        """Update the progress bar."""
        if self.plan.measure == "nats":
            best = "" if position.best is None else f", validation {math.exp(min(position.best, 700)):.4g}"
            now = f"perplexity {math.exp(min(self.loss, 700)):.4g}{best}"
        else:
            best = "" if position.best is None else f", validation error {position.best:.2%}"
            now = f"loss {self.loss:.3g}{best}"
        epoch = f"epoch {position.epoch + 1} of {self.config.epochs}"
        message = f"training: {epoch}, {now}, {speed:,.0f} {self.plan.unit}/s"
        self.progress(message, int(PROGRESS_STEPS * min(1.0, fraction)), PROGRESS_STEPS)

    def log_validation(self, loss: float, position: Position, log: TrainLog) -> None:
        """Write a validation log line."""
        is_nats = self.plan.measure == "nats"
        figures = {"nats": loss, "perplexity": math.exp(min(loss, 700))} if is_nats else {"error": loss}
        log.write(
            event="validation",
            step=position.step,
            epoch=position.epoch,
            **figures,
            best=position.best,
            seconds=self.seconds(),
        )
        self.logged_at = time.perf_counter()


def update_average(average: Tensor, weights: Tensor, kind: Averaging, decay: float, n: int) -> None:
    """Add `weights` (N,) as the n-th sample, n = 1, 2, …, to `average` (N,) in place.

    The new sample has weight 1/n in the mean, and 1 - `decay` in an exponential moving average, which starts at the
    first sample.
    """
    share = 1 / n if kind == "mean" or n == 1 else 1 - decay
    average.lerp_(weights.detach(), share)  # a ← a + share·(w − a)
