"""Calibration of next-token probabilities: event counts, bins, and expected calibration error.

An event is "token w comes next" at one position. Every token of the vocabulary is an event at every position, so a
text of N tokens has N · V events whose predicted probabilities sum to N. Events are tallied by log₂ p into
fine cells, a few positions at a time, and the cells are merged into bins afterwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np

from chainrule.lm import Floats, Ids, Mask
from chainrule.plots import figures

CELLS_PER_BIT: Final = 16  # cells 4.4 % wide
LEAST_BITS: Final = 40  # smaller probabilities share one cell
CELLS: Final = CELLS_PER_BIT * LEAST_BITS + 2  # the last is for probability 0
BINS: Final = 15

MIN_REPORTED: Final = 0.05
"""Smallest predicted probability of the bins that a finding may name."""

SIGNIFICANCE: Final = 0.01
"""Family-wise significance level for calling a bin miscalibrated."""

DRAWS: Final = 2000
MIN_RATIO: Final = 2.0
"""Ratio of the expected calibration error to its mean under perfect calibration from which it is reported."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Event counts per cell, most probable first."""

    events: Floats  # (C,)  number of events
    expected: Floats  # (C,)  Σ p, the expected number of hits
    variance: Floats  # (C,)  Σ p (1 − p)
    hits: Floats  # (C,)  number of events that occurred

    @classmethod
    def empty(cls) -> "Tally":
        """Return a tally of no events."""
        return cls(*np.zeros((4, CELLS)))

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*map(np.add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Bin:
    """Events of similar predicted probability."""

    events: int
    predicted: float  # mean p
    observed: float  # relative frequency
    error: float  # standard error of `observed` under perfect calibration

    def as_json(self) -> dict[str, float]:
        """Return the fields under their JSON keys."""
        return {"events": self.events, "said": self.predicted, "came": self.observed, "error": self.error}

    @property
    def p_value(self) -> float:
        """Two-sided binomial p-value of the observed frequency.

        Conservative if the probabilities in the bin differ or exclude one another: the true tail is then lighter
        (Hoeffding 1956).
        """
        hits = round(self.observed * self.events)
        if hits >= self.predicted * self.events:
            return min(1.0, 2 * binomial_tail(hits, self.events, self.predicted))
        return min(1.0, 2 * binomial_tail(self.events - hits, self.events, 1 - self.predicted))


def tally_events(log_probs: Floats, targets: Ids) -> Tally:
    """Count events from distributions (K, V) in nats and the observed tokens (K,)."""
    p = np.exp(log_probs)
    bits = np.minimum(-log_probs / math.log(2), LEAST_BITS)
    cell = np.maximum(bits * CELLS_PER_BIT, 0).astype(np.int64)  # (K, V)
    cell[np.isneginf(log_probs)] = CELLS - 1
    hit = cell[np.arange(len(targets)), targets]
    flat, weights = cell.ravel(), p.ravel()
    return Tally(
        np.bincount(flat, minlength=CELLS).astype(np.float64),
        _sum_by_index(flat, weights, CELLS),
        _sum_by_index(flat, weights * (1 - weights), CELLS),
        np.bincount(hit, minlength=CELLS).astype(np.float64),
    )


def equal_mass_bins(tally: Tally, bins: int = BINS) -> tuple[Bin, ...]:
    """Merge cells into at most `bins` bins with about equal expected hits, most probable first.

    Events of probability 0 form an additional bin if any of them occurred; otherwise they are dropped (`<s>` is
    always among them).
    """
    total = float(tally.expected.sum())
    before = np.cumsum(tally.expected) - tally.expected / 2
    index = np.minimum((before * (bins / (total or 1.0))).astype(np.int64), bins - 1)
    index[-1] = bins

    def sum_values(values: Floats) -> Floats:
        return _sum_by_index(index, values, bins + 1)

    events, observed = sum_values(tally.events), sum_values(tally.hits)
    expected, variance = sum_values(tally.expected), sum_values(tally.variance)
    if not observed[-1]:
        events[-1] = 0
    return tuple(
        Bin(
            int(events[i]),
            float(expected[i] / events[i]),
            float(observed[i] / events[i]),
            math.sqrt(variance[i]) / float(events[i]),
        )
        for i in np.flatnonzero(events)
    )


def reliability_bins(confidence: Floats, is_right: Mask, bins: int = BINS) -> tuple[Bin, ...]:
    """Bin top predictions by confidence, (0, 1/15], (1/15, 2/15], … (Guo et al. 2017, eq. 2 and 3)."""
    index = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    result = []
    for i in np.unique(index):
        predicted, correct = confidence[index == i], is_right[index == i]
        error = math.sqrt(float((predicted * (1 - predicted)).sum())) / len(predicted)
        result.append(Bin(len(predicted), float(predicted.mean()), float(correct.mean()), error))
    return tuple(result)


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Return Σ n_b / N · |observed_b − predicted_b| (Guo et al. 2017, eq. 5); 0 if there are no events."""
    total = sum(b.events for b in bins)
    return sum(b.events * abs(b.observed - b.predicted) for b in bins) / total if total else 0.0


def chance_level(bins: Sequence[Bin]) -> tuple[float, float]:
    """Return the mean error of a calibrated model with these confidences, and the 99.5 % quantile.

    Simulated by drawing the hits of each bin; deterministic.
    """
    if not bins:
        return 0.0, 0.0
    n = np.array([b.events for b in bins])
    predicted = np.clip([b.predicted for b in bins], 0.0, 1.0)
    observed = np.random.default_rng(0).binomial(n, predicted, size=(DRAWS, len(bins))) / n
    errors = np.abs(observed - predicted) @ n / n.sum()  # (draws,)
    return float(errors.mean()), float(np.quantile(errors, 0.995))


def is_miscalibrated(bins: Sequence[Bin]) -> bool:
    """Return whether the expected calibration error exceeds what chance explains."""
    mean, quantile = chance_level(bins)
    return expected_calibration_error(bins) > max(MIN_RATIO * mean, quantile) + 1e-9


def describe(bins: Sequence[Bin]) -> str:
    """Describe the least calibrated bin in a clause; empty if no bin is above `MIN_REPORTED`.

    >>> describe([Bin(400, 0.30, 0.20, 0.02)])
    'tokens it gives 30 % occur 20 % of the time: overconfident'
    """
    candidates = [b for b in bins if b.predicted >= MIN_REPORTED]
    if not candidates:
        return ""
    worst = min(candidates, key=lambda b: b.p_value)
    clause = f"tokens it gives {_percent(worst.predicted)} occur {_percent(worst.observed)} of the time"
    if worst.p_value * len(candidates) > SIGNIFICANCE:  # Bonferroni
        return f"no significant miscalibration: at worst, {clause}, which chance can explain"
    return f"{clause}: {'overconfident' if worst.observed < worst.predicted else 'underconfident'}"


def describe_error(bins: Sequence[Bin]) -> str:
    """Describe the expected calibration error of top predictions against its level by chance."""
    error, expected = (100 * deviation for deviation in (expected_calibration_error(bins), chance_level(bins)[0]))
    verdict = "this is more than chance explains" if is_miscalibrated(bins) else "chance can explain this"
    return (
        f"the expected calibration error of its top predictions is {error:.1f} percentage points, against "
        f"{expected:.1f} for a perfectly calibrated model: {verdict}"
    )


def binomial_tail(hits: int, events: int, p: float) -> float:
    """Return P(X ≥ hits) for X ~ Binomial(events, p), for hits not below the mean.

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
    # P(x + 1) / P(x) = (n − x) / (x + 1) · p / (1 − p), below one above the mean; 40 standard deviations suffice.
    most = min(events, hits + 50 + math.ceil(40 * math.sqrt(events * p * (1 - p))))
    x = np.arange(hits, most)
    steps = np.cumsum(np.log((events - x) / (x + 1)) + log_odds)
    return float(min(1.0, math.exp(first) * (1 + np.exp(steps).sum())))


def _sum_by_index(index: Ids, values: Floats, size: int) -> Floats:
    """Return the sum of the values at each index."""
    return np.asarray(np.bincount(index, values, size), dtype=np.float64)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


SIDE: Final = 400  # pixels; both axes have the same scale
LEAST_WRITTEN_OUT: Final = 1e-6  # smaller ticks are written as powers of ten
NAMES_A_ROW: Final = 2
LONGEST_NAME: Final = 24  # characters


def plot_all_tokens(models: Mapping[str, Sequence[Bin]], *, title: str) -> str:
    """Plot the bins of all vocabulary tokens on log scales; error bars are two standard errors."""
    drawable = {name: [b for b in bins if b.predicted > 0] for name, bins in models.items()}
    return _plot(models, drawable, _least(drawable), ("predicted probability", "observed frequency"), title)


def plot_top_predictions(models: Mapping[str, Sequence[Bin]], *, title: str) -> str:
    """Plot the bins of the most probable tokens, axes from 0 to 1; error bars are two standard errors."""
    labels = ("confidence of the top prediction", "accuracy of the top prediction")
    return _plot(models, models, 0.0, labels, title)


def _plot(
    models: Mapping[str, Sequence[Bin]],
    drawable: Mapping[str, Sequence[Bin]],
    least: float,
    labels: tuple[str, str],
    title: str,
) -> str:
    """Plot predicted against observed from `least` to 1, on log scales if `least` is positive."""

    def paint(axes: Any) -> None:
        if least:
            axes.set(xscale="log", yscale="log")
        diagonal = {"ls": (0, (4, 3)), "lw": 1, "color": figures.PALETTE[-1], "label": "perfect calibration"}
        axes.plot([least, 1.0], [least, 1.0], **diagonal)
        for index, (name, bins) in enumerate(drawable.items()):
            _draw(axes, index, name, bins, least)
        axes.set(xlim=(least, 1.0), ylim=(least, 1.0), xlabel=labels[0], ylabel=labels[1])
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=NAMES_A_ROW)
        if least:
            _tick_percentages(axes, least)

    head = 18.0 * -(-(len(models) + 1) // NAMES_A_ROW)  # height of the legend, in pixels
    margins = figures.Margins(left=84, right=16, top=14 + head, bottom=44)
    return figures.render(paint, title, describe_points(models), margins, SIDE + head, SIDE)


def describe_points(models: Mapping[str, Sequence[Bin]]) -> str:
    """Return the points as alternative text."""
    parts = []
    for name, bins in models.items():
        points = ", ".join(f"predicted {b.predicted:.2g}, observed {b.observed:.2g}" for b in bins)
        parts.append(f"{name}: {points or 'no points'}")
    return "; ".join(parts)


def _draw(axes: Any, index: int, name: str, bins: Sequence[Bin], least: float) -> None:
    """Draw the points of one model; bins without hits are triangles on the lower edge."""
    label = f" {name[:LONGEST_NAME]}"  # matplotlib hides labels that begin with an underscore
    colour = figures.PALETTE[index % len(figures.PALETTE)]
    with_hits = [b for b in bins if b.observed > 0 or least == 0]
    without_hits = [b for b in bins if b.observed <= 0 and least > 0]
    predicted, observed = [b.predicted for b in with_hits], [b.observed for b in with_hits]
    below = [min(2 * b.error, b.observed - least) for b in with_hits]
    above = [min(2 * b.error, 1 - b.observed) for b in with_hits]
    style = {"color": colour, "lw": 1.6, "ms": 5, "mew": 0, "clip_on": False}
    errors = [[max(value, 0.0) for value in side] for side in (below, above)]
    axes.errorbar(predicted, observed, yerr=errors, fmt="o-", elinewidth=0.9, label=label, **style)
    axes.plot([max(b.predicted, least) for b in without_hits], [least] * len(without_hits), "v", **style)


def _tick_percentages(axes: Any, least: float) -> None:
    """Label at most six powers of ten as percentages."""
    decades = math.floor(-math.log10(least))
    ticks = [10.0**-k for k in range(0, decades + 1, 1 + decades // 6)]
    names = [f"{100 * tick:.12g} %" if tick >= LEAST_WRITTEN_OUT else f"{100 * tick:.0e} %" for tick in ticks]
    axes.minorticks_off()
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)


def _least(models: Mapping[str, Sequence[Bin]]) -> float:
    """Return the lower axis limit: half of the smallest positive value."""
    values = [value for bins in models.values() for b in bins for value in (b.predicted, b.observed) if value > 0]
    return min([0.5 * value for value in values], default=1e-3)
