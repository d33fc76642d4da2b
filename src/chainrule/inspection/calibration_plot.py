"""Calibration as pictures: what was said across, what came up, the diagonal where they agree.

Lives here: the drawing. Not here: bins and errors (calibration.py).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chainrule.inspection import plots
from chainrule.inspection.calibration import Bin

SIDE: Final = 400  # pixels; said and came have one scale
LEAST_WRITTEN_OUT: Final = 1e-6  # smaller ones in powers of ten
NAMES_A_ROW: Final = 2
LONGEST_NAME: Final = 24  # characters


def all_tokens(models: Mapping[str, Sequence[Bin]], *, title: str) -> str:
    """Bins of every token of the vocabulary, both axes on a log scale; bars are two standard errors."""
    drawable = {name: [each for each in bins if each.said > 0] for name, bins in models.items()}
    least = _least(drawable)

    def paint(axes: Any) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        _diagonal(axes, least, 1.0)
        for place, (name, bins) in enumerate(drawable.items()):
            _draw(axes, place, name, bins, least)
        _finish(axes, least, 1.0, "probability that was said", "share of them that came")
        _tick_decades(axes, least)

    return plots.render(paint, title, describe(models), _margins(models), SIDE + _head(models), SIDE)


def best_guesses(models: Mapping[str, Sequence[Bin]], *, title: str) -> str:
    """Bins of the most probable token of each position, both axes from 0 to 1; bars are two standard errors."""

    def paint(axes: Any) -> None:
        _diagonal(axes, 0.0, 1.0)
        for place, (name, bins) in enumerate(models.items()):
            _draw(axes, place, name, bins, 0.0)
        _finish(axes, 0.0, 1.0, "confidence in the best guess", "share of best guesses that came")

    return plots.render(paint, title, describe(models), _margins(models), SIDE + _head(models), SIDE)


def describe(models: Mapping[str, Sequence[Bin]]) -> str:
    """The points in words, for those who do not see them."""
    told = []
    for name, bins in models.items():
        points = ", ".join(f"said {each.said:.2g}, came {each.came:.2g}" for each in bins)
        told.append(f"{name}: {points or 'no points'}")
    return "; ".join(told)


def _draw(axes: Any, place: int, name: str, bins: Sequence[Bin], least: float) -> None:
    """One model's points; what never came stands on the lower edge as a triangle."""
    label = f" {name[:LONGEST_NAME]}"  # matplotlib leaves out what begins with an underscore
    colour = plots.PALETTE[place % len(plots.PALETTE)]
    came = [each for each in bins if each.came > 0 or least == 0]
    never = [each for each in bins if each.came <= 0 and least > 0]
    said, share = [each.said for each in came], [each.came for each in came]
    below = [min(2 * each.error, each.came - least) for each in came]
    above = [min(2 * each.error, 1 - each.came) for each in came]
    look = {"color": colour, "lw": 1.6, "ms": 5, "mew": 0, "clip_on": False}
    errors = [[max(value, 0.0) for value in side] for side in (below, above)]
    axes.errorbar(said, share, yerr=errors, fmt="o-", elinewidth=0.9, label=label, **look)
    axes.plot([max(each.said, least) for each in never], [least] * len(never), "v", **look)


def _diagonal(axes: Any, low: float, high: float) -> None:
    axes.plot([low, high], [low, high], ls=(0, (4, 3)), lw=1, color=plots.PALETTE[-1], label="said = came")


def _finish(axes: Any, low: float, high: float, x_label: str, y_label: str) -> None:
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=NAMES_A_ROW)


def _tick_decades(axes: Any, least: float) -> None:
    """Powers of ten as percentages, every one, every second or every third, so that six at most are written."""
    decades = math.floor(-math.log10(least))
    ticks = [10.0**-k for k in range(0, decades + 1, 1 + decades // 6)]
    names = [f"{100 * tick:.12g} %" if tick >= LEAST_WRITTEN_OUT else f"{100 * tick:.0e} %" for tick in ticks]
    axes.minorticks_off()
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)


def _least(models: Mapping[str, Sequence[Bin]]) -> float:
    """The lower edge: under the least that was said or came, so that no point stands on it by itself."""
    values = [value for bins in models.values() for each in bins for value in (each.said, each.came) if value > 0]
    return min([0.5 * value for value in values], default=1e-3)


def _head(models: Mapping[str, Sequence[Bin]]) -> float:
    """Pixels for the names above the axes, the diagonal's among them."""
    return 18.0 * -(-(len(models) + 1) // NAMES_A_ROW)


def _margins(models: Mapping[str, Sequence[Bin]]) -> plots.Margins:
    return plots.Margins(left=84, right=16, top=14 + _head(models), bottom=44)
