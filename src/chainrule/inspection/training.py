"""The training section: loss, gradient norm, clipping, learning rate and update ratios from the training log."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from chainrule.config import flatten
from chainrule.errors import InputError
from chainrule.inspection.report import Figure, Finding, Section, round_for_json, strip_tags
from chainrule.inspection.text_excerpt import Sample
from chainrule.lm import Floats
from chainrule.plots import figures
from chainrule.plots.html import escape
from chainrule.progress import Progress, silent
from chainrule.training.diagnostics import MOSTLY_CLIPPED

LOG_NAME = "train_log.jsonl"
COLUMNS: Final = ("step", "loss", "learning_rate", "gradient_norm", "largest_gradient_norm", "clipped")
MIN_LINES = 3  # fewest lines of a tenth from which noise can be estimated
Measure = Literal["nats", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validations:
    """Validation results, lower is better; one entry per validation."""

    step: Floats  # (v,)
    epoch: Floats  # (v,) completed epochs
    value: Floats  # (v,) nats per token, or an error rate
    measure: Measure = "nats"

    @property
    def best(self) -> int:
        """Index of the lowest value, the first among ties."""
        return int(np.argmin(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLog:
    """The n lines of a training log; NaN where a line has no value."""

    step: Floats  # (n,) number of updates so far
    loss: Floats  # (n,) nats per token over the steps since the previous line
    learning_rate: Floats  # (n,)
    gradient_norm: Floats  # (n,) mean, before clipping
    largest_gradient_norm: Floats  # (n,)
    clipped: Floats  # (n,) share of the steps
    clipped_by: Mapping[str, Floats] = field(
        default_factory=dict
    )  # (n,) clipped steps by the matrix with the largest gradient
    gradient_norms: Mapping[str, Floats] = field(default_factory=dict)  # (n,) root mean square per matrix
    update_ratio: Mapping[str, Floats] = field(default_factory=dict)  # (n,) ‖Δθ‖ / ‖θ‖ per matrix
    validations: Validations | None = None

    @property
    def steps(self) -> Floats:
        """(n,) number of steps covered by each line."""
        return np.maximum(1.0, np.diff(self.step, prepend=0.0))

    @property
    def clipped_share(self) -> float:
        """Share of all steps that were clipped."""
        is_known = np.isfinite(self.clipped)
        steps = self.steps[is_known]
        return float(self.clipped[is_known] @ steps / steps.sum()) if len(steps) else 0.0

    @property
    def clipping_shares(self) -> dict[str, float]:
        """Share of the clipped steps caused by each matrix, largest first; empty if none is recorded."""
        counts = {name: float(np.nansum(values)) for name, values in self.clipped_by.items()}
        total = sum(counts.values())
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return {name: count / total for name, count in ranked if count}

    @property
    def median_update_ratio(self) -> dict[str, float]:
        """Median ‖Δθ‖ / ‖θ‖ of each matrix while the learning rate was above half its peak, ascending."""
        rate = np.nan_to_num(self.learning_rate)
        is_full = rate >= 0.5 * rate.max()
        ratios = {name: values[is_full & np.isfinite(values)] for name, values in self.update_ratio.items()}
        medians = {name: float(np.median(values)) for name, values in ratios.items() if len(values)}
        return dict(sorted(medians.items(), key=lambda item: (item[1], item[0])))


@dataclass(frozen=True, slots=True)
class LossChange:
    """Change of the mean loss between two parts of a run."""

    before: float
    after: float
    error: float  # standard error of the difference
    lines: int  # lines in both parts

    @property
    def significant_change(self) -> float:
        """The decrease that noise alone exceeds with probability 1 %, if the loss does not change.

        Student's t with lines − 3 degrees of freedom, by the first terms of Fisher's expansion at z = 2.326.
        """
        z, degrees = 2.326, float(self.lines - 3)
        terms = (
            z,
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return self.error * sum(term / degrees**power for power, term in enumerate(terms))


def change_in_last_tenth(log: TrainingLog) -> LossChange | None:
    """Compare the mean loss of the last two tenths; None if either has too few lines to estimate noise."""
    return _change_between(log, (0.8, 0.9), (0.9, 1.0))


def change_since(log: TrainingLog, step: float) -> LossChange | None:
    """Compare the tenth of the run that ends at `step` with the last tenth, or with what follows `step` if less.

    None if either part has too few lines to estimate noise.
    """
    position = step / float(log.step[-1])
    return _change_between(log, (position - 0.1, position), (max(position, 0.9), 1.0))


def _change_between(log: TrainingLog, *spans: tuple[float, float]) -> LossChange | None:
    """Compare two parts of the run; noise is estimated around a common slope."""
    position = log.step / log.step[-1]
    means, x_parts, y_parts = [], [], []
    for low, high in spans:
        is_inside = (position > low + 1e-9) & (position <= high + 1e-9) & np.isfinite(log.loss)
        losses = log.loss[is_inside]
        if len(losses) < MIN_LINES:
            return None
        means.append(float(np.average(losses, weights=log.steps[is_inside])))
        x_parts.append(position[is_inside] - position[is_inside].mean())
        y_parts.append(losses - losses.mean())
    x, y = np.concatenate(x_parts), np.concatenate(y_parts)
    residuals = y - x * (x @ y) / ((x @ x) or 1.0)
    variance = float(residuals @ residuals) / (len(y) - 3)  # two means and a slope were fitted
    return LossChange(means[0], means[1], (variance * sum(1 / len(part) for part in y_parts)) ** 0.5, len(y))


def mean_loss_before(log: TrainingLog, step: float) -> float:
    """Return the mean training loss over the tenth of the run that ends at `step`; infinite if unknown."""
    is_near = (log.step <= step) & (log.step > step - 0.1 * log.step[-1]) & np.isfinite(log.loss)
    return float(np.average(log.loss[is_near], weights=log.steps[is_near])) if is_near.any() else float("inf")


def parse(content: bytes, name: str = LOG_NAME) -> TrainingLog | None:
    """Parse a log; None if it has no steps. An incomplete last line is ignored."""
    entries = _entries(content, name)
    lines = [entry for entry in entries if "event" not in entry and _number(entry.get("step")) > 0]
    if not lines:
        return None
    return TrainingLog(
        **{key: _column(lines, key) for key in COLUMNS},
        clipped_by=_columns(lines, "clipped_by", missing=0.0),
        gradient_norms=_columns(lines, "gradient_norms"),
        update_ratio=_columns(lines, "update_ratio"),
        validations=_validations([entry for entry in entries if entry.get("event") == "validation"]),
    )


def _entries(content: bytes, name: str) -> list[dict[str, Any]]:
    entries = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # incomplete last line of a killed run
                break
            raise InputError(f"{name}, line {number} is not JSON ({error}); remove that line") from error
        if not isinstance(entry, dict):
            raise InputError(f"{name}, line {number} is not a JSON object; remove that line")
        entries.append(entry)
    return entries


def _validations(lines: Sequence[Mapping[str, Any]]) -> Validations | None:
    measure: Measure = "error" if any("error" in line for line in lines) else "nats"
    finite = [line for line in lines if np.isfinite(_number(line.get(measure)))]
    if not finite:
        return None
    step, epoch, value = (_column(finite, key) for key in ("step", "epoch", measure))
    return Validations(step=step, epoch=epoch, value=value, measure=measure)


def _columns(lines: Sequence[Mapping[str, Any]], key: str, missing: float = float("nan")) -> dict[str, Floats]:
    """Return one array per name under `key`; `missing` if a line has the key without the name."""
    parts = [line.get(key) for line in lines]
    names = dict.fromkeys(name for part in parts if isinstance(part, dict) for name in part)

    def value(part: Any, name: str) -> float:
        return _number(part.get(name, missing)) if isinstance(part, dict) else float("nan")

    return {name: np.array([value(part, name) for part in parts]) for name in names}


def _column(lines: Sequence[Mapping[str, Any]], key: str) -> Floats:
    return np.array([_number(line.get(key)) for line in lines])


def _number(value: Any) -> float:
    """Return a finite float, or NaN for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else float("nan")
    except OverflowError:  # an integer beyond the range of float64
        return float("nan")
    return number if np.isfinite(number) else float("nan")


MIN_CHANGE: Final = 0.005  # nats: smaller changes of the loss are ignored
LEAST_RISE: Final = 0.03  # nats of validation loss, 3 % in perplexity: above run-to-run noise
SINGLE_RISE: Final = 0.1  # required rise if only one validation follows the best
MIN_FALL_FEW_LINES: Final = 0.02  # required fall of the training loss if its noise is unknown
MIN_STEPS: Final = 50  # shorter runs are not checked for small updates
SMALL_RATIO: Final = 1e-4  # ‖Δθ‖ / ‖θ‖ per step below which a matrix hardly changes
MAX_NAMED: Final = 3  # matrices named in a sentence
TYPICAL_RATIO: Final = 1e-3  # rule of thumb

OVERFITTING, SMALL_UPDATES, STILL_IMPROVING, CLIPPED = range(4)
Diagnosis = tuple[int, str]
"""(priority, lowest first; sentence)."""


def diagnose(log: TrainingLog, clip: float | None = None) -> list[Diagnosis]:
    """Return the findings of a run, most important first."""
    candidates = (_overfitting(log), _small_updates(log), _clipping(log, clip), _still_improving(log))
    return sorted(finding for finding in candidates if finding is not None)


def _overfitting(log: TrainingLog) -> Diagnosis | None:
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


def _small_updates(log: TrainingLog) -> Diagnosis | None:
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


def _clipping(log: TrainingLog, clip: float | None) -> Diagnosis | None:
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
    """Return a clause naming the matrix with the largest gradient, such as `, 9 of 10 times because of W`."""
    if not shares:
        return ""
    name, share = next(iter(shares.items()))
    tenths = round(10 * share)
    if share == 1:
        return f", every time because of {name}"
    if tenths == 10:
        return f", nearly every time because of {name}"
    return (
        f", {tenths} of 10 times because of {name}"
        if tenths >= 5
        else f", most often ({format_percent(share)}) because of {name}"
    )


def _still_improving(log: TrainingLog) -> Diagnosis | None:
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


MOST_POINTS: Final = 250  # points of a curve
MOST_BARS: Final = 10
MOST_MATRICES: Final = 8  # lines of the update-ratio plot
CLIP_COLOR: Final = figures.PALETTE[4]  # colour of everything about clipping
LABEL_GAP: Final = 14.0

Runs = Mapping[str, TrainingLog]


class Line(NamedTuple):
    """A labelled line of finite points."""

    name: str
    x: Floats
    y: Floats


def downsample(
    x: Floats, y: Floats, by: Callable[[Floats], Any] = np.mean, most: int = MOST_POINTS
) -> tuple[Floats, Floats]:
    """Reduce to at most `most` finite points: neighbours are merged at their last x, with `by` applied to y.

    >>> downsample(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 5.0, 9.0]), most=2)
    (array([2., 4.]), array([2., 7.]))
    """
    is_number = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_number], y[is_number]
    if len(x) <= most:
        return x, y
    groups = np.array_split(np.arange(len(x)), most)
    return np.array([x[group[-1]] for group in groups]), np.array([by(y[group]) for group in groups])


def plot_loss(runs: Runs, *, description: str = "", is_nats: bool = True) -> str:
    """Plot training loss as lines and validation loss as points, all runs on one axis; ticks include perplexity."""
    curves = [Line(name, *downsample(log.step, log.loss)) for name, log in runs.items()]

    def paint(axes: Any) -> None:
        _draw(axes, curves, len(runs) > 1)
        for colour, log in zip(cycle(figures.PALETTE), runs.values(), strict=False):
            validations = log.validations
            if validations is not None and validations.measure == "nats":
                x, y = downsample(validations.step, validations.value)
                axes.plot(x, y, "o", ls=(0, (2, 2)), lw=0.8, ms=5, mew=0, zorder=4, color=colour, clip_on=False)
        axes.autoscale_view()
        axes.yaxis.set_major_formatter(lambda nats, _: _nats_and_perplexity(nats) if is_nats else f"{nats:.3g}")
        figures.label_axes(axes, "steps", "nats per token (perplexity)" if is_nats else "loss", above=20)
        _label_ends(axes, curves if len(runs) > 1 else ())

    margins = figures.Margins(left=88, right=_label_width(curves if len(runs) > 1 else ()))
    return figures.render(paint, "Loss by step", description, margins)


def plot_gradient_norm(name: str, log: TrainingLog, *, clip: float | None = None, description: str = "") -> str:
    """Plot mean and largest gradient norm on a log scale, the clipping threshold and the share of clipped steps."""
    norms = [
        Line("largest", *_positive(*downsample(log.step, log.largest_gradient_norm, np.max))),
        Line("mean", *_positive(*downsample(log.step, log.gradient_norm))),
    ]

    def paint(axes: Any) -> None:
        share = axes.twinx()
        x, y = downsample(log.step, log.clipped)
        share.fill_between(x, 0, 100 * y, step="pre", color=CLIP_COLOR, alpha=0.2, lw=0)
        share.set(ylim=(0, 100), yticks=(0, 50, 100))
        share.yaxis.set_major_formatter("{x:.0f} %")
        share.grid(visible=False)
        axes.set_yscale("log")
        _draw(axes, norms, True)
        if clip:
            axes.axhline(clip, color=CLIP_COLOR, lw=1.4, ls=(0, (5, 2)), label=f"clip, {clip:g}")
        axes.autoscale_view()
        figures.set_log_ticks(axes.yaxis, (1.0, 2.0, 5.0), below=2)
        figures.label_axes(axes, "steps", "gradient norm; filled: clipped steps", above=38)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handlelength=1.4)

    return figures.render(
        paint, f"Gradient norm by step, {name}", description, figures.Margins(left=54, right=54, top=54)
    )


def plot_clipping(name: str, log: TrainingLog, *, description: str = "") -> str:
    """Plot the share of clipped steps caused by each matrix, in per cent."""
    shares = list(log.clipping_shares.items())
    shown = dict(shares[:MOST_BARS])
    if len(shares) > MOST_BARS:
        shown[f"{len(shares) - MOST_BARS} others"] = sum(share for _, share in shares[MOST_BARS:])

    def paint(axes: Any) -> None:
        percent = {matrix: 100 * share for matrix, share in shown.items()}
        labels = [format_percent(share) for share in shown.values()]
        quantity = "share of the clipped steps, %"
        figures.draw_bars(axes, percent, labels, quantity, [0.8] * len(shown), CLIP_COLOR)
        axes.set_xlim(0, 100)

    margins = figures.Margins(left=16 + max(map(figures.text_width, shown)), right=64, top=8)
    return figures.render(paint, f"Clipped steps by matrix, {name}", description, margins, 58 + 24 * len(shown))


def plot_learning_rate(runs: Runs, *, description: str = "") -> str:
    """Plot the learning rate by step, all runs on one axis."""
    curves = [Line(name, *downsample(log.step, log.learning_rate)) for name, log in runs.items()]

    def paint(axes: Any) -> None:
        _draw(axes, curves, len(runs) > 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:.3g}")
        figures.label_axes(axes, "steps", "learning rate", above=20)
        _label_ends(axes, curves if len(runs) > 1 else ())

    margins = figures.Margins(left=58, right=_label_width(curves if len(runs) > 1 else ()))
    return figures.render(paint, "Learning rate by step", description, margins, 220)


def plot_update_ratio(name: str, log: TrainingLog, *, description: str = "") -> str:
    """Plot ‖Δθ‖ / ‖θ‖ by step on a log scale, one line per matrix, with the typical 10⁻³ marked."""
    curves = [
        Line(matrix, *_positive(*downsample(log.step, log.update_ratio[matrix], np.median)))
        for matrix in select_matrices(log)
    ]

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        _draw(axes, curves, True)
        axes.axhline(TYPICAL_RATIO, color=figures.INK, lw=1, ls=(0, (1, 2)), alpha=0.7)
        axes.autoscale_view()
        figures.set_log_ticks(axes.yaxis, (1.0, 2.0, 5.0), below=2)
        figures.label_axes(axes, "steps", "‖Δθ‖ / ‖θ‖ per step; dotted: 10⁻³", above=20)
        _label_ends(axes, curves)

    margins = figures.Margins(left=54, right=_label_width(curves))
    return figures.render(paint, f"Update-to-weight ratio by step, {name}", description, margins)


def select_matrices(log: TrainingLog) -> list[str]:
    """Return the matrices to plot: all, or those with the smallest and the largest ratios."""
    ranked = [name for name in log.median_update_ratio if (np.nan_to_num(log.update_ratio[name]) > 0).any()]
    if len(ranked) <= MOST_MATRICES:
        return ranked[::-1]
    half = MOST_MATRICES // 2
    return (ranked[:half] + ranked[-half:])[::-1]


def _positive(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Keep the points that a log scale can show."""
    return x[y > 0], y[y > 0]


def _draw(axes: Any, curves: Sequence[Line], is_coloured: bool) -> None:
    for index, (colour, curve) in enumerate(zip(cycle(figures.PALETTE), curves, strict=False)):
        dash = figures.DASHES[index // len(figures.PALETTE) % len(figures.DASHES)]
        marker = "o" if len(curve.x) == 1 else ""  # a single point needs a marker
        weight = 1.6 if is_coloured else 1.9
        axes.plot(curve.x, curve.y, marker=marker, ms=4, mew=0, ls=dash, lw=weight, color=colour, label=curve.name)
    axes.margins(x=0.02, y=0.08)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5, integer=True)


def _label_ends(axes: Any, curves: Sequence[Line]) -> None:
    """Label each line to the right of its end."""
    coloured = zip(curves, cycle(figures.PALETTE), strict=False)
    ends = [
        figures.LineEnd(curve.name, float(curve.x[-1]), float(curve.y[-1]), colour)
        for curve, colour in coloured
        if len(curve.x)
    ]
    figures.label_line_ends(axes, ends[: figures.MOST_LABELS], away=16, gap=LABEL_GAP)


def _label_width(curves: Sequence[Line]) -> float:
    return 16 + max(map(figures.text_width, [curve.name for curve in curves]), default=-20.0) + 20


def _nats_and_perplexity(nats: float) -> str:
    """Return a tick label such as `8 (2,980)`."""
    return f"{nats:.3g} ({format_perplexity(nats)})"


BY_NOISE: Final = ("nce", "sampled")  # output layers whose training loss is not a log-probability


def section(samples: Sequence[Sample], *, progress: Progress = silent) -> Section | None:
    """Return the training curves of these models; None if none has a log."""
    samples_by_name = {sample.name: sample for sample in samples}
    logs: dict[str, TrainingLog] = {}
    for name, sample in samples_by_name.items():
        log = parse(getattr(sample.model.lm, "log", b""), f"{name}, train_log.jsonl")
        if log is not None:
            logs[name] = log
    if not logs:
        return None
    clips = {name: flatten(samples_by_name[name].model.config).get("clip") for name in logs}
    outputs = {name: flatten(samples_by_name[name].model.config).get("output") for name in logs}
    unnormalized = [name for name in logs if outputs[name] in BY_NOISE]
    figures = [_loss(logs, unnormalized)]
    for done, (name, log) in enumerate(logs.items()):
        progress("drawing the training", done, len(logs))
        figures += _figures(name, log, clips[name], f"-{done + 1}" if len(logs) > 1 else "")
    figures.append(_learning_rate(logs))
    return Section(
        name="training",
        title="Training",
        findings=_findings(logs, clips, is_named=len(samples_by_name) > 1),
        figures=tuple(figures),
        data={name: _data(log, clips[name]) for name, log in logs.items()},
        arrays={f"{name}/{key}": values for name, log in logs.items() for key, values in _arrays(log).items()},
    )


def _findings(
    logs: Mapping[str, TrainingLog], clips: Mapping[str, float | None], *, is_named: bool
) -> tuple[Finding, ...]:
    """Return the diagnoses of all models, most important first, with the model if there are several."""
    diagnoses = [(*diagnosis, name) for name, log in logs.items() for diagnosis in diagnose(log, clips[name])]
    ranked = sorted(diagnoses, key=lambda diagnosis: diagnosis[0])
    return tuple(Finding(name if is_named else None, sentence) for _, sentence, name in ranked)


def _loss(logs: Mapping[str, TrainingLog], unnormalized: Sequence[str]) -> Figure:
    ends = "; ".join(f"{escape(name)}: {_last(log, name in unnormalized)}" for name, log in logs.items())
    caption = (
        "Training loss by step (lines) and validation loss (points), in nats per token; lower is better. Training "
        "loss is measured with dropout and can be above validation loss. Validation rising while training falls "
        "means overfitting. "
        f"At the end (training: the last tenth of the run): {ends}."
    )
    if unnormalized:
        caption += (
            f" The training loss of {', '.join(map(escape, unnormalized))} is that of noise-contrastive or sampled "
            "training, not a log-probability: compare the validation points only."
        )
    drawing = plot_loss(logs, description=strip_tags(caption), is_nats=not unnormalized)
    return Figure(name="loss", drawing=drawing, caption=caption)


def _last(log: TrainingLog, is_noisy: bool) -> str:
    nats = mean_loss_before(log, float(log.step[-1]))
    training = f"training {nats:.2f}" if is_noisy else f"training {format_value(nats, 'nats')}"
    summary = training if np.isfinite(nats) else "training loss unknown"
    valid = log.validations
    return (
        summary if valid is None else f"{summary}, validation {format_value(float(valid.value[-1]), valid.measure)}"
    )


def _figures(name: str, log: TrainingLog, clip: float | None, suffix: str) -> list[Figure]:
    """Return the figures of one model."""
    who = f" of {escape(name)}" if suffix else ""
    figures = []
    if (np.nan_to_num(log.largest_gradient_norm) > 0).any():
        figures.append(_gradient_norm(name, log, clip, who, suffix))
    if log.clipping_shares:
        figures.append(_clipped_by(name, log, who, suffix))
    if select_matrices(log):
        figures.append(_update_ratio(name, log, who, suffix))
    return figures


def _gradient_norm(name: str, log: TrainingLog, clip: float | None, who: str, suffix: str) -> Figure:
    line = f" Gradients above the dashed line, clip = {clip:g}, are scaled down to it." if clip else ""
    caption = (
        f"Gradient norm{who} before clipping, on a log scale: mean and maximum over the steps between two lines of "
        f"the log.{line} Filled (right axis): share of clipped steps, {format_percent(log.clipped_share)} over the "
        "whole run."
    )
    drawing = plot_gradient_norm(name, log, clip=clip, description=strip_tags(caption))
    return Figure(name=f"gradient-norm{suffix}", drawing=drawing, caption=caption)


def _clipped_by(name: str, log: TrainingLog, who: str, suffix: str) -> Figure:
    steps = round(sum(float(np.nansum(values)) for values in log.clipped_by.values()))
    caption = (
        f"Cause of the {steps:,} clipped steps{who}: share in which the matrix had the largest part of the squared "
        "gradient norm. A single dominant matrix determines how much all others are scaled down."
    )
    drawing = plot_clipping(name, log, description=strip_tags(caption))
    return Figure(name=f"clipped-by{suffix}", drawing=drawing, caption=caption)


def _update_ratio(name: str, log: TrainingLog, who: str, suffix: str) -> Figure:
    total, shown = len(log.update_ratio), len(select_matrices(log))
    which = (
        f" Shown are the {shown} of {total} matrices with the smallest and largest ratios." if shown < total else ""
    )
    caption = (
        f"Update-to-weight ratio of each matrix{who}, ‖Δθ‖ / ‖θ‖ per step, on a log scale. About 10⁻³ (dotted) is "
        "typical; far below it a matrix hardly learns, above 10⁻² training is likely unstable. "
        f"The ratio falls with the learning rate.{which}"
    )
    drawing = plot_update_ratio(name, log, description=strip_tags(caption))
    return Figure(name=f"update-ratio{suffix}", drawing=drawing, caption=caption)


def _learning_rate(logs: Mapping[str, TrainingLog]) -> Figure:
    caption = "Learning rate by step, as set by the schedule."
    drawing = plot_learning_rate(logs, description=caption)
    return Figure(name="learning-rate", drawing=drawing, caption=caption)


def _data(log: TrainingLog, clip: float | None) -> dict[str, Any]:
    keys = ("loss", "learning_rate", "gradient_norm", "clipped")
    curves = {key: downsample(log.step, getattr(log, key)) for key in keys}
    curves["largest_gradient_norm"] = downsample(log.step, log.largest_gradient_norm, np.max)
    valid = log.validations
    return {
        "steps": int(log.step[-1]),
        "clip": clip,
        "clipped_share": log.clipped_share,
        "clipped_by": log.clipping_shares,
        "usual_update_ratio": log.median_update_ratio,
        "curves": {key: list(map(round_for_json, points)) for key, points in curves.items()},
        "validation": None
        if valid is None
        else {"measure": valid.measure}
        | {key: round_for_json(getattr(valid, key)) for key in ("step", "epoch", "value")},
    }


def _arrays(log: TrainingLog) -> dict[str, Floats]:
    arrays = {key: getattr(log, key) for key in COLUMNS}
    for key in ("clipped_by", "gradient_norms", "update_ratio"):
        arrays |= {f"{key}/{name}": values for name, values in getattr(log, key).items()}
    if log.validations is not None:
        arrays |= {"validation/step": log.validations.step, "validation/value": log.validations.value}
    return arrays
