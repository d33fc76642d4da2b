"""Plots of a training log: loss, gradient norm, clipping, learning rate, update ratios."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection import plots, svg
from chainrule.inspection.training_findings import TYPICAL_RATIO, format_percent, format_perplexity
from chainrule.inspection.training_log import TrainingLog
from chainrule.lm import Floats

MOST_POINTS: Final = 250  # points of a curve
MOST_BARS: Final = 10
MOST_MATRICES: Final = 8  # lines of the update-ratio plot
CLIPPED: Final = plots.PALETTE[4]  # colour of everything about clipping
LABEL_GAP: Final = 14.0

Runs = Mapping[str, TrainingLog]


class Curve(NamedTuple):
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
    curves = [Curve(name, *downsample(log.step, log.loss)) for name, log in runs.items()]

    def paint(axes: Any) -> None:
        _draw(axes, curves, len(runs) > 1)
        for colour, log in zip(cycle(plots.PALETTE), runs.values(), strict=False):
            validations = log.validations
            if validations is not None and validations.measure == "nats":
                x, y = downsample(validations.step, validations.value)
                axes.plot(x, y, "o", ls=(0, (2, 2)), lw=0.8, ms=5, mew=0, zorder=4, color=colour, clip_on=False)
        axes.autoscale_view()
        axes.yaxis.set_major_formatter(lambda nats, _: _nats_and_perplexity(nats) if is_nats else f"{nats:.3g}")
        _label(axes, "nats per token (perplexity)" if is_nats else "loss")
        _matrixends(axes, curves if len(runs) > 1 else ())

    margins = plots.Margins(left=88, right=_label_width(curves if len(runs) > 1 else ()))
    return plots.render(paint, "Loss by step", description, margins)


def plot_gradient_norm(name: str, log: TrainingLog, *, clip: float | None = None, description: str = "") -> str:
    """Plot mean and largest gradient norm on a log scale, the clipping threshold and the share of clipped steps."""
    norms = [
        Curve("largest", *_positive(*downsample(log.step, log.largest_gradient_norm, np.max))),
        Curve("mean", *_positive(*downsample(log.step, log.gradient_norm))),
    ]

    def paint(axes: Any) -> None:
        share = axes.twinx()
        x, y = downsample(log.step, log.clipped)
        share.fill_between(x, 0, 100 * y, step="pre", color=CLIPPED, alpha=0.2, lw=0)
        share.set(ylim=(0, 100), yticks=(0, 50, 100))
        share.yaxis.set_major_formatter("{x:.0f} %")
        share.grid(visible=False)
        axes.set_yscale("log")
        _draw(axes, norms, True)
        if clip:
            axes.axhline(clip, color=CLIPPED, lw=1.4, ls=(0, (5, 2)), label=f"clip, {clip:g}")
        axes.autoscale_view()
        _tick_decades(axes)
        _label(axes, "gradient norm; filled: clipped steps", above=38)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handlelength=1.4)

    return plots.render(
        paint, f"Gradient norm by step, {name}", description, plots.Margins(left=54, right=54, top=54)
    )


def plot_clipping(name: str, log: TrainingLog, *, description: str = "") -> str:
    """Plot the share of clipped steps caused by each matrix, in per cent."""
    shares = list(log.clipping_shares.items())
    shown = dict(shares[:MOST_BARS])
    if len(shares) > MOST_BARS:
        shown[f"{len(shares) - MOST_BARS} others"] = sum(share for _, share in shares[MOST_BARS:])

    def paint(axes: Any) -> None:
        rows = range(len(shown))
        drawn = axes.barh(rows, [100 * share for share in shown.values()], height=0.66, color=CLIPPED)
        for bar in drawn:
            bar.set(alpha=0.8, clip_on=False)
        axes.bar_label(
            drawn, [format_percent(share) for share in shown.values()], padding=4, fontsize=plots.FONT_SIZE
        )
        axes.set_yticks(rows, [plots.shorten(matrix) for matrix in shown])
        axes.invert_yaxis()
        axes.set(xlim=(0, 100), xlabel="share of the clipped steps, %")
        axes.grid(visible=False)

    margins = plots.Margins(left=16 + max(map(plots.text_width, shown)), right=64, top=8)
    return plots.render(paint, f"Clipped steps by matrix, {name}", description, margins, 58 + 24 * len(shown))


def plot_learning_rate(runs: Runs, *, description: str = "") -> str:
    """Plot the learning rate by step, all runs on one axis."""
    curves = [Curve(name, *downsample(log.step, log.learning_rate)) for name, log in runs.items()]

    def paint(axes: Any) -> None:
        _draw(axes, curves, len(runs) > 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:.3g}")
        _label(axes, "learning rate")
        _matrixends(axes, curves if len(runs) > 1 else ())

    margins = plots.Margins(left=58, right=_label_width(curves if len(runs) > 1 else ()))
    return plots.render(paint, "Learning rate by step", description, margins, 220)


def plot_update_ratio(name: str, log: TrainingLog, *, description: str = "") -> str:
    """Plot ‖Δθ‖ / ‖θ‖ by step on a log scale, one line per matrix, with the typical 10⁻³ marked."""
    curves = [
        Curve(matrix, *_positive(*downsample(log.step, log.update_ratio[matrix], np.median)))
        for matrix in select_matrices(log)
    ]

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        _draw(axes, curves, True)
        axes.axhline(TYPICAL_RATIO, color=svg.INK, lw=1, ls=(0, (1, 2)), alpha=0.7)
        axes.autoscale_view()
        _tick_decades(axes)
        _label(axes, "‖Δθ‖ / ‖θ‖ per step; dotted: 10⁻³")
        _matrixends(axes, curves)

    margins = plots.Margins(left=54, right=_label_width(curves))
    return plots.render(paint, f"Update-to-weight ratio by step, {name}", description, margins)


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


def _draw(axes: Any, curves: Sequence[Curve], is_coloured: bool) -> None:
    for index, (colour, curve) in enumerate(zip(cycle(plots.PALETTE), curves, strict=False)):
        dash = plots.DASHES[index // len(plots.PALETTE) % len(plots.DASHES)]
        marker = "o" if len(curve.x) == 1 else ""  # a single point needs a marker
        weight = 1.6 if is_coloured else 1.9
        axes.plot(curve.x, curve.y, marker=marker, ms=4, mew=0, ls=dash, lw=weight, color=colour, label=curve.name)
    axes.margins(x=0.02, y=0.08)
    axes.set_xlabel("steps")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5, integer=True)


def _label(axes: Any, quantity: str, above: float = 20) -> None:
    """Write the y label horizontally, `above` pixels over the axis."""
    at = (2, axes.get_window_extent().y1 + above)
    axes.annotate(quantity, at, xycoords="figure pixels", annotation_clip=False)


def _matrixends(axes: Any, curves: Sequence[Curve]) -> None:
    """Label each line to the right of its end."""
    coloured = zip(curves, cycle(plots.PALETTE), strict=False)
    ends = [
        plots.LineEnd(curve.name, float(curve.x[-1]), float(curve.y[-1]), colour)
        for curve, colour in coloured
        if len(curve.x)
    ]
    plots.label_line_ends(axes, ends[: plots.MOST_LABELS], away=16, gap=LABEL_GAP)


def _label_width(curves: Sequence[Curve]) -> float:
    return 16 + max((20 + plots.text_width(curve.name) for curve in curves), default=0.0)


def _nats_and_perplexity(nats: float) -> str:
    """Return a tick label such as `8 (2,980)`."""
    return f"{nats:.3g} ({format_perplexity(nats)})"


def _tick_decades(axes: Any) -> None:
    """Set ticks at powers of ten, with intermediate ticks if there are few."""
    low, high = sorted(axes.yaxis.get_view_interval())
    plots.set_log_ticks(axes.yaxis, (1.0, 2.0, 5.0) if math.log10(high / low) < 2 else (1.0,))
