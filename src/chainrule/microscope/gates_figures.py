"""Figures of the gates section."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from chainrule.inspection import cells, cells_plot
from chainrule.inspection.cells import CorrelatedCell, GateStatistics, LayerStates
from chainrule.inspection.cells_plot import Panel
from chainrule.inspection.foreign import escape
from chainrule.inspection.matrix import GATE_NAMES
from chainrule.inspection.running_text import PROPERTIES, AlignedText, Property
from chainrule.inspection.section import Figure
from chainrule.inspection.table import RULED, html_table
from chainrule.lm import Floats
from chainrule.microscope.cell_reading import CellActivity

MOST_TEXTS: Final = 4  # coloured texts per model, besides tracked ones
EXCERPT: Final = 700  # characters of a coloured text
STARTS: Final = 10  # candidate starts of an excerpt
NUMBERED: Final = "Layers and cells are counted from 1."
HEADER: Final = ("property", "layer", "cell", "r, first half", "r, second half", "p-value")


def make_figures(activity: CellActivity, tracked: Mapping[str, Property]) -> Iterator[Figure]:
    """Yield distributions, saturation, time constants, correlated cells, and text coloured by them."""
    name = escape(activity.name)
    rows = {
        f"layer {layer.layer}": _panels(layer, activity.gate_statistics[layer.layer]) for layer in activity.layers
    }
    cut = f" Only the first {activity.tokens:,} tokens were read." if activity.is_cut else ""
    yield Figure(
        name=f"{activity.name}: distributions",
        drawing=cells_plot.plot_histograms(rows, title=f"Gate activations of {activity.name}"),
        caption=(
            f"{name}: distribution of gate values over all cells and {activity.tokens:,} tokens. Values below "
            f"{cells.SHUT} count as closed, above {cells.OPEN} as open.{cut}"
            if activity.gate_statistics[1]
            else f"{name}: distribution of states over all cells and {activity.tokens:,} tokens. Where φ is "
            f"saturated its slope is almost 0, and it passes almost no gradient.{cut}"
        ),
        is_wide=True,
    )
    if activity.gate_statistics[1]:
        yield from _gate_figures(activity, name)
    if activity.best_cells:
        yield _correlation_figure(activity, name)
    for name_of_property, best in activity.significant_cells()[:MOST_TEXTS]:
        yield _text_figure(activity, name_of_property, PROPERTIES[name_of_property], best)
    for name_of_property, cells_of_property in activity.tracked.items():
        yield _tracked_figure(activity, name_of_property, tracked[name_of_property], cells_of_property)


def _gate_figures(activity: CellActivity, name: str) -> Iterator[Figure]:
    statistics = {
        f"layer {number}": layer_statistics for number, layer_statistics in activity.gate_statistics.items()
    }
    yield Figure(
        name=f"{activity.name}: saturation",
        drawing=cells_plot.plot_saturation(statistics, title=f"Saturation of the gates of {activity.name}"),
        caption=(
            f"{name}: one dot per cell. x: share of tokens at which the gate is open (above {cells.OPEN}); y: "
            f"share at which it is closed (below {cells.SHUT}). On the diagonal a gate is always saturated, at "
            "the origin never. A forget or update gate far to the right retains the content of its cell."
        ),
        is_wide=True,
    )
    constants = {f"layer {number}": values for number, values in activity.time_constants().items()}
    gate = next(layer.memory_gate for layer in activity.layers) or ""
    yield Figure(
        name=f"{activity.name}: memory",
        drawing=cells_plot.plot_time_constants(constants, title=f"Time constants of the cells of {activity.name}"),
        caption=(
            f"{name}: time constants in tokens, −1 / log {gate}̄ with {gate}̄ the cell's mean {GATE_NAMES[gate]} "
            "over the text: the number of tokens after which the cell has decayed to 1/e (37 %). The x axis is "
            "the share of cells with at least this time constant."
        ),
    )


def _correlation_figure(activity: CellActivity, name: str) -> Figure:
    rows = [
        (PROPERTIES[property_name].label, *_cell_row(best), "yes" if best.is_significant else "no")
        for property_name, (best, *_) in sorted(
            activity.best_cells.items(), key=lambda pair: -abs(pair[1][0].r_second)
        )
    ]
    return Figure(
        name=f"{activity.name}: cells",
        drawing=html_table(
            (*HEADER, "follows it"), rows, label="Cells correlated with text properties", style=RULED
        ),
        caption=(
            f"{name}: for each text property, the cell with the largest |r| (Pearson) on the first half, with r "
            "on both halves; the second half is held out. The p-value is the share of circular shifts of the "
            f"text with at least this |r|. A cell follows the property if |r| ≥ {cells.MIN_CORRELATION} on the "
            f"second half and p ≤ {100 * cells.MAX_P_VALUE:.0f} %. {NUMBERED}"
        ),
        is_wide=True,
    )


def _tracked_figure(
    activity: CellActivity, property_name: str, text_property: Property, correlated: Sequence[CorrelatedCell]
) -> Figure:
    text_figure = _text_figure(activity, property_name, text_property, correlated[0])
    rows = [(text_property.label, *_cell_row(cell)) for cell in correlated]
    table = html_table(HEADER, rows, label=f"Cells that follow {text_property.label}", style=RULED)
    return Figure(
        name=f"{activity.name}: track {property_name}",
        drawing=f"<div>{text_figure.drawing}{table}</div>",
        caption=f"{text_figure.caption} Below: the {len(correlated)} best cells on the first half. {NUMBERED}",
        is_wide=True,
    )


def _cell_row(cell: CorrelatedCell) -> tuple[str, ...]:
    numbers = (
        cells.format_correlation(cell.r_first),
        cells.format_correlation(cell.r_second),
        f"{100 * cell.p_value:.2g} %",
    )
    return str(cell.layer), str(cell.cell), *numbers


def _text_figure(
    activity: CellActivity, property_name: str, text_property: Property, best: CorrelatedCell
) -> Figure:
    values = activity.layers[best.layer - 1].cell_values[:, best.cell - 1]
    excerpt = choose_excerpt(activity.values[property_name], activity.text)
    label = escape(text_property.label)
    claim = (
        f"It follows {label}"
        if best.is_significant
        else f"No cell follows {label} significantly; this one is closest"
    )
    return Figure(
        name=f"{activity.name}: {property_name}",
        drawing=cells_plot.activation_html(activity.token_texts[excerpt], values[excerpt]),
        caption=(
            f"{escape(activity.name)}: text coloured by the activation of cell {best.cell} of layer {best.layer} "
            f"after each token: orange above the mean of this excerpt, blue below. {claim}: r = "
            f"{cells.format_correlation(best.r_second)} on the second half, from which the excerpt is taken."
        ),
        is_wide=True,
    )


def choose_excerpt(values: Floats, text: AlignedText) -> slice:
    """Return about `EXCERPT` characters of the second half in which a property (N,) varies most."""
    N = len(values)
    size = min(N - N // 2, max(1, int(EXCERPT * N / max(1, len(text.text)))))
    starts = np.linspace(N // 2, N - size, STARTS).astype(int).tolist()
    first = max(starts, key=lambda start: float(values[start : start + size].std()))
    return slice(first, first + size)


def _panels(layer: LayerStates, statistics: Mapping[str, GateStatistics]) -> list[Panel]:
    """Return one histogram per gate, or one of the states for a layer without gates."""
    if statistics:
        return [
            Panel(
                f"{GATE_NAMES[gate]} {gate}",
                gate_statistics.histogram,
                0.0,
                1.0,
                f"closed {100 * gate_statistics.closed_share.mean():.0f} %, open "
                f"{100 * gate_statistics.open_share.mean():.0f} %",
            )
            for gate, gate_statistics in statistics.items()
        ]
    bounds = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0)}
    low, high = bounds.get(layer.nonlinearity, (float(layer.h.min()), float(layer.h.max())))
    counts, _ = np.histogram(layer.h, bins=cells.BINS, range=(low, high if high > low else low + 1.0))
    word = "zero" if layer.nonlinearity == "relu" else "saturated"
    note = f"{100 * cells.saturation(layer):.0f} % {word}" if layer.nonlinearity != "leaky" else "never saturated"
    return [Panel("states h", counts / layer.h.size, low, max(high, low + 1e-6), note)]
