"""What looks wrong with a run, in words, and what to do about it.

Lives here: numbers to sentences, pure; the error of a run that diverged. Not here: gathering the numbers (loop.py).
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from torch import Tensor

from chainrule.errors import ChainruleError

MOST = 0.9  # of all steps clipped
SATURATED = 0.5  # of all values of h beyond ±0.99
STILL = 1e-3  # nats: less is no movement
SPIKE = 100.0  # times the median norm
RISE = 0.005  # nats: less is no rise of the validation loss
ROUNDING = 1e-9  # epochs: parts of an epoch are rounded
VANISHED = 1e-6  # a median norm below it


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a run after an epoch; losses in nats a token."""

    epochs_done: int
    learning_rate: float
    loss: float | None = None  # over the last epoch, of the training text
    unigram_loss: float | None = None  # that of word frequencies alone
    clipped_share: float = 0.0  # of the last epoch's steps
    gradient_norms: Sequence[float] = ()  # of the last steps, before clipping
    saturated_share: float | None = None  # of the states' values with |h| > 0.99; None where h is not bounded
    train_history: Sequence[float] = ()  # one an epoch, the oldest first
    valid_history: Sequence[float] = ()  # one a validation, the oldest first
    valid_epochs: Sequence[float] = ()  # epochs done at each validation


class Diverged(ChainruleError):
    """The loss is no longer a number."""

    @classmethod
    def at(cls, step: int, found: str | None, kept: Path | None, is_half: bool = False) -> Self:
        """Name the step, what `name_the_bad` found, and the checkpoint from which to try again."""
        what = found or "the loss is not finite, though every weight and gradient is"
        good = f"the last good checkpoint is kept at {kept}: " if kept else ""
        remedy = f"lower learning_rate or clip{', or loss_scale' if is_half else ''}"
        return cls(f"training diverged at step {step:,}: {what}; {good}{remedy}")


def findings(facts: Facts) -> dict[str, str]:
    """Every sentence that applies, the gravest first, by a short name: each is said once though numbers change."""
    finders = {
        "frequencies": _worse_than_frequencies,
        "still": _still,
        "gradients": _gradients,
        "clipped": _clipped,
        "saturated": _saturated,
        "overfitted": _overfitted,
    }
    return {name: said for name, find in finders.items() if (said := find(facts))}


def name_the_bad(named: Iterable[tuple[str, Tensor]]) -> str | None:
    """The first tensor with a value that is not finite, and how many it has; None where all are finite."""
    for name, tensor in named:
        nans, infinite = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        counts = [f"{count:,} {word}" for count, word in ((nans, "NaN"), (infinite, "infinite")) if count]
        if counts:
            return f"{name} has {' and '.join(counts)} of {tensor.numel():,} values"
    return None


def _worse_than_frequencies(facts: Facts) -> str | None:
    if facts.epochs_done < 1 or facts.loss is None or facts.unigram_loss is None:
        return None
    if min(facts.loss, *facts.valid_history, math.inf) <= facts.unigram_loss:
        return None  # the training loss may be higher than that of validation: dropout, sampled softmax
    return (
        f"the loss, {facts.loss:.2f} nats, is above that of word frequencies alone, {facts.unigram_loss:.2f}: "
        f"lower learning_rate, {facts.learning_rate:g} now, or train for more steps (a smaller batch_size or bptt)"
    )


def _still(facts: Facts) -> str | None:
    """Two epochs that changed nothing, at the start of a run; later it is called having converged."""
    first = facts.train_history[:3]
    if facts.epochs_done < 3 or len(facts.train_history) != 3 or max(first) - min(first) >= STILL:
        return None
    return (
        f"the loss has not moved from {first[0]:.2f} nats in 3 epochs: "
        f"raise learning_rate, {facts.learning_rate:g} now, or shorten warmup"
    )


def _gradients(facts: Facts) -> str | None:
    if not facts.gradient_norms:
        return None
    median, most = statistics.median(facts.gradient_norms), max(facts.gradient_norms)
    if median < VANISHED:
        return (
            f"the gradient has all but vanished, its norm is {median:.1e}: fewer layers, or another initialisation"
        )
    if most > SPIKE * median and not facts.clipped_share:
        return f"the gradient's norm leaps from {median:.2g} to {most:.2g}: set clip to about {2 * median:.2g}"
    return None


def _clipped(facts: Facts) -> str | None:
    if facts.clipped_share < MOST:
        return None
    norms = facts.gradient_norms
    usual = f"; the norm is usually {statistics.median(norms):.2g}" if norms else ""
    return (
        f"the gradient was clipped on {facts.clipped_share:.0%} of the steps, so clip sets the step's length: "
        f"raise clip, or lower learning_rate{usual}"
    )


def _saturated(facts: Facts) -> str | None:
    if facts.saturated_share is None or facts.saturated_share < SATURATED:
        return None
    return (
        f"{facts.saturated_share:.0%} of the states' values are saturated (|h| > 0.99) and pass on no gradient: "
        "lower learning_rate, or add weight_decay"
    )


def _overfitted(facts: Facts) -> str | None:
    """Validation loss up twice in a row, over validations at least an epoch apart, while the training loss fell.

    Validations within an epoch vary by chance more than the training text changes them.
    """
    places = _an_epoch_apart(facts)
    if len(places) < 3 or not facts.train_history:
        return None
    epochs = [facts.valid_epochs[place] for place in places]
    valid = [facts.valid_history[place] for place in places]
    last = len(facts.train_history) - 1
    train = [facts.train_history[min(last, max(0, math.ceil(epoch) - 1))] for epoch in epochs]
    if not valid[0] + RISE < valid[1] < valid[2] or not train[2] < train[0]:
        return None
    return (
        f"the validation loss rose from {valid[0]:.2f} at epoch {epochs[0]:.3g} to {valid[2]:.2f} at epoch "
        f"{epochs[2]:.3g} while the training loss fell to {train[2]:.2f}: it learns the text by heart; stop here, "
        "raise dropout, or train a smaller model"
    )


def _an_epoch_apart(facts: Facts) -> list[int]:
    """Positions of the last validation and of the two before it that are each an epoch or more apart."""
    epochs = facts.valid_epochs
    if len(epochs) != len(facts.valid_history):
        return []
    chosen: list[int] = []
    for place in reversed(range(len(epochs))):
        if len(chosen) < 3 and (not chosen or epochs[place] <= epochs[chosen[0]] - 1 + ROUNDING):
            chosen.insert(0, place)
    return chosen
