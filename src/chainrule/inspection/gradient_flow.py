"""The gradient-flow section: norms of ∂L_T/∂h_{T−k} by lag k, how far back they reach, and their plots.

L layers, P positions, K the largest lag, J lags with enough positions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection import recurrent_matrix
from chainrule.inspection.report import Figure, Finding, Section, round_for_json
from chainrule.inspection.text_excerpt import Sample
from chainrule.lm import Floats
from chainrule.neural.probes.measurements import MAX_SLOPE, GradientFlow, half_life
from chainrule.plots import figures
from chainrule.plots.html import escape, to_printable
from chainrule.progress import Progress, silent
from chainrule.storage.strict_json import replace_nonfinite

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

    One flow is drawn as a line per layer, at most MOST_LAYERS; several flows give the top layer of each. Bounds are
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
        unit = "relative to lag 0" if is_relative else "in nats"
        figures.label_axes(axes, "lag k, tokens back", f"mean gradient norm, {unit}")
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
        names = {layer: layer_name(flow, layer) for layer in _evenly_spaced(len(flow.norms), MOST_LAYERS)}
        return _lines(flow, names, is_relative)
    return [
        line for flow in flows for line in _lines(flow, {len(flow.norms) - 1: to_printable(flow.name)}, is_relative)
    ]


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


def _lines(flow: GradientFlow, names: Mapping[int, str], is_relative: bool) -> list[Line]:
    """Return the lines of the layers that have a name."""
    mean = flow.relative() if is_relative else flow.mean()
    forget_product = flow.forget_product() if is_relative else None
    scale = flow.origin() if is_relative else np.ones_like(mean)
    scale = np.where(scale > 0, scale, np.inf)  # a zero gradient stays zero
    with np.errstate(invalid="ignore"):  # inf / inf, which is not drawn
        low, high = flow.quantile(BAND) / scale
    return [
        Line(name, mean[k], low[k], high[k], None if forget_product is None else forget_product[k])
        for k, name in names.items()
    ]


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
    low, middle, high = flow.quantile((0.25, 0.5, 0.75))
    curves = {"mean": flow.mean(), "relative": flow.relative(), "median": middle, "low": low, "high": high}
    products, lags = flow.forget_product(), list(range(flow.lags))
    entries: list[dict[str, Any]] = []
    for layer in range(flow.layers):
        half_life, reach = flow.half_life(layer), flow.reach(layer)
        rounded = {name: round_for_json(values[layer]) for name, values in curves.items()}
        quartiles = [rounded.pop("low"), rounded.pop("high")]
        entry = {"layer": layer + 1, "lags": lags, **rounded, "quartiles": quartiles}
        entry |= {"half_life": replace_nonfinite(half_life), "reach": reach}
        entries.append(entry if products is None else entry | {"forget": round_for_json(products[layer])})
    return entries


BOUND_LABEL: Final = "bound"
MIN_LAGS_CAP: Final = 1000  # lags that are always allowed
CAPTION: Final = (
    "Norm of the gradient of one prediction <i>k</i> tokens back, relative to lag 0. A line is the mean over up to "
    "{positions} positions that have this lag, with the interquartile range shaded. On the log scale a straight "
    "line is exponential decay; where a line is low, the model can hardly learn dependencies of that length."
)
SHORT_CAPTION: Final = "As above, over up to {positions} positions."


def section(
    samples: Sequence[Sample],
    *,
    lags: int = 100,
    positions: int = 64,
    seed: int = 0,
    progress: Progress = silent,
) -> Section | None:
    """Return the gradient flow of every neural model; None without neural models."""
    all_flows = {
        sample.name: measure(sample, lags=lags, positions=positions, seed=seed, progress=progress)
        for sample in samples
    }
    flows = {name: model_flows for name, model_flows in all_flows.items() if model_flows}
    if not flows:
        return None
    bounds = {sample.name: gradient_bound(sample, lags) for sample in samples}
    return Section(
        name="gradient_flow",
        title="Gradient flow",
        findings=_findings(flows, bounds),
        figures=_figures(flows, bounds),
        data={name: {flow.what: to_json(flow) for flow in model_flows} for name, model_flows in flows.items()},
        arrays={
            key: values
            for model_flows in flows.values()
            for flow in model_flows
            for key, values in _arrays(flow).items()
        },
    )


def measure(
    sample: Sample, *, lags: int = 100, positions: int = 64, seed: int = 0, progress: Progress = silent
) -> list[GradientFlow]:
    """Return the flows of one model, the one for comparison first; empty for models that are not networks."""
    if sample.model.lm.network is None:
        return []
    from chainrule.neural.probes.gradient_flow import gradient_flow

    lm: Any = sample.model.lm
    lags = min(lags, max(MIN_LAGS_CAP, sample.text.tokens))  # larger lags do not occur, and each takes memory
    return gradient_flow(
        lm, sample.text, lags=lags, positions=positions, seed=seed, name=sample.name, progress=progress
    )


def gradient_bound(sample: Sample, lags: int) -> Floats | None:
    """Return the bound (‖R‖₂ · max φ′)^k, (K+1,), for the top layer of an Elman network; None otherwise.

    Below the top layer, or with attention over past states, gradients have other paths and there is no such bound.
    """
    network: Any = sample.model.lm.network
    config: Any = getattr(network, "config", None)
    if getattr(config, "nonlinearity", None) not in MAX_SLOPE or config.attention != "none":
        return None
    R = network.layers[-1].R.detach().cpu().numpy().astype(np.float64)
    gain = float(np.linalg.norm(R, 2)) * MAX_SLOPE[config.nonlinearity]
    return recurrent_matrix.gradient_bound(gain, lags)


# Findings.


def _findings(flows: Mapping[str, list[GradientFlow]], bounds: Mapping[str, Floats | None]) -> tuple[Finding, ...]:
    """Return the reach of each model first, then cells and bounds."""
    reaches = [Finding(name, describe_reach(model_flows[0])) for name, model_flows in flows.items()]
    cells = [
        Finding(name, clause)
        for name, model_flows in flows.items()
        for flow in model_flows
        if (clause := describe_cell(flow))
    ]
    bound_findings = [
        Finding(name, f"in the top layer {recurrent_matrix.describe_gain(float(bound[1]))}.")
        for name in flows
        if (bound := bounds.get(name)) is not None and len(bound) > 1
    ]
    return (*reaches, *cells, *bound_findings)


# Figures.


def _figures(flows: Mapping[str, list[GradientFlow]], bounds: Mapping[str, Floats | None]) -> tuple[Figure, ...]:
    """Plot all models on one axis, then each model."""
    comparison = (
        [_comparison_figure([flow for model_flows in flows.values() for flow in comparable_flows(model_flows)])]
        if len(flows) > 1
        else []
    )
    pairs = [(flow, bounds.get(name)) for name, model_flows in flows.items() for flow in model_flows]
    single = [
        _model_figure(flow, bound, is_first=not (index or comparison)) for index, (flow, bound) in enumerate(pairs)
    ]
    return (*comparison, *single)


def _comparison_figure(flows: list[GradientFlow]) -> Figure:
    quantity = (
        "with respect to the state <i>h</i> of the top layer for recurrent networks (for an LSTM also its cell), "
        "and to the embeddings for others"
    )
    description = " ".join(f"{flow.name}: {describe_reach(flow)}" for flow in flows)
    drawing = plot_gradient_flow(flows, title="Gradient flow of all models", description=to_printable(description))
    return Figure(name="all", drawing=drawing, caption=f"{_read(flows[0], CAPTION)} All models: {quantity}.")


def _model_figure(flow: GradientFlow, bound: Floats | None, is_first: bool) -> Figure:
    kind = {"c": "along the cell", "embedding": "by distance"}.get(flow.what, "by layer")
    note = {
        "h": "Gradient with respect to the recurrent state <i>h</i> of each layer.",
        "c": "Gradient with respect to the cell <i>c</i> of each layer. Dashed: the product of the forget gates, "
        "averaged over units, which a unit would pass back if the cell were the only path; far above the line, the "
        "gradient is in units other than those that remember.",
        "residual": "Gradient with respect to the input of each block (residual stream).",
        "embedding": "Gradient with respect to the embedding of each input word.",
    }[flow.what]
    dotted = bound[: flow.lags].tolist() if bound is not None and flow.what == "h" else None
    if dotted is not None:
        note += " Dotted: upper bound for the top layer, (σ<sub>max</sub> · max φ′)<sup><i>k</i></sup>."
    title = f"Gradient flow of {to_printable(flow.name)} {kind}"
    description = to_printable(f"{flow.name}: {describe_reach(flow)}")
    drawing = plot_gradient_flow(
        [flow], {BOUND_LABEL: dotted} if dotted else None, title=title, description=description
    )
    caption = f"{escape(flow.name)}: {_read(flow, CAPTION if is_first else SHORT_CAPTION)} {note}"
    return Figure(name=f"{flow.name}: {kind}", drawing=drawing, caption=caption)


def _read(flow: GradientFlow, words: str) -> str:
    return words.format(positions=flow.norms.shape[1])


def _arrays(flow: GradientFlow) -> dict[str, Floats]:
    """Return the norms and gate products, (L, P, K+1) each."""
    forget = {} if flow.forget is None else {f"{flow.name}/{flow.what}/forget": flow.forget}
    return {f"{flow.name}/{flow.what}": flow.norms, **forget}
