"""Findings from a training log: overfitting, small updates, clipping, unfinished training."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from chainrule.inspection.training_log import (
    Measure,
    TrainingLog,
    change_in_last_tenth,
    change_since,
    mean_loss_before,
)
from chainrule.lm import Floats

MIN_CHANGE: Final = 0.005  # nats: smaller changes of the loss are ignored
LEAST_RISE: Final = 0.03  # nats of validation loss, 3 % in perplexity: above run-to-run noise
SINGLE_RISE: Final = 0.1  # required rise if only one validation follows the best
MIN_FALL_FEW_LINES: Final = 0.02  # required fall of the training loss if its noise is unknown
MIN_STEPS: Final = 50  # shorter runs are not checked for small updates
MOSTLY_CLIPPED: Final = 0.9  # share of clipped steps
SMALL_RATIO: Final = 1e-4  # ‖Δθ‖ / ‖θ‖ per step below which a matrix hardly changes
MAX_NAMED: Final = 3  # matrices named in a sentence
TYPICAL_RATIO: Final = 1e-3  # rule of thumb

OVERFITTING, SMALL_UPDATES, STILL_IMPROVING, CLIPPED = range(4)
Finding = tuple[int, str]
"""(priority, lowest first; sentence)."""


def diagnose(log: TrainingLog, clip: float | None = None) -> list[Finding]:
    """Return the findings of a run, most important first."""
    candidates = (_overfitting(log), _small_updates(log), _clipping(log, clip), _still_improving(log))
    return sorted(finding for finding in candidates if finding is not None)


def _overfitting(log: TrainingLog) -> Finding | None:
    """Report a validation loss that rose after its best value by more than noise."""
    valid = log.validations
    if valid is None or not has_risen(valid.value):
        return None
    best, last = float(valid.value[valid.best]), float(valid.value[-1])
    reason = {
        True: "the model overfits; stop earlier, raise dropout, or train a smaller model",
        False: "the training loss did not fall either; lower the learning rate",
        None: "further training did not help; stop earlier",
    }[_is_training_better(log, float(valid.step[valid.best]))]
    where = f"after step {valid.step[valid.best]:,.0f} of {log.step[-1]:,.0f}"
    epoch = valid.epoch[valid.best]
    if np.isfinite(valid.epoch).all() and epoch >= 1 and np.count_nonzero(valid.epoch == epoch) == 1:
        where = f"after epoch {epoch:.0f} of {valid.epoch[-1]:.0f}"
    measure = valid.measure
    values = f"at {format_value(best, measure)}, then rose to {format_value(last, measure)}"
    return OVERFITTING, f"Validation was best {where}, {values}: {reason}."


def has_risen(values: Floats) -> bool:
    """Return whether the last two validations (v,) exceed the best by more than noise.

    The threshold is twice the `fluctuation`, and twice that if only one validation follows the best.
    """
    best = int(np.argmin(values))
    after = values[best + 1 :]
    if not len(after):
        return False
    least = max(LEAST_RISE, 2 * fluctuation(values))
    return float(after[-2:].min() - values[best]) > (least if len(after) > 1 else max(SINGLE_RISE, 2 * least))


def fluctuation(values: Floats) -> float:
    """Return the largest change against the trend: a rise before the minimum or a fall after it.

    Unlike a standard deviation it ignores the steep start of a curve, and like the depth of a minimum by chance it
    grows with the number of values.

    >>> round(fluctuation(np.array([5.0, 4.0, 4.25, 3.5, 4.0, 3.875])), 3)
    0.25
    """
    best = int(np.argmin(values))
    changes = np.diff(values)
    return float(np.concatenate([[0.0], changes[:best], -changes[best:]]).max())


def _is_training_better(log: TrainingLog, step: float) -> bool | None:
    """Return whether the training loss fell after this step; None if unknown."""
    change = change_since(log, step)
    if change is not None:
        return change.before - change.after > max(MIN_CHANGE, change.significant_change)
    loss_then, loss_now = mean_loss_before(log, step), mean_loss_before(log, float(log.step[-1]))
    return (
        loss_then - loss_now > MIN_FALL_FEW_LINES if math.isfinite(loss_then) and math.isfinite(loss_now) else None
    )


def _small_updates(log: TrainingLog) -> Finding | None:
    """Report matrices that updates hardly change; not for short runs."""
    if log.step[-1] < MIN_STEPS:
        return None
    slow = {name: ratio for name, ratio in log.median_update_ratio.items() if ratio < SMALL_RATIO}
    if not slow:
        return None
    if len(slow) == 1:
        (name, ratio), *_ = slow.items()
        if ratio == 0:
            return (
                SMALL_UPDATES,
                f"{name} is not updated: it receives no gradient.",
            )
        clause = f"The updates of {name} are {_format_ratio(ratio)} of its norm: it hardly learns"
    else:
        listed = [
            f"{name} ({_format_ratio(ratio) if ratio else 'no update'})"
            for name, ratio in list(slow.items())[:MAX_NAMED]
        ]
        more = f" and {len(slow) - MAX_NAMED} more" if len(slow) > MAX_NAMED else ""
        names, limit = f"{', '.join(listed)}{more}", _format_ratio(SMALL_RATIO)
        clause = f"The updates of {names} are below {limit} of their norms: they hardly learn"
    is_most = 2 * len(slow) > len(log.median_update_ratio)
    remedy = "; raise the learning rate" if is_most else ""
    return SMALL_UPDATES, f"{clause} (about {_format_ratio(TYPICAL_RATIO)} is typical){remedy}."


def _clipping(log: TrainingLog, clip: float | None) -> Finding | None:
    """Report the share of clipped steps and the main cause."""
    share = log.clipped_share
    if not share:
        largest = log.largest_gradient_norm[np.isfinite(log.largest_gradient_norm)]
        if not clip or not len(largest):
            return None
        return (
            CLIPPED,
            f"No step was clipped: the largest gradient norm was {largest.max():.2g}, the threshold is {clip:g}.",
        )
    cause = _cause(log.clipping_shares)
    clause = f"{format_percent(share).capitalize()} of the steps were clipped{cause}"
    if share < MOSTLY_CLIPPED:
        return CLIPPED, f"{clause}."
    return (
        CLIPPED,
        f"{clause}: {'every' if share == 1 else 'nearly every'} gradient is rescaled to the clipping "
        "threshold, so the learning rate alone sets the step size.",
    )


def _cause(shares: Mapping[str, float]) -> str:
    """Return a clause naming the matrix with the largest gradient, such as `, 9 of 10 times by output.weight`."""
    if not shares:
        return ""
    name, share = next(iter(shares.items()))
    tenths = round(10 * share)
    if share == 1:
        return f", every time by {name}"
    if tenths == 10:
        return f", nearly every time by {name}"
    return (
        f", {tenths} of 10 times by {name}" if tenths >= 5 else f", most often ({format_percent(share)}) by {name}"
    )


def _still_improving(log: TrainingLog) -> Finding | None:
    """Report a loss that still fell in the last tenth, beyond noise, with validation best at the end."""
    change, valid = change_in_last_tenth(log), log.validations
    if change is None or change.before - change.after < max(MIN_CHANGE, change.significant_change):
        return None
    if valid is not None and valid.best != len(valid.value) - 1:
        return None
    clause = f"The loss was still falling at the end, {change.before:.2f} → {change.after:.2f} in the last tenth"
    if valid is not None:
        clause += f", and validation was best at the end, at {format_value(float(valid.value[-1]), valid.measure)}"
    return STILL_IMPROVING, f"{clause}: more epochs may help."


def format_value(value: float, measure: Measure) -> str:
    """Format a loss with its perplexity, or an error rate."""
    if measure == "error":
        return f"an error rate of {100 * value:.1f} %"
    return f"{value:.2f} nats per token (perplexity {format_perplexity(value)})"


def format_perplexity(nats: float) -> str:
    """Format e^nats with three digits.

    >>> format_perplexity(8.0), format_perplexity(0.5)
    ('2,980', '1.65')
    """
    value = float(f"{math.exp(min(nats, 700)):.3g}")
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"


def format_percent(share: float) -> str:
    """Format a share as a percentage."""
    return "below 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _format_ratio(ratio: float) -> str:
    """Format a small ratio: 2e-5."""
    digits, exponent = f"{ratio:.0e}".split("e")
    return f"{digits}e{int(exponent)}"
