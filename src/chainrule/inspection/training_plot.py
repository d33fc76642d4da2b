"""The log of a run as pictures: loss, gradient norm, what was clipped and why, learning rate, size of the updates.

Lives here: records in, one `<svg>` each out. Not here: reading the log (training_log.py), captions and words
(microscope/training.py).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection import plots, svg
from chainrule.inspection.training_findings import USUAL, per_cent, perplexity
from chainrule.inspection.training_log import TrainingLog
from chainrule.lm import Floats

MOST_POINTS: Final = 250  # of a curve
MOST_BARS: Final = 10
MOST_MATRICES: Final = 8  # of which update ratios are drawn
CLIPPED: Final = plots.PALETTE[4]  # the colour of all that is said of clipping
LABEL_GAP: Final = 14.0

Runs = Mapping[str, TrainingLog]


class Curve(NamedTuple):
    """A line with its name at its end; finite points alone."""

    name: str
    x: Floats
    y: Floats


def thin(
    x: Floats, y: Floats, by: Callable[[Floats], Any] = np.mean, most: int = MOST_POINTS
) -> tuple[Floats, Floats]:
    """At most so many points, finite ones: neighbours become one, at the last x and with `by` of their y.

    >>> thin(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 5.0, 9.0]), most=2)
    (array([2., 4.]), array([2., 7.]))
    """
    is_number = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_number], y[is_number]
    if len(x) <= most:
        return x, y
    groups = np.array_split(np.arange(len(x)), most)
    return np.array([x[group[-1]] for group in groups]), np.array([by(y[group]) for group in groups])


def loss(runs: Runs, *, description: str = "", is_nats: bool = True) -> str:
    """Training loss as lines and validation as points, all runs on one axis; ticks give the perplexity, too."""
    curves = [Curve(name, *thin(log.step, log.loss)) for name, log in runs.items()]

    def paint(axes: Any) -> None:
        _draw(axes, curves, len(runs) > 1)
        for colour, log in zip(cycle(plots.PALETTE), runs.values(), strict=False):
            found = log.validations
            if found is not None and found.measure == "nats":
                x, y = thin(found.step, found.value)
                axes.plot(x, y, "o", ls=(0, (2, 2)), lw=0.8, ms=5, mew=0, zorder=4, color=colour, clip_on=False)
        axes.autoscale_view()
        axes.yaxis.set_major_formatter(lambda nats, _: _nats_and_perplexity(nats) if is_nats else f"{nats:.3g}")
        _label(axes, "nats a token (perplexity)" if is_nats else "loss")
        _name_ends(axes, curves if len(runs) > 1 else ())

    margins = plots.Margins(left=88, right=_room(curves if len(runs) > 1 else ()))
    return plots.render(paint, "Loss by step", description, margins)


def gradient_norm(name: str, log: TrainingLog, *, clip: float | None = None, description: str = "") -> str:
    """Mean and largest norm on a log scale, the clip line, and behind them how many of the steps were clipped."""
    norms = [
        Curve("largest", *_positive(*thin(log.step, log.largest_gradient_norm, np.max))),
        Curve("mean", *_positive(*thin(log.step, log.gradient_norm))),
    ]

    def paint(axes: Any) -> None:
        share = axes.twinx()
        x, y = thin(log.step, log.clipped)
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
        _label(axes, "norm of the gradient; filled: steps clipped", above=38)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handlelength=1.4)

    return plots.render(
        paint, f"Gradient norm by step, {name}", description, plots.Margins(left=54, right=54, top=54)
    )


def clipped_by(name: str, log: TrainingLog, *, description: str = "") -> str:
    """One bar a matrix: its part of the clipped steps, in per cent."""
    shares = list(log.blame.items())
    shown = dict(shares[:MOST_BARS])
    if len(shares) > MOST_BARS:
        shown[f"{len(shares) - MOST_BARS} others"] = sum(share for _, share in shares[MOST_BARS:])

    def paint(axes: Any) -> None:
        places = range(len(shown))
        drawn = axes.barh(places, [100 * share for share in shown.values()], height=0.66, color=CLIPPED)
        for bar in drawn:
            bar.set(alpha=0.8, clip_on=False)
        axes.bar_label(drawn, [per_cent(share) for share in shown.values()], padding=4, fontsize=plots.FONT_SIZE)
        axes.set_yticks(places, [plots.shorten(each) for each in shown])
        axes.invert_yaxis()
        axes.set(xlim=(0, 100), xlabel="part of the clipped steps, per cent")
        axes.grid(visible=False)

    margins = plots.Margins(left=16 + max(map(plots.text_width, shown)), right=64, top=8)
    return plots.render(paint, f"What the clipping came from, {name}", description, margins, 58 + 24 * len(shown))


def learning_rate(runs: Runs, *, description: str = "") -> str:
    """The rate by step, all runs on one axis."""
    curves = [Curve(name, *thin(log.step, log.learning_rate)) for name, log in runs.items()]

    def paint(axes: Any) -> None:
        _draw(axes, curves, len(runs) > 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:.3g}")
        _label(axes, "learning rate")
        _name_ends(axes, curves if len(runs) > 1 else ())

    margins = plots.Margins(left=58, right=_room(curves if len(runs) > 1 else ()))
    return plots.render(paint, "Learning rate by step", description, margins, 220)


def update_ratio(name: str, log: TrainingLog, *, description: str = "") -> str:
    """‖Δθ‖ / ‖θ‖ by step on a log scale, a line a matrix, with the usual 10⁻³ marked."""
    curves = [Curve(each, *_positive(*thin(log.step, log.update_ratio[each], np.median))) for each in drawn(log)]

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        _draw(axes, curves, True)
        axes.axhline(USUAL, color=svg.INK, lw=1, ls=(0, (1, 2)), alpha=0.7)
        axes.autoscale_view()
        _tick_decades(axes)
        _label(axes, "‖Δθ‖ / ‖θ‖ of a step; dotted: 10⁻³")
        _name_ends(axes, curves)

    margins = plots.Margins(left=54, right=_room(curves))
    return plots.render(paint, f"Update-to-weight ratio by step, {name}", description, margins)


def drawn(log: TrainingLog) -> list[str]:
    """The matrices whose ratios are drawn: all, or of many those with the least and those with the most."""
    ranked = [name for name in log.usual_ratio if (np.nan_to_num(log.update_ratio[name]) > 0).any()]
    if len(ranked) <= MOST_MATRICES:
        return ranked[::-1]
    half = MOST_MATRICES // 2
    return (ranked[:half] + ranked[-half:])[::-1]


def _positive(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """What a log scale can show."""
    return x[y > 0], y[y > 0]


def _draw(axes: Any, curves: Sequence[Curve], is_coloured: bool) -> None:
    for place, (colour, curve) in enumerate(zip(cycle(plots.PALETTE), curves, strict=False)):
        dash = plots.DASHES[place // len(plots.PALETTE) % len(plots.DASHES)]
        mark = "o" if len(curve.x) == 1 else ""  # one point is no line
        weight = 1.6 if is_coloured else 1.9
        axes.plot(curve.x, curve.y, marker=mark, ms=4, mew=0, ls=dash, lw=weight, color=colour, label=curve.name)
    axes.margins(x=0.02, y=0.08)
    axes.set_xlabel("steps")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5, integer=True)


def _label(axes: Any, quantity: str, above: float = 20) -> None:
    """The name of y stands level above its numbers, by so many pixels."""
    at = (2, axes.get_window_extent().y1 + above)
    axes.annotate(quantity, at, xycoords="figure pixels", annotation_clip=False)


def _name_ends(axes: Any, curves: Sequence[Curve]) -> None:
    """Each name to the right of its line, moved up or down where names would touch."""
    coloured = zip(curves, cycle(plots.PALETTE), strict=False)
    ends = [plots.End(each.name, float(each.x[-1]), float(each.y[-1]), c) for each, c in coloured if len(each.x)]
    plots.name_ends(axes, ends[: plots.MOST_LABELS], away=16, gap=LABEL_GAP)


def _room(curves: Sequence[Curve]) -> float:
    return 16 + max((20 + plots.text_width(curve.name) for curve in curves), default=0.0)


def _nats_and_perplexity(nats: float) -> str:
    """A tick such as `8 (2,980)`."""
    return f"{nats:.3g} ({perplexity(nats)})"


def _tick_decades(axes: Any) -> None:
    """Powers of ten, with steps between where there are few of them."""
    low, high = sorted(axes.yaxis.get_view_interval())
    plots.tick_powers(axes.yaxis, (1.0, 2.0, 5.0) if math.log10(high / low) < 2 else (1.0,))
