"""What the log of a run means, in words: numbers to plain sentences.

Lives here: what stands out once a run is over. Not here: the numbers (training_log.py), advice while a network
learns (training/advice.py).
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from chainrule.inspection.training_log import Measure, TrainingLog, fall_since, last_tenth, loss_before
from chainrule.lm import Floats

RISE: Final = 0.005  # nats, or part of one: less is neither a rise nor a fall
LEAST_RISE: Final = 0.03  # of validation: 3 % of perplexity, more than runs wobble by chance
ALONE: Final = 0.1  # where one validation alone came after the best
UNSURE: Final = 0.02  # of a training loss with too few lines to see them scatter
SHORT: Final = 50  # steps, after which no matrix need have moved
MOST: Final = 0.9  # of all steps clipped
HARDLY: Final = 1e-4  # ‖Δθ‖ / ‖θ‖ of a step: less hardly moves a matrix
NAMED: Final = 3  # matrices in a sentence
USUAL: Final = 1e-3  # as a rule of thumb

HEART, HARDLY_LEARNS, STILL_FELL, CLIPPED = range(4)
Finding = tuple[int, str]
"""How telling it is, the least first, and a sentence."""


def findings(log: TrainingLog, clip: float | None = None) -> list[Finding]:
    """What stands out in a run, in plain sentences."""
    found = (_by_heart(log), _hardly(log), _clipping(log, clip), _still_falling(log))
    return sorted(finding for finding in found if finding is not None)


def _by_heart(log: TrainingLog) -> Finding | None:
    """Validation rose after its best by more than chance, and did not come back."""
    valid = log.validations
    if valid is None or not is_rise(valid.value):
        return None
    best, last = float(valid.value[valid.best]), float(valid.value[-1])
    why = {
        True: "it learnt the training text by heart; stop there, raise dropout, or train a smaller model",
        False: "the training loss did not fall either; lower the learning rate",
        None: "what came after did not help; stop there",
    }[_is_training_better(log, float(valid.step[valid.best]))]
    where = f"after step {valid.step[valid.best]:,.0f} of {log.step[-1]:,.0f}"
    epoch = valid.epoch[valid.best]
    if np.isfinite(valid.epoch).all() and epoch >= 1 and np.count_nonzero(valid.epoch == epoch) == 1:
        where = f"after epoch {epoch:.0f} of {valid.epoch[-1]:.0f}"
    measure = valid.measure
    return (
        HEART,
        f"Validation was best {where}, at {worth(best, measure)}, then rose to {worth(last, measure)}: {why}.",
    )


def is_rise(values: Floats) -> bool:
    """Whether the last two validations, (v,), both lie above the best by more than chance.

    That is by more than twice the `wobble`; where only the last came after the best, by twice as much again.
    """
    best = int(np.argmin(values))
    after = values[best + 1 :]
    if not len(after):
        return False
    least = max(LEAST_RISE, 2 * wobble(values))
    return float(after[-2:].min() - values[best]) > (least if len(after) > 1 else max(ALONE, 2 * least))


def wobble(values: Floats) -> float:
    """The largest move against the trend from one value to the next: a rise before the lowest, a fall after it.

    Unlike a deviation it is not taken in by how steep a curve begins, and it grows with the number of values, as
    the depth of the lowest does by chance.

    >>> round(wobble(np.array([5.0, 4.0, 4.25, 3.5, 4.0, 3.875])), 3)
    0.25
    """
    best = int(np.argmin(values))
    moves = np.diff(values)
    return float(np.concatenate([[0.0], moves[:best], -moves[best:]]).max())


def _is_training_better(log: TrainingLog, step: float) -> bool | None:
    """Whether the training loss fell after this step; None where that is not known."""
    fall = fall_since(log, step)
    if fall is not None:
        return fall.before - fall.after > max(RISE, fall.by_chance)
    then, now = loss_before(log, step), loss_before(log, float(log.step[-1]))
    return then - now > UNSURE if math.isfinite(then) and math.isfinite(now) else None


def _hardly(log: TrainingLog) -> Finding | None:
    """Matrices that updates hardly move; `usual_ratio` gives the least first. Of a short run it means nothing."""
    if log.step[-1] < SHORT:
        return None
    slow = {name: ratio for name, ratio in log.usual_ratio.items() if ratio < HARDLY}
    if not slow:
        return None
    if len(slow) == 1:
        (name, ratio), *_ = slow.items()
        if ratio == 0:
            return (
                HARDLY_LEARNS,
                f"{name} is not moved by its updates: no gradient reaches it, and it does not learn.",
            )
        words = f"Updates of {name} are {_power(ratio)} of its size: it hardly learns"
    else:
        said = [f"{name} ({_power(ratio) if ratio else 'no update'})" for name, ratio in list(slow.items())[:NAMED]]
        more = f" and {len(slow) - NAMED} more" if len(slow) > NAMED else ""
        words = f"Updates of {', '.join(said)}{more} are below {_power(HARDLY)} of their size: they hardly learn"
    is_most = 2 * len(slow) > len(log.usual_ratio)
    remedy = "; raise the learning rate" if is_most else ""
    return HARDLY_LEARNS, f"{words} (about {_power(USUAL)} is usual){remedy}."


def _clipping(log: TrainingLog, clip: float | None) -> Finding | None:
    """How many steps were clipped, and what caused it."""
    share = log.clipped_share
    if not share:
        largest = log.largest_gradient_norm[np.isfinite(log.largest_gradient_norm)]
        if not clip or not len(largest):
            return None
        return (
            CLIPPED,
            f"No step was clipped: the largest norm of the gradient was {largest.max():.2g}, clip is {clip:g}.",
        )
    cause = _cause(log.blame)
    words = f"{per_cent(share).capitalize()} of the steps were clipped{cause}"
    if share < MOST:
        return CLIPPED, f"{words}."
    return (
        CLIPPED,
        f"{words}: {'every' if share == 1 else 'nearly every'} gradient is brought to one length, clip, and the "
        "learning rate alone decides how far a step goes.",
    )


def _cause(blame: Mapping[str, float]) -> str:
    """What the matrix with the largest part of the gradient did, such as `, 9 of 10 times by output.weight`."""
    if not blame:
        return ""
    name, share = next(iter(blame.items()))
    tenths = round(10 * share)
    if share == 1:
        return f", every time by {name}"
    if tenths == 10:
        return f", nearly every time by {name}"
    return f", {tenths} of 10 times by {name}" if tenths >= 5 else f", most often ({per_cent(share)}) by {name}"


def _still_falling(log: TrainingLog) -> Finding | None:
    """The loss of the last tenth is below that of the tenth before, by more than chance; validation agrees."""
    fall, valid = last_tenth(log), log.validations
    if fall is None or fall.before - fall.after < max(RISE, fall.by_chance):
        return None
    if valid is not None and valid.best != len(valid.value) - 1:
        return None
    words = f"The loss still fell at the end, {fall.before:.2f} → {fall.after:.2f} in the last tenth"
    if valid is not None:
        words += f", and validation was best at the end, at {worth(float(valid.value[-1]), valid.measure)}"
    return STILL_FELL, f"{words}: more epochs would help."


def worth(value: float, measure: Measure) -> str:
    """A loss with its perplexity, or an error rate."""
    if measure == "error":
        return f"an error of {100 * value:.1f} %"
    return f"{value:.2f} nats a token (perplexity {perplexity(value)})"


def perplexity(nats: float) -> str:
    """e to the power of this, in three digits.

    >>> perplexity(8.0), perplexity(0.5)
    ('2,980', '1.65')
    """
    value = float(f"{math.exp(min(nats, 700)):.3g}")
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"


def per_cent(share: float) -> str:
    """A part of one as a person says it."""
    return "below 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _power(ratio: float) -> str:
    """A small number as a person writes it: 2e-5."""
    digits, exponent = f"{ratio:.0e}".split("e")
    return f"{digits}e{int(exponent)}"
