"""Gradient flow: norms of ∂L_T/∂h_{T−k} by lag k, and their half-life and reach.

L layers, P positions, K the largest lag, J lags with enough positions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from chainrule.analysis.section import round_for_json
from chainrule.lm import Floats
from chainrule.plots import figures
from chainrule.plots.html import to_printable
from chainrule.storage.strict_json import replace_nonfinite

Quantity = Literal["h", "c", "embedding", "residual"]
"""What the loss is differentiated by: state, LSTM cell, word embedding, input of a Transformer block."""

MIN_POSITIONS: Final = 4  # a lag is used if it has this many positions and a quarter of those of lag 0
FAINT_SHARE: Final = 0.01  # of the gradient at lag 0: below it almost nothing can be learnt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientFlow:
    """Gradient norms of single losses L_T = −log p(w_{T+1} | w_≤T), going back in time."""

    name: str  # model name
    what: Quantity
    norms: Floats  # (L, P, K+1) ‖∂L_T/∂h_{T−k}‖; NaN if T < k, inf on overflow
    forget: Floats | None = None  # same shape, LSTM only: mean over units of f_{T−k+1} ⊙ … ⊙ f_T

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.norms)

    @property
    def lags(self) -> int:
        """J, the number of lags with enough positions."""
        counts = (~np.isnan(self.norms[0])).sum(axis=0)  # (K+1,)  never rising
        return int((counts >= min(counts[0], max(MIN_POSITIONS, counts[0] / 4))).sum())

    def mean(self) -> Floats:
        """Return the mean norm over positions, (L, J)."""
        return _mean(self.norms[..., : self.lags])

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the norm over positions, (L, J)."""
        largest = np.finfo(np.float64).max  # interpolation between two infinities is undefined
        quantiles: Floats = np.nanquantile(np.minimum(self.norms[..., : self.lags], largest), q, axis=1)
        return np.where(quantiles >= largest / 4, np.inf, quantiles)

    def origin(self) -> Floats:
        """Return the mean norm at lag 0 over the positions that have lag j, (L, J)."""
        norms = self.norms[..., : self.lags]
        return _mean(np.where(np.isnan(norms), np.nan, norms[..., :1]))

    def relative(self) -> Floats:
        """Return the mean norm relative to lag 0, (L, J); 0 if the gradient is 0 at lag 0.

        Both means are over the positions that have this lag, so the ratio does not depend on which those are.
        """
        mean, origin = self.mean(), self.origin()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: Floats = np.where(origin > 0, mean / origin, 0.0)
        return np.where(np.isnan(ratio), np.inf, ratio)  # inf / inf

    def forget_product(self) -> Floats | None:
        """Return the mean product of the forget gates, (L, J); None without forget gates."""
        return None if self.forget is None else _mean(self.forget[..., : self.lags])

    def half_life(self, layer: int) -> float | None:
        """Return the lag at which half of the gradient is left; inf if beyond these lags, None if undefined.

        Interpolated linearly in the log, so that λ^k has half-life log ½ / log λ.
        """
        return half_life(self.relative()[layer])

    def reach(self, layer: int, part: float = FAINT_SHARE) -> int | None:
        """Return the smallest lag from which the gradient stays below `part`; None if there is none."""
        return reach(self.relative()[layer], part)


def half_life(curve: Floats) -> float | None:
    """Return the half-life of one curve (J,) with 1 at lag 0; see `GradientFlow.half_life`.

    >>> half_life(np.array([1.0, 0.5, 0.25])), half_life(np.array([1.0, 0.8, 0.7]))
    (1.0, inf)
    """
    if len(curve) < 2 or not curve[0] > 0:
        return None
    below = np.flatnonzero(curve <= 0.5)
    if not len(below):
        return math.inf
    k = int(below[0])
    if curve[k] == 0 or not math.isfinite(curve[k - 1]):
        return float(k - 1)  # drops to 0 in one step
    high, low = math.log(curve[k - 1]), math.log(curve[k])
    return k - 1 + (high - math.log(0.5)) / (high - low)


def reach(curve: Floats, part: float = FAINT_SHARE) -> int | None:
    """Return the reach of one curve (J,); see `GradientFlow.reach`.

    >>> reach(np.array([1.0, 0.001, 0.3, 0.001])), reach(np.array([1.0, 0.001, 0.3]))
    (3, None)
    """
    above = np.flatnonzero(~(curve < part))
    first = int(above[-1]) + 1 if len(above) else 0
    return first if first < len(curve) else None


def _mean(values: Floats) -> Floats:
    """Return the mean over positions, ignoring NaN: (L, P, J) -> (L, J)."""
    mean: Floats = np.nanmean(values, axis=1)
    return mean


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


def plot_gradient_flow(
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
        for colour, (line, points) in zip(cycle(figures.PALETTE), shown, strict=False):
            _draw_line(axes, line, points, colour, limits)
        for points in bounds.values():
            axes.plot(*zip(*points, strict=True), ls=(0, (1, 1.6)), lw=1.6, color=figures.PALETTE[-1])
        _scale(axes, [*(points for _, points in shown), *bounds.values()])
        _label(axes, "relative to lag 0" if is_relative else "in nats")
        coloured = zip(shown, cycle(figures.PALETTE), strict=False)
        ends = [figures.LineEnd(line.name, *points[-1], colour) for (line, points), colour in coloured]
        ends += [figures.LineEnd(name, *points[-1], figures.PALETTE[-1]) for name, points in bounds.items()]
        figures.label_line_ends(axes, ends, away=14)

    widest = max(
        (figures.text_width(name) for name in [line.name for line, _ in shown] + list(bounds)), default=0.0
    )
    return figures.render(draw_axes, title, description, figures.Margins(left=52, right=34 + widest))


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
    figures.set_log_ticks(axes.yaxis, (1.0, 3.0), below=2, most=8)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))


def _label(axes: Any, unit: str) -> None:
    """Write the y label horizontally above the axis."""
    axes.set_xlabel("lag k, tokens back")
    above = (2, axes.get_window_extent().y1 + 18)
    axes.annotate(f"mean gradient norm, {unit}", above, xycoords="figure pixels", annotation_clip=False)


def comparable_flows(flows: Sequence[GradientFlow]) -> list[GradientFlow]:
    """Return the flows to compare between models: the first, and that along the cell of an LSTM."""
    cells = [replace(flow, name=f"{flow.name}, cell", forget=None) for flow in flows if flow.what == "c"]
    return [*flows[:1], *cells]


def describe_reach(flow: GradientFlow) -> str:
    """Describe how fast the gradient decays in the top layer."""
    top, last_lag = flow.layers - 1, flow.lags - 1
    relative, half = flow.relative()[top], flow.half_life(top)
    if half is None:
        return "the gradient flow cannot be measured: too little preceding text, or the gradients are 0."
    if flow.what == "embedding" and relative[-1] == 0:
        window = int(np.argmax(relative == 0))
        return f"the gradient reaches back {_tokens(window)}, the full context window of the model."
    where = {"h": f" in layer {top + 1}", "embedding": " with respect to the embeddings"}.get(flow.what, "")
    if flow.what == "h" and flow.layers == 1:
        where = ""
    if math.isinf(half):
        return f"the gradient {_describe_persistence(float(relative[-1]), where, last_lag)}."
    lower = [f"{_format_half_life(flow.half_life(layer))} in layer {layer + 1}" for layer in range(top)]
    others = f" ({', '.join(lower)})" if flow.what == "h" and lower else ""
    rest = f"; {_tokens(last_lag)} back, the largest lag measured, {_format_share(relative[-1])} of it is left"
    reach = flow.reach(top)
    if reach is not None:
        end = f"; {_tokens(last_lag)} back {_format_share(relative[-1])} is left" if last_lag > reach else ""
        rest = f", 99 % after {_tokens(reach)}{end}"
    return f"half of the gradient is lost {_format_half_life(half)}{where}{others}{rest}."


def describe_cell(flow: GradientFlow) -> str:
    """Describe the decay along the cell of an LSTM and of its forget gates; empty for other flows."""
    products = flow.forget_product()
    top = flow.layers - 1
    half = flow.half_life(top)
    if products is None or half is None:
        return ""
    gates = _format_half_life(half_life(products[top]))
    return (
        f"along the cell of layer {top + 1} half of the gradient is lost {_format_half_life(half)}; the mean "
        f"product of its forget gates halves {gates}."
    )


def _format_half_life(half: float | None) -> str:
    if half is None or math.isinf(half):
        return "only beyond these lags"
    if half < 0.1:
        return "within one token"
    return f"after {half:.1f} tokens" if half < 10 else f"after {half:.0f} tokens"


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number:,} tokens"


def _format_share(part: float) -> str:
    if part < 1e-5:
        return "less than 0.001 %"
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.0f} %"


def _describe_persistence(relative: float, where: str, last_lag: int) -> str:
    if math.isinf(relative):
        return f"overflows{where} within {_tokens(last_lag)}"
    if relative > 1.5:
        return f"grows{where}: {_tokens(last_lag)} back it is {relative:.3g} times as large"
    verb = "decays slowly" if relative < 0.95 else "does not decay"
    return f"{verb}{where}: {_tokens(last_lag)} back {_format_share(relative)} of it is left"


def to_json(flow: GradientFlow) -> list[dict[str, Any]]:
    """Return one entry per layer."""
    mean, relative, products = flow.mean(), flow.relative(), flow.forget_product()
    low, middle, high = (flow.quantile(q) for q in (0.25, 0.5, 0.75))
    return [
        {
            "layer": layer + 1,
            "lags": list(range(flow.lags)),
            "mean": round_for_json(mean[layer]),
            "relative": round_for_json(relative[layer]),
            "median": round_for_json(middle[layer]),
            "quartiles": [round_for_json(low[layer]), round_for_json(high[layer])],
            "half_life": replace_nonfinite(flow.half_life(layer)),
            "reach": flow.reach(layer),
        }
        | ({} if products is None else {"forget": round_for_json(products[layer])})
        for layer in range(flow.layers)
    ]
