"""Training diagnostics: detect common problems from run statistics and suggest remedies."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from chainrule.errors import ChainruleError

if TYPE_CHECKING:
    from torch import Tensor

MOSTLY_CLIPPED: Final = 0.9  # share of clipped steps
SATURATED = 0.5  # share of values with |h| > 0.99
STALLED = 1e-3  # nats: smaller changes count as none
SPIKE = 100.0  # multiple of the median norm
RISE = 0.005  # nats: smaller rises of the validation loss are ignored
ROUNDING = 1e-9  # epochs: tolerance of rounding
VANISHED = 1e-6  # threshold of the median norm


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """Statistics of a run after an epoch; losses in nats per token."""

    epochs_done: int
    learning_rate: float
    loss: float | None = None  # training loss of the last epoch
    unigram_loss: float | None = None  # loss of the unigram distribution
    clipped_share: float = 0.0  # share of clipped steps in the last epoch
    gradient_norms: Sequence[float] = ()  # of recent steps, before clipping
    saturated_share: float | None = None  # share of values with |h| > 0.99; None if h is unbounded
    train_history: Sequence[float] = ()  # one per epoch, oldest first
    valid_history: Sequence[float] = ()  # one per validation, oldest first
    valid_epochs: Sequence[float] = ()  # epochs done at each validation


class Diverged(ChainruleError):
    """The training loss is not finite."""

    @classmethod
    def at(cls, step: int, cause: str | None, checkpoint: Path | None, is_half: bool = False) -> Self:
        """Describe the step, the cause found by `first_nonfinite`, and the checkpoint to resume from."""
        reason = cause or "the loss is not finite, though every weight and gradient is"
        hint = f"the last good checkpoint is kept at {checkpoint}: " if checkpoint else ""
        remedy = f"lower learning_rate or clip{', or loss_scale' if is_half else ''}"
        return cls(f"training diverged at step {step:,}: {reason}; {hint}{remedy}")


def diagnose(facts: RunStatistics) -> dict[str, str]:
    """Map a short key to each message that applies, most serious first; the key identifies repeated messages."""
    finders = {
        "frequencies": _worse_than_frequencies,
        "still": _stalled,
        "gradients": _gradients,
        "clipped": _clipped,
        "saturated": _saturated,
        "overfitted": _overfitted,
    }
    return {name: message for name, find in finders.items() if (message := find(facts))}


def first_nonfinite(named: "Iterable[tuple[str, Tensor]]") -> str | None:
    """Name the first tensor with non-finite values and count them; None if all are finite."""
    for name, tensor in named:
        nans, infinite = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        counts = [f"{count:,} {word}" for count, word in ((nans, "NaN"), (infinite, "infinite")) if count]
        if counts:
            return f"{name} has {' and '.join(counts)} of {tensor.numel():,} values"
    return None


def _worse_than_frequencies(facts: RunStatistics) -> str | None:
    if facts.epochs_done < 1 or facts.loss is None or facts.unigram_loss is None:
        return None
    if min(facts.loss, *facts.valid_history, math.inf) <= facts.unigram_loss:
        return None  # the training loss may exceed the validation loss: dropout, sampled softmax
    return (
        f"the loss, {facts.loss:.2f} nats, is above that of word frequencies alone, {facts.unigram_loss:.2f}: "
        f"lower learning_rate, {facts.learning_rate:g} now, or train for more steps (a smaller batch_size or bptt)"
    )


def _stalled(facts: RunStatistics) -> str | None:
    """No change of the loss over the first three epochs; later this would be convergence."""
    first = facts.train_history[:3]
    if facts.epochs_done < 3 or len(facts.train_history) != 3 or max(first) - min(first) >= STALLED:
        return None
    return (
        f"the loss has not moved from {first[0]:.2f} nats in 3 epochs: "
        f"raise learning_rate, {facts.learning_rate:g} now, or shorten warmup"
    )


def _gradients(facts: RunStatistics) -> str | None:
    if not facts.gradient_norms:
        return None
    median, most = statistics.median(facts.gradient_norms), max(facts.gradient_norms)
    if median < VANISHED:
        return (
            f"the gradients have nearly vanished (median norm {median:.1e}): "
            "use fewer layers or a different initialization"
        )
    if most > SPIKE * median and not facts.clipped_share:
        return f"the gradient's norm leaps from {median:.2g} to {most:.2g}: set clip to about {2 * median:.2g}"
    return None


def _clipped(facts: RunStatistics) -> str | None:
    if facts.clipped_share < MOSTLY_CLIPPED:
        return None
    norms = facts.gradient_norms
    usual = f"; the norm is usually {statistics.median(norms):.2g}" if norms else ""
    return (
        f"the gradient was clipped on {facts.clipped_share:.0%} of the steps, so clip sets the step's length: "
        f"raise clip, or lower learning_rate{usual}"
    )


def _saturated(facts: RunStatistics) -> str | None:
    if facts.saturated_share is None or facts.saturated_share < SATURATED:
        return None
    return (
        f"{facts.saturated_share:.0%} of the states' values are saturated (|h| > 0.99) and pass on no gradient: "
        "lower learning_rate, or add weight_decay"
    )


def _overfitted(facts: RunStatistics) -> str | None:
    """Validation loss rose twice in a row, at least an epoch apart, while the training loss fell.

    Within an epoch, chance variation exceeds the effect of training.
    """
    indices = _an_epoch_apart(facts)
    if len(indices) < 3 or not facts.train_history:
        return None
    epochs = [facts.valid_epochs[index] for index in indices]
    valid = [facts.valid_history[index] for index in indices]
    last = len(facts.train_history) - 1
    train = [facts.train_history[min(last, max(0, math.ceil(epoch) - 1))] for epoch in epochs]
    if not valid[0] + RISE < valid[1] < valid[2] or not train[2] < train[0]:
        return None
    return (
        f"the validation loss rose from {valid[0]:.2f} at epoch {epochs[0]:.3g} to {valid[2]:.2f} at epoch "
        f"{epochs[2]:.3g} while the training loss fell to {train[2]:.2f}: the model overfits; stop here, "
        "raise dropout, or train a smaller model"
    )


def _an_epoch_apart(facts: RunStatistics) -> list[int]:
    """Indices of the last validation and the two before it, each at least an epoch apart."""
    epochs = facts.valid_epochs
    if len(epochs) != len(facts.valid_history):
        return []
    indices: list[int] = []
    for index in reversed(range(len(epochs))):
        if len(indices) < 3 and (not indices or epochs[index] <= epochs[indices[0]] - 1 + ROUNDING):
            indices.insert(0, index)
    return indices


CONVERGED_PERCENT: Final = 1.0
"""A run has converged when its last epoch lowered the validation loss by less than this many per cent."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of a run as text and as data."""

    status: str
    is_converged: bool | None = None  # None: too few validations
    falling_percent: float | None = None  # decrease of the validation loss over the last epoch

    def figures(self) -> dict[str, Any]:
        """Fields for `metrics.json`; unknown values are omitted."""
        figures: dict[str, Any] = {"status": self.status}
        if self.is_converged is not None:
            figures["train_is_converged"] = self.is_converged
        if self.falling_percent is not None:
            figures["train_falling_percent"] = round(self.falling_percent, 3)
        return figures


def judge_convergence(
    epochs: float, planned: int, losses: Sequence[float], losses_epochs: Sequence[float], waited: int = 0
) -> RunOutcome:
    """Judge a run.

    Args:
        epochs: Epochs done.
        planned: Epochs of the config.
        losses: The validation loss at each validation.
        losses_epochs: Epochs done at each validation.
        waited: Validations without improvement if early stopping ended the run, else 0.

    >>> judge_convergence(3.1, 12, [5.0, 4.9], [2.1, 3.1]).status
    'stopped at 3.1 of 12 epochs, validation still falling by 2 % per epoch'

    """
    percent = falling_percent(losses, losses_epochs)
    if waited:
        return RunOutcome(f"stopped early: {no_improvement(waited)}", True, percent)
    if percent is not None and percent < CONVERGED_PERCENT:
        return RunOutcome("converged", True, percent)
    shown = f"{epochs:.2g}" if epochs < 10 else f"{epochs:.1f}"
    progress = f"all {planned} epochs done" if epochs >= planned else f"stopped at {shown} of {planned} epochs"
    if percent is None:
        missing = "too few validations to tell whether it converged" if losses else "no validation text"
        return RunOutcome(f"{progress}, {missing}")
    return RunOutcome(
        f"{progress}, validation still falling by {_format_percent(percent)} % per epoch", False, percent
    )


def no_improvement(validations: int) -> str:
    """Reason given for early stopping.

    >>> no_improvement(1), no_improvement(3)
    ('no improvement for 1 validation', 'no improvement for 3 validations')
    """
    return f"no improvement for {validations} validation{'' if validations == 1 else 's'}"


def _format_percent(percent: float) -> str:
    return f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"


def falling_percent(losses: Sequence[float], epochs: Sequence[float]) -> float | None:
    """Decrease of the validation loss over the last epoch in per cent; negative if it rose.

    The loss one epoch before the last validation is interpolated. If all validations lie within an epoch, the
    relative decrease is extrapolated to one. None if it cannot be computed.

    >>> falling_percent([5.0, 4.0, 3.8], [1.0, 2.0, 3.0])
    5.0
    >>> falling_percent([5.0, 4.5], [0.25, 0.5])
    34.39
    """
    if len(losses) != len(epochs) or len(losses) < 2 or epochs[-1] <= epochs[0]:
        return None
    span = min(1.0, epochs[-1] - epochs[0])
    before = float(np.interp(epochs[-1] - span, epochs, losses))
    if before <= 0 or losses[-1] < 0:
        return None
    remaining: float = (losses[-1] / before) ** (1 / span)
    return round(100 * (1 - remaining), 9)
