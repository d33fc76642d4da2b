"""Gradient flow as a picture: what is left of an error by the lag, on a log scale.

Lives here: lines, their bands, the bound over them. Not here: the numbers (flow.py), captions (microscope/flow.py).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.flow import GradientFlow
from chainrule.inspection.foreign import plain_text
from chainrule.lm import Floats

LOWEST: Final = 1e-6  # of the largest value: what lies below is not drawn
HEADROOM: Final = 10.0  # how far above all measured lines a bound is drawn
MOST_POINTS: Final = 150  # of one line
MOST_LAYERS: Final = 8  # of one model
BAND: Final = (0.25, 0.75)


class Line(NamedTuple):
    """One layer of one model."""

    name: str
    mean: Floats  # (J,)
    low: Floats  # (J,) the lower quartile
    high: Floats  # (J,)
    kept: Floats | None  # (J,) the product of the forget gates


class Frame(NamedTuple):
    """Which values are drawn."""

    low: float
    high: float

    def points(self, values: Floats) -> list[tuple[float, float]]:
        """(lag, value) from lag 0 on while the values are within; at most MOST_POINTS of them."""
        is_out = ~((values >= self.low) & (values <= self.high))
        J = int(np.argmax(is_out)) if is_out.any() else len(values)
        return [(float(k), float(values[k])) for k in _spread(J, MOST_POINTS)]


def draw(
    flows: Sequence[GradientFlow],
    bound: Mapping[str, Sequence[float]] | None = None,
    *,
    is_relative: bool = True,
    title: str = "Gradient flow",
    description: str = "",
) -> str:
    """The mean norm by lag with its quartiles, the forget gates' product dashed, bounds dotted.

    Of one flow, a line for each layer, MOST_LAYERS at most; of several, the top layer of each. Bounds, one value
    a lag, are parts of lag 0; they are drawn where the lines are. In absolute numbers neither they nor gates are.
    """
    lines = drawn_lines(flows, is_relative)
    dotted = (
        {name: np.asarray(values, dtype=float) for name, values in (bound or {}).items()} if is_relative else {}
    )
    frame = frame_of(lines)
    shown = [(line, points) for line in lines if (points := frame.points(line.mean))]
    bounds = {name: points for name, values in dotted.items() if (points := frame.points(values))}

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for colour, (line, points) in zip(cycle(plots.PALETTE), shown, strict=False):
            _draw_line(axes, line, points, colour, frame)
        for points in bounds.values():
            axes.plot(*zip(*points, strict=True), ls=(0, (1, 1.6)), lw=1.6, color=plots.PALETTE[-1])
        _scale(axes, [*(points for _, points in shown), *bounds.values()])
        _label(axes, "relative to lag 0" if is_relative else "in nats")
        coloured = zip(shown, cycle(plots.PALETTE), strict=False)
        ends = [plots.End(line.name, *points[-1], colour) for (line, points), colour in coloured]
        ends += [plots.End(name, *points[-1], plots.PALETTE[-1]) for name, points in bounds.items()]
        plots.name_ends(axes, ends, away=14)

    widest = max((plots.text_width(name) for name in [line.name for line, _ in shown] + list(bounds)), default=0.0)
    return plots.render(paint, title, description, plots.Margins(left=52, right=34 + widest))


def drawn_lines(flows: Sequence[GradientFlow], is_relative: bool) -> list[Line]:
    """Layers of one flow, or the top layers of several."""
    if len(flows) == 1:
        (flow,) = flows
        return [_line(flow, i, layer_name(flow, i), is_relative) for i in _spread(flow.layers, MOST_LAYERS)]
    return [_line(flow, flow.layers - 1, plain_text(flow.name), is_relative) for flow in flows]


def _spread(number: int, most: int) -> list[int]:
    """All of 0 … number − 1, or as many as may be, evenly, the first and the last among them."""
    if not number:
        return []
    return sorted({round(place) for place in np.linspace(0, number - 1, min(number, most)).tolist()})


def layer_name(flow: GradientFlow, layer: int) -> str:
    """What one layer of a flow is called."""
    if flow.what == "embedding":
        return "word vectors"
    return f"block {layer + 1}" if flow.what == "residual" else f"layer {layer + 1}"


def _line(flow: GradientFlow, layer: int, name: str, is_relative: bool) -> Line:
    kept = flow.kept() if is_relative else None
    by = np.ones(flow.lags) if not is_relative else flow.origin()[layer]
    by = np.where(by > 0, by, np.inf)  # no signal: nothing of it is left
    with np.errstate(invalid="ignore"):  # both beyond all numbers, and not drawn
        low, high = (flow.quantile(q)[layer] / by for q in BAND)
    mean = flow.relative()[layer] if is_relative else flow.mean()[layer]
    return Line(name, mean, low, high, None if kept is None else kept[layer])


def frame_of(lines: Sequence[Line]) -> Frame:
    """From LOWEST of the largest value to a little above it; the largest that can be drawn at all is 1e30."""
    values = np.concatenate([line.mean for line in lines])
    values = values[(values > 0) & (values < 1e30)]
    largest = float(values.max()) if len(values) else 1.0
    return Frame(min(largest, 1.0) * LOWEST, largest * HEADROOM)


def _draw_line(axes: Any, line: Line, points: list[tuple[float, float]], colour: str, frame: Frame) -> None:
    lags = [int(k) for k, _ in points]
    low, high = (np.clip(np.nan_to_num(values[lags]), frame.low, frame.high) for values in (line.low, line.high))
    if len(lags) > 1:
        axes.fill_between(lags, low, high, color=colour, alpha=0.13, lw=0)
    marker = "o" if len(lags) < 12 else ""
    axes.plot(*zip(*points, strict=True), marker=marker, ms=4, mew=0, lw=1.8, color=colour)
    kept = frame.points(line.kept) if line.kept is not None else []
    if kept:
        axes.plot(*zip(*kept, strict=True), ls=(0, (4, 2)), lw=1.3, color=colour)


def _scale(axes: Any, drawn: Sequence[Sequence[tuple[float, float]]]) -> None:
    """A log axis with few ticks, at least one decade high."""
    from matplotlib import ticker

    axes.margins(x=0.02, y=0.05)
    axes.autoscale_view()
    low, high = axes.get_ylim()
    if high / low < 10:
        middle = math.sqrt(low * high)
        axes.set_ylim(middle / math.sqrt(10), middle * math.sqrt(10))
    if max((points[-1][0] for points in drawn), default=0.0) < 1:
        axes.set_xlim(-0.5, 1.5)
    decades = math.log10(high / low)
    plots.tick_powers(axes.yaxis, (1.0, 3.0) if decades < 2 else (1.0,), most=8)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))


def _label(axes: Any, unit: str) -> None:
    """The name of y stands level above its numbers."""
    axes.set_xlabel("lag k, tokens back")
    above = (2, axes.get_window_extent().y1 + 18)
    axes.annotate(f"mean gradient norm, {unit}", above, xycoords="figure pixels", annotation_clip=False)
