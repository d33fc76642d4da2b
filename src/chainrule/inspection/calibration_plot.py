"""Reliability diagrams: observed frequency against predicted probability."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chainrule.inspection import plots
from chainrule.inspection.calibration import Bin

SIDE: Final = 400  # pixels; both axes have the same scale
LEAST_WRITTEN_OUT: Final = 1e-6  # smaller ticks are written as powers of ten
NAMES_A_ROW: Final = 2
LONGEST_NAME: Final = 24  # characters


def plot_all_tokens(models: Mapping[str, Sequence[Bin]], *, title: str) -> str:
    """Plot the bins of all vocabulary tokens on log scales; error bars are two standard errors."""
    drawable = {name: [b for b in bins if b.predicted > 0] for name, bins in models.items()}
    least = _least(drawable)

    def paint(axes: Any) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        _diagonal(axes, least, 1.0)
        for index, (name, bins) in enumerate(drawable.items()):
            _draw(axes, index, name, bins, least)
        _finish(axes, least, 1.0, "predicted probability", "observed frequency")
        _tick_decades(axes, least)

    return plots.render(paint, title, describe(models), _margins(models), SIDE + _head(models), SIDE)


def plot_top_predictions(models: Mapping[str, Sequence[Bin]], *, title: str) -> str:
    """Plot the bins of the most probable tokens, axes from 0 to 1; error bars are two standard errors."""

    def paint(axes: Any) -> None:
        _diagonal(axes, 0.0, 1.0)
        for index, (name, bins) in enumerate(models.items()):
            _draw(axes, index, name, bins, 0.0)
        _finish(axes, 0.0, 1.0, "confidence of the top prediction", "accuracy of the top prediction")

    return plots.render(paint, title, describe(models), _margins(models), SIDE + _head(models), SIDE)


def describe(models: Mapping[str, Sequence[Bin]]) -> str:
    """Return the points as alternative text."""
    parts = []
    for name, bins in models.items():
        points = ", ".join(f"predicted {b.predicted:.2g}, observed {b.observed:.2g}" for b in bins)
        parts.append(f"{name}: {points or 'no points'}")
    return "; ".join(parts)


def _draw(axes: Any, index: int, name: str, bins: Sequence[Bin], least: float) -> None:
    """Draw the points of one model; bins without hits are triangles on the lower edge."""
    label = f" {name[:LONGEST_NAME]}"  # matplotlib hides labels that begin with an underscore
    colour = plots.PALETTE[index % len(plots.PALETTE)]
    with_hits = [b for b in bins if b.observed > 0 or least == 0]
    without_hits = [b for b in bins if b.observed <= 0 and least > 0]
    predicted, observed = [b.predicted for b in with_hits], [b.observed for b in with_hits]
    below = [min(2 * b.error, b.observed - least) for b in with_hits]
    above = [min(2 * b.error, 1 - b.observed) for b in with_hits]
    style = {"color": colour, "lw": 1.6, "ms": 5, "mew": 0, "clip_on": False}
    errors = [[max(value, 0.0) for value in side] for side in (below, above)]
    axes.errorbar(predicted, observed, yerr=errors, fmt="o-", elinewidth=0.9, label=label, **style)
    axes.plot([max(b.predicted, least) for b in without_hits], [least] * len(without_hits), "v", **style)


def _diagonal(axes: Any, low: float, high: float) -> None:
    axes.plot([low, high], [low, high], ls=(0, (4, 3)), lw=1, color=plots.PALETTE[-1], label="perfect calibration")


def _finish(axes: Any, low: float, high: float, x_label: str, y_label: str) -> None:
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=NAMES_A_ROW)


def _tick_decades(axes: Any, least: float) -> None:
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


def _head(models: Mapping[str, Sequence[Bin]]) -> float:
    """Return the height of the legend, in pixels."""
    return 18.0 * -(-(len(models) + 1) // NAMES_A_ROW)


def _margins(models: Mapping[str, Sequence[Bin]]) -> plots.Margins:
    return plots.Margins(left=84, right=16, top=14 + _head(models), bottom=44)
