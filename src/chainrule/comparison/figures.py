"""Figures of the comparison report with their captions; figures without data are omitted."""

import html
import math
from collections.abc import Iterable, Sequence

from chainrule.comparison.results import Curve, Row, is_rankable, rankable_rows
from chainrule.inspection import gradient_flow
from chainrule.neural.probes.measurements import GradientFlow
from chainrule.plots import figures as base
from chainrule.plots.formatting import (
    format_bits,
    format_duration,
    format_percent,
    format_perplexity,
    format_size,
    join_words,
)

Points = dict[str, list[tuple[float, float]]]

BITS = "bits per byte"
ORDER = "n-gram order (tokens seen at once)"


def plot_by_order(rows: Iterable[Row]) -> list[str]:
    """Bits per byte and perplexity by n-gram order, one line per smoothing; needs at least two orders."""
    faceted = [row for row in rows if has_order(row)]
    best = rankable_rows(faceted)
    lines = _order_lines(best, "bits_per_byte")
    if not lines:
        return []
    title, description = "by order and smoothing", f"Lowest: {best[0].name} with"
    bits, perplexity = format_bits(best[0].bits_per_byte), format_perplexity(best[0].perplexity)
    drawing = base.plot_by_facet(
        lines, title=f"Bits per byte {title}", facet=ORDER, quantity=BITS, description=f"{description} {bits}."
    )
    figures = [_figure(drawing, _order_caption(lines) + _describe_omitted(faceted))]
    if len({row.tokenizer for row in best}) > 1:
        return figures  # perplexities of different tokens cannot be compared
    drawing = base.plot_by_facet(
        _order_lines(best, "perplexity"),
        title=f"Perplexity {title}",
        facet=ORDER,
        quantity="perplexity per token (log scale)",
        is_log_y=True,
        description=f"{description} {perplexity}.",
    )
    caption = (
        "The same models by perplexity, the number of equally likely tokens that would be as hard to predict: "
        f"{perplexity} for the best model. It depends on the tokenizer."
    )
    return [*figures, _figure(drawing, caption)]


def plot_smoothings(rows: Iterable[Row]) -> list[str]:
    """Bar chart of the smoothings at the order of the best n-gram; needs at least two."""
    faceted = [row for row in rows if has_order(row)]
    best = rankable_rows(faceted)
    best = tuple(row for row in best if row.tokenizer == best[0].tokenizer)
    order = best[0].facets["order"] if best else None
    values = {str(row.facets["smoothing"]): row.bits_per_byte for row in best[::-1] if row.facets["order"] == order}
    values = dict(sorted(values.items(), key=lambda item: item[1]))
    if len(values) < 2:
        return []
    (first, low), *_, (last, high) = values.items()
    saved = 1 - low / high if high else 0.0
    drawing = base.plot_bars(
        values,
        title=f"Smoothings at order {order}",
        quantity=BITS,
        description=f"From {first}, {format_bits(low)}, to {last}, {format_bits(high)}.",
    )
    caption = (
        f"Smoothings at order {order}, the order of the best n-gram model. All use the same counts and differ "
        f"in the probability they reserve for unseen n-grams. <b>{html.escape(first)}</b> needs "
        f"{format_percent(saved)} fewer bits than {html.escape(last)}."
    )
    at_order = [row for row in faceted if row.facets["order"] == order and row.tokenizer == best[0].tokenizer]
    return [_figure(drawing, caption + _describe_omitted(at_order))]


def plot_costs(rows: Sequence[Row]) -> list[str]:
    """Scatter plots of size on disk and of training time against bits per byte; need at least two models."""
    best = rankable_rows(rows)
    if len(best) < 2:
        return []
    sizes, seconds = [row.size_bytes for row in best], [row.train_seconds for row in best]
    falling = sum(row.is_still_falling for row in best)
    unfinished = (
        f" {falling} of the models were still improving when their training time ran out." if falling else ""
    )
    reading = "Lower and further left is better. Solid dots are Pareto-optimal: no"
    omitted = _describe_omitted(rows)
    return [
        _figure(
            _plot_cost(best, [max(size, 1) for size in sizes], "Size", "size of the model", "B"),
            f"{reading} other model is both at most as large and at least as good. The best model takes "
            f"{format_size(sizes[0])}, the smallest {format_size(min(sizes))}.{omitted}",
        ),
        _figure(
            _plot_cost(best, [max(time, 1e-3) for time in seconds], "Training time", "time to train", "s"),
            f"{reading} model trained in less time is better. The best model took {format_duration(seconds[0])}, "
            f"the fastest {format_duration(min(seconds))}.{unfinished}{omitted}",
        ),
    ]


def _plot_cost(rows: Sequence[Row], costs: Sequence[float], name: str, label: str, unit: str) -> str:
    dots = [base.Dot(row.name, row.family, cost, row.bits_per_byte) for row, cost in zip(rows, costs, strict=True)]
    description = f"{len(dots)} models; {len(base.pareto_front(dots))} are Pareto-optimal."
    title = f"{name} against quality"
    return base.plot_cost_quality(dots, title=title, cost=label, unit=unit, quantity=BITS, description=description)


def plot_learning_curves(curves: Sequence[Curve]) -> list[str]:
    """Bits per byte by training-text size; a curve needs at least two finite points."""
    finite = {curve.name: _finite_points(curve) for curve in curves}
    drawn = {name: points for name, points in finite.items() if len(points) > 1}
    if not drawn:
        return []
    drawn = dict(sorted(drawn.items(), key=lambda item: item[1][-1][1]))
    name, points = next(iter(drawn.items()))
    (before, was), (after, now) = points[-2:]
    step = "doubling" if 1.95 < after / before < 2.05 else f"step, to {after / before:.3g} times the text,"
    change = f"{format_percent(abs(1 - now / was))} in bits" if was else f"{format_bits(now)} bits per byte"
    title = "Bits per byte by amount of training text"
    ending = f"{name} is lowest at the full size, with {format_bits(now)}."
    caption = (
        "Each line is one model trained on increasing amounts of the same text; a line that still falls at its "
        f"right end would gain from more text. The last {step} "
        f"{'saved' if now <= was else 'cost'} <b>{html.escape(name)}</b> {change}."
    )
    missing = [html.escape(curve.name) for curve in curves if curve.name not in drawn]
    if missing:
        caption += f" Not drawn, with fewer than two finite points: {join_words(missing)}."
    doubled = {
        curve.name: (2.0 * curve.bytes[-1], curve.doubled_bits)
        for curve in curves
        if curve.name in drawn and curve.doubled_bits is not None
    }
    if name in doubled:
        caption += (
            f" With twice the text, <b>{html.escape(name)}</b> would reach about {format_bits(doubled[name][1])}: "
            "an extrapolation by a + b n<sup>−c</sup>, fitted to the last points (dashed)."
        )
    drawing = base.plot_learning_curves(drawn, title=title, quantity=BITS, description=ending, extrapolated=doubled)
    return [_figure(drawing, caption)]


def plot_gradient_flow(flows: Sequence[GradientFlow]) -> list[str]:
    """Gradient norm by lag for all networks on one axis."""
    drawn = [flow for flow in flows if flow.lags > 1]
    if not drawn:
        return []
    half_lives = ((flow.name, flow.half_life(flow.layers - 1)) for flow in drawn)
    finite = {name: value for name, value in half_lives if value is not None and math.isfinite(value)}
    caption = (
        "Backpropagation of the loss of one prediction through the test text: the mean gradient norm relative to "
        "lag 0, with respect to the state of the top layer in recurrent networks (in an LSTM also its cell) and to "
        "the word vectors in others; the interquartile range over positions is shaded. Where a line is low, the "
        "network can hardly learn from tokens that far back."
    )
    if finite:
        longest = max(finite, key=finite.__getitem__)
        name = html.escape(longest)
        caption += f" The half-life is longest in <b>{name}</b>: {finite[longest]:.1f} tokens."
    title = "Gradient flow by lag"
    ends = "; ".join(f"{flow.name} ends at {flow.relative()[-1][-1]:.2g}" for flow in drawn)
    return [_figure(gradient_flow.plot_gradient_flow(drawn, title=title, description=ends), caption)]


def has_order(row: Row) -> bool:
    """Whether the row has an n-gram order and a smoothing."""
    return isinstance(row.facets.get("order"), int) and "smoothing" in row.facets


def _order_lines(best: Sequence[Row], quantity: str) -> Points:
    """Points of one line per smoothing and tokenizer, best line first; the best row for each order."""
    cells: dict[tuple[str, float], float] = {}
    is_labelled = len({row.tokenizer for row in best}) > 1
    for row in best:
        name = f"{row.tokenizer if is_labelled else ''} {row.facets['smoothing']}".strip()
        cells.setdefault((name, float(row.facets["order"])), getattr(row, quantity))
    lines: Points = {}
    for (smoothing, order), value in cells.items():
        lines.setdefault(smoothing, []).append((order, value))
    return {smoothing: sorted(points) for smoothing, points in lines.items() if len(points) > 1}


def _order_caption(lines: Points) -> str:
    first, points = next(iter(lines.items()))
    (low, start), (high, end) = points[0], points[-1]
    rises = {name: line[-1][1] - min(value for _, value in line) for name, line in lines.items()}
    turned = [name for name, rise in rises.items() if rise > 0]
    caption = (
        f"Lower is better. <b>{html.escape(first)}</b> goes from {format_bits(start)} at order {low:.0f} "
        f"to {format_bits(end)} at order {high:.0f}."
    )
    if turned:
        caption += (
            f" More context is not always better: {len(turned)} of {len(lines)} smoothings get worse "
            f"before their last order, {html.escape(max(turned, key=rises.__getitem__))} most of all."
        )
    return caption


def _describe_omitted(rows: Sequence[Row]) -> str:
    """Caption sentence that lists the rows not drawn, n-grams by smoothing."""
    drawn = {str(row.facets["smoothing"]) for row in rows if is_rankable(row) and has_order(row)}
    orders: dict[str, list[str]] = {}
    for row in rows:
        if not is_rankable(row):
            name = str(row.facets["smoothing"]) if has_order(row) else row.name
            orders.setdefault(name, []).extend([str(row.facets["order"])] if name in drawn else [])
    names = [
        html.escape(name) + (f" (order {join_words(omitted)})" if omitted else "")
        for name, omitted in orders.items()
    ]
    return f" Not drawn, because infinite or not a probability: {join_words(names)}." if names else ""


def _finite_points(curve: Curve) -> list[tuple[float, float]]:
    pairs = zip(curve.bytes, curve.bits_per_byte, strict=True)
    return [(size, value) for size, value in pairs if size > 0 and math.isfinite(value)]


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"
