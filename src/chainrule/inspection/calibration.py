"""Do things come as often as a model says? Counts and bins, from whole distributions or from best guesses.

Lives here: numbers. Not here: the picture (calibration_plot.py), the distributions (reading.py).

An event is "token w comes next" at one position; every token of the vocabulary is one there, so a text of N tokens
gives N · V of them, and the sum of what was said over all of them is N. They are tallied in fine cells by
log₂ p as they come, a few positions at a time, and put together into bins afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.lm import Floats, Ids, Mask

CELLS_PER_BIT: Final = 16  # cells 4.4 % wide
LEAST_BITS: Final = 40  # 2^−40: all that is less probable shares a cell
CELLS: Final = CELLS_PER_BIT * LEAST_BITS + 2  # the last for what is held impossible
BINS: Final = 15

WORTH_SAYING: Final = 0.05
"""In words: bins of at least this probability, which a person can picture."""

NOTABLE: Final = 0.01
"""In words: what chance does as rarely as this to any of the bins of a perfectly calibrated model."""

DRAWS: Final = 2000
CLEARLY: Final = 2.0
"""In words: from this many times what chance makes of it on average, an error of best guesses is called one."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Events by cell, the most probable first."""

    events: Floats  # (C,)  how many
    expected: Floats  # (C,)  Σ p: how many of them should have come
    variance: Floats  # (C,)  Σ p (1 − p)
    came: Floats  # (C,)  how many did

    @classmethod
    def empty(cls) -> "Tally":
        """Nothing seen yet."""
        return cls(*np.zeros((4, CELLS)))

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.events + other.events,
            self.expected + other.expected,
            self.variance + other.variance,
            self.came + other.came,
        )


@dataclass(frozen=True, slots=True)
class Bin:
    """Events of like probability."""

    events: int
    said: float  # mean p
    came: float  # the share that came
    error: float  # one standard error of `came` were the model right

    @property
    def chance(self) -> float:
        """How often events of this probability come as far from it as these, or farther, by chance alone.

        Twice the exact tail of a binomial distribution. Where probabilities within the bin differ, or one hit rules
        out another, the true tail is lighter (Hoeffding 1956), so that chance is granted rather too much.
        """
        hits = round(self.came * self.events)
        if hits >= self.said * self.events:
            return min(1.0, 2 * binomial_tail(hits, self.events, self.said))
        return min(1.0, 2 * binomial_tail(self.events - hits, self.events, 1 - self.said))


@dataclass(frozen=True, slots=True)
class Floor:
    """The calibration error that a perfectly calibrated model of the same confidences shows by chance."""

    mean: float
    rarely: float  # above it once in 200 times


def tally(log_probs: Floats, targets: Ids) -> Tally:
    """Whole distributions (K, V) in nats, and what came (K,)."""
    p = np.exp(log_probs)
    bits = np.minimum(-log_probs / math.log(2), LEAST_BITS)
    cell = np.maximum(bits * CELLS_PER_BIT, 0).astype(np.int64)  # (K, V)
    cell[np.isneginf(log_probs)] = CELLS - 1
    hit = cell[np.arange(len(targets)), targets]
    flat, weights = cell.ravel(), p.ravel()
    return Tally(
        np.bincount(flat, minlength=CELLS).astype(np.float64),
        _summed(flat, weights, CELLS),
        _summed(flat, weights * (1 - weights), CELLS),
        np.bincount(hit, minlength=CELLS).astype(np.float64),
    )


def equal_mass(counted: Tally, bins: int = BINS) -> tuple[Bin, ...]:
    """Bins that should hold about as many of what came each, the most probable first; at most `bins`.

    What is held impossible is a bin more where some of it came; else it says nothing (`<s>` is always there).
    """
    total = float(counted.expected.sum())
    before = np.cumsum(counted.expected) - counted.expected / 2
    place = np.minimum((before * (bins / (total or 1.0))).astype(np.int64), bins - 1)
    place[-1] = bins

    def summed(values: Floats) -> Floats:
        return _summed(place, values, bins + 1)

    events, came = summed(counted.events), summed(counted.came)
    expected, variance = summed(counted.expected), summed(counted.variance)
    if not came[-1]:
        events[-1] = 0
    return tuple(
        Bin(
            int(events[i]),
            float(expected[i] / events[i]),
            float(came[i] / events[i]),
            math.sqrt(variance[i]) / float(events[i]),
        )
        for i in np.flatnonzero(events)
    )


def reliability(confidence: Floats, is_right: Mask, bins: int = BINS) -> tuple[Bin, ...]:
    """Best guesses in bins of equal width, (0, 1/15], (1/15, 2/15], … (Guo et al. 2017, eq. 2 and 3)."""
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    found = []
    for i in np.unique(place):
        said, right = confidence[place == i], is_right[place == i]
        error = math.sqrt(float((said * (1 - said)).sum())) / len(said)
        found.append(Bin(len(said), float(said.mean()), float(right.mean()), error))
    return tuple(found)


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Σ n_b / N · |came_b − said_b| (Guo et al. 2017, eq. 5); nothing of nothing."""
    total = sum(each.events for each in bins)
    return sum(each.events * abs(each.came - each.said) for each in bins) / total if total else 0.0


def floor(bins: Sequence[Bin]) -> Floor:
    """By drawing the hits of each bin from its own probability, the same draws for the same bins."""
    if not bins:
        return Floor(0.0, 0.0)
    n = np.array([each.events for each in bins])
    said = np.clip([each.said for each in bins], 0.0, 1.0)
    came = np.random.default_rng(0).binomial(n, said, size=(DRAWS, len(bins))) / n
    errors = np.abs(came - said) @ n / n.sum()  # (draws,)
    return Floor(float(errors.mean()), float(np.quantile(errors, 0.995)))


def is_off(bins: Sequence[Bin]) -> bool:
    """Whether the expected calibration error is clearly above what chance makes of it."""
    error, chance = expected_calibration_error(bins), floor(bins)
    return error > max(CLEARLY * chance.mean, chance.rarely) + 1e-9


def in_words(bins: Sequence[Bin]) -> str:
    """What the most telling bin says of the model; empty where no bin is probable enough to picture.

    >>> in_words([Bin(400, 0.30, 0.20, 0.02)])
    'when it says 30 %, it comes 20 % of the time: overconfident'
    """
    telling = [each for each in bins if each.said >= WORTH_SAYING]
    if not telling:
        return ""
    worst = min(telling, key=lambda each: each.chance)
    said = f"when it says {_percent(worst.said)}, it comes {_percent(worst.came)} of the time"
    if worst.chance * len(telling) > NOTABLE:  # so many bins, so many chances (Bonferroni)
        return f"no sign of bad calibration: {said} at worst, which may be chance"
    return f"{said}: {'overconfident' if worst.came < worst.said else 'too cautious'}"


def error_in_words(bins: Sequence[Bin]) -> str:
    """The expected calibration error of best guesses beside what chance makes of it."""
    off, by_chance = (100 * error for error in (expected_calibration_error(bins), floor(bins).mean))
    so = "this is more than chance explains" if is_off(bins) else "this may be chance"
    return (
        f"{off:.1f} percentage points off on average (expected calibration error), and those of a perfectly "
        f"calibrated model would be {by_chance:.1f} off by chance: {so}"
    )


def binomial_tail(hits: int, events: int, p: float) -> float:
    """P(X ≥ hits) of events that come with probability p each, for hits not below their mean.

    >>> round(binomial_tail(2, 3, 0.5), 9)
    0.5
    """
    if hits <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    log_odds = math.log(p) - math.log1p(-p)
    choices = math.lgamma(events + 1) - math.lgamma(hits + 1) - math.lgamma(events - hits + 1)
    first = choices + hits * math.log(p) + (events - hits) * math.log1p(-p)  # log P(X = hits)
    # P(x + 1) / P(x) = (n − x) / (x + 1) · p / (1 − p), below one from the mean on: forty deviations are all.
    most = min(events, hits + 50 + math.ceil(40 * math.sqrt(events * p * (1 - p))))
    x = np.arange(hits, most)
    steps = np.cumsum(np.log((events - x) / (x + 1)) + log_odds)
    return float(min(1.0, math.exp(first) * (1 + np.exp(steps).sum())))


def _summed(place: Ids, values: Floats, places: int) -> Floats:
    """The sum of the values at each place."""
    return np.asarray(np.bincount(place, values, places), dtype=np.float64)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
