"""Progress display, log lines and diagnostics of a run."""

import math
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from chainrule.errors import ChainruleWarning
from chainrule.training import advice
from chainrule.training.blame import ParameterFields
from chainrule.training.config import Training
from chainrule.training.log import TrainLog
from chainrule.training.step import CLIPPED, LARGEST_NORM, NATS, NORM, STEPS, TOKENS, Tensors

if TYPE_CHECKING:
    from chainrule.training.loop import Position, Run

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
        facts = advice.RunStatistics(
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
        for name, message in advice.diagnose(facts).items():
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
