"""Plot gradient norms by lag on a log scale."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.flow import GradientFlow
from chainrule.inspection.foreign import to_printable
from chainrule.lm import Floats

LOWEST: Final = 1e-6  # relative to the largest value; smaller values are not drawn
HEADROOM: Final = 10.0  # factor above the largest measured value up to which bounds are drawn
MOST_POINTS: Final = 150  # points of one line
MOST_LAYERS: Final = 8  # lines of one model
BAND: Final = (0.25, 0.75)


class Line(NamedTuple):
    """One layer of one model."""

    name: str
    mean: Floats  # (J,)
    low: Floats  # (J,) lower quartile
    high: Floats  # (J,) upper quartile
    forget_product: Floats | None  # (J,) product of the forget gates


class ValueRange(NamedTuple):
    """The range of values that is drawn."""

    low: float
    high: float

    def points(self, values: Floats) -> list[tuple[float, float]]:
        """Return (lag, value) from lag 0 up to the first value out of range, at most MOST_POINTS of them."""
        is_out = ~((values >= self.low) & (values <= self.high))
        J = int(np.argmax(is_out)) if is_out.any() else len(values)
        return [(float(k), float(values[k])) for k in _evenly_spaced(J, MOST_POINTS)]


def draw(
    flows: Sequence[GradientFlow],
    bound: Mapping[str, Sequence[float]] | None = None,
    *,
    is_relative: bool = True,
    title: str = "Gradient flow",
    description: str = "",
) -> str:
    """Plot the mean norm by lag with quartiles, the product of the forget gates dashed, and bounds dotted.

    One flow gives a line per layer, at most MOST_LAYERS; several flows give the top layer of each. Bounds are
    relative to lag 0, one value per lag. Absolute plots have neither bounds nor gate products.
    """
    lines = select_lines(flows, is_relative)
    dotted = (
        {name: np.asarray(values, dtype=float) for name, values in (bound or {}).items()} if is_relative else {}
    )
    limits = value_range(lines)
    shown = [(line, points) for line in lines if (points := limits.points(line.mean))]
    bounds = {name: points for name, values in dotted.items() if (points := limits.points(values))}

    def draw_axes(axes: Any) -> None:
        axes.set_yscale("log")
        for colour, (line, points) in zip(cycle(plots.PALETTE), shown, strict=False):
            _draw_line(axes, line, points, colour, limits)
        for points in bounds.values():
            axes.plot(*zip(*points, strict=True), ls=(0, (1, 1.6)), lw=1.6, color=plots.PALETTE[-1])
        _scale(axes, [*(points for _, points in shown), *bounds.values()])
        _label(axes, "relative to lag 0" if is_relative else "in nats")
        coloured = zip(shown, cycle(plots.PALETTE), strict=False)
        ends = [plots.LineEnd(line.name, *points[-1], colour) for (line, points), colour in coloured]
        ends += [plots.LineEnd(name, *points[-1], plots.PALETTE[-1]) for name, points in bounds.items()]
        plots.label_line_ends(axes, ends, away=14)

    widest = max((plots.text_width(name) for name in [line.name for line, _ in shown] + list(bounds)), default=0.0)
    return plots.render(draw_axes, title, description, plots.Margins(left=52, right=34 + widest))


def select_lines(flows: Sequence[GradientFlow], is_relative: bool) -> list[Line]:
    """Return the layers of one flow, or the top layers of several."""
    if len(flows) == 1:
        (flow,) = flows
        return [_line(flow, i, layer_name(flow, i), is_relative) for i in _evenly_spaced(flow.layers, MOST_LAYERS)]
    return [_line(flow, flow.layers - 1, to_printable(flow.name), is_relative) for flow in flows]


def _evenly_spaced(number: int, most: int) -> list[int]:
    """Return at most `most` evenly spaced indices below `number`, including the first and the last."""
    if not number:
        return []
    return sorted({round(index) for index in np.linspace(0, number - 1, min(number, most)).tolist()})


def layer_name(flow: GradientFlow, layer: int) -> str:
    """Return the display name of one layer of a flow."""
    if flow.what == "embedding":
        return "embeddings"
    return f"block {layer + 1}" if flow.what == "residual" else f"layer {layer + 1}"


def _line(flow: GradientFlow, layer: int, name: str, is_relative: bool) -> Line:
    forget_product = flow.forget_product() if is_relative else None
    scale = np.ones(flow.lags) if not is_relative else flow.origin()[layer]
    scale = np.where(scale > 0, scale, np.inf)  # a zero gradient stays zero
    with np.errstate(invalid="ignore"):  # inf / inf, which is not drawn
        low, high = (flow.quantile(q)[layer] / scale for q in BAND)
    mean = flow.relative()[layer] if is_relative else flow.mean()[layer]
    return Line(name, mean, low, high, None if forget_product is None else forget_product[layer])


def value_range(lines: Sequence[Line]) -> ValueRange:
    """Return the range from LOWEST times the largest value to a little above it; values above 1e30 are ignored."""
    values = np.concatenate([line.mean for line in lines])
    values = values[(values > 0) & (values < 1e30)]
    largest = float(values.max()) if len(values) else 1.0
    return ValueRange(min(largest, 1.0) * LOWEST, largest * HEADROOM)


def _draw_line(axes: Any, line: Line, points: list[tuple[float, float]], colour: str, limits: ValueRange) -> None:
    lags = [int(k) for k, _ in points]
    low, high = (np.clip(np.nan_to_num(values[lags]), limits.low, limits.high) for values in (line.low, line.high))
    if len(lags) > 1:
        axes.fill_between(lags, low, high, color=colour, alpha=0.13, lw=0)
    marker = "o" if len(lags) < 12 else ""
    axes.plot(*zip(*points, strict=True), marker=marker, ms=4, mew=0, lw=1.8, color=colour)
    forget_points = limits.points(line.forget_product) if line.forget_product is not None else []
    if forget_points:
        axes.plot(*zip(*forget_points, strict=True), ls=(0, (4, 2)), lw=1.3, color=colour)


def _scale(axes: Any, drawn: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Set a log axis with few ticks that spans at least one decade."""
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
    plots.set_log_ticks(axes.yaxis, (1.0, 3.0) if decades < 2 else (1.0,), most=8)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))


def _label(axes: Any, unit: str) -> None:
    """Write the y label horizontally above the axis."""
    axes.set_xlabel("lag k, tokens back")
    above = (2, axes.get_window_extent().y1 + 18)
    axes.annotate(f"mean gradient norm, {unit}", above, xycoords="figure pixels", annotation_clip=False)
