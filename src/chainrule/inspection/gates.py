"""The gates section: gate statistics, saturation, time constants, and cells that correlate with text properties.

N tokens, D cells, P properties.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from chainrule.inspection.recurrent_matrix import GATE_NAMES
from chainrule.inspection.report import Figure, Finding, Section
from chainrule.inspection.text_excerpt import Sample
from chainrule.inspection.text_properties import PROPERTIES, AlignedText, Property, parse_property
from chainrule.lm import Floats
from chainrule.neural.cells import CELLS
from chainrule.neural.probes.measurements import LayerStates
from chainrule.plots import figures
from chainrule.plots.html import BLUE, CONTROL_PICTURES, MAX_OPACITY, ORANGE, RULED, escape, html_table
from chainrule.progress import Progress, silent
from chainrule.storage.strict_json import replace_nonfinite
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.tokenizer import byte_alphabet

BINS: Final = 20
SHUT: Final = 0.1  # a gate below it is left-saturated (closed)
OPEN: Final = 0.9  # a gate above it is right-saturated (open) (Karpathy et al. 2015)
NEARLY_ALWAYS: Final = 0.9  # share of the tokens
SATURATED: Final = 0.99  # |tanh| above it has almost no slope: 1 − 0.99² = 0.02

MIN_CORRELATION: Final = 0.3  # smallest |r| on the second half that is reported
MAX_P_VALUE: Final = 0.01
MIN_TOKENS: Final = 5  # per half, with and without a binary property
REDUNDANT: Final = 0.95  # |r| above which two properties are redundant
MIN_SHIFT_DIVISOR: Final = 20  # shifts below 1/20 of the half overlap the same passage


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """Statistics of one gate of a layer over a text."""

    mean: Floats  # (D,)
    closed_share: Floats  # (D,) share of tokens with the gate below `SHUT`
    open_share: Floats  # (D,) share of tokens with the gate above `OPEN`
    histogram: Floats  # (BINS,) distribution of all values between 0 and 1

    @property
    def always_open(self) -> float:
        """Share of cells whose gate is open at nearly all tokens."""
        return float((self.open_share > NEARLY_ALWAYS).mean())


@dataclass(frozen=True, slots=True)
class CorrelatedCell:
    """A cell and its correlation with a text property; the cell is selected on the first half of the text."""

    layer: int  # the first is 1
    cell: int  # the first is 1
    r_first: float  # Pearson's r on the first half
    r_second: float  # Pearson's r on the held-out second half
    p_value: float  # share of circular shifts with at least this |r|

    @property
    def description(self) -> str:
        """The held-out correlation in words."""
        return f"r = {format_correlation(self.r_second)} on held-out text"

    @property
    def is_significant(self) -> bool:
        """Whether the correlation holds on the second half, beyond chance."""
        return (
            self.r_first * self.r_second > 0
            and abs(self.r_second) >= MIN_CORRELATION
            and self.p_value <= MAX_P_VALUE
        )


def format_correlation(r: float) -> str:
    """Format a correlation with two digits and a typographic minus sign."""
    return f"{r:.2f}".replace("-", "−")


def gate_statistics(values: Floats) -> GateStatistics:
    """Return the statistics of one gate, (N, D) values between 0 and 1."""
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, 1.0))
    return GateStatistics(
        mean=values.mean(axis=0, dtype=np.float64),
        closed_share=(values < SHUT).mean(axis=0),
        open_share=(values > OPEN).mean(axis=0),
        histogram=counts / values.size,
    )


def time_constants(mean: Floats) -> Floats:
    """Return the number of tokens after which a cell has decayed to 1/e at its mean gate value f̄: −1 / log f̄.

    Infinite for a gate that is always 1, and 0 for a gate that is always 0.

    >>> time_constants(np.array([0.9])).round(4).tolist()
    [9.4912]
    """
    with np.errstate(divide="ignore"):
        log = np.log(np.clip(mean.astype(np.float64), 0.0, 1.0))
        constants: Floats = np.where(log < 0, -1.0 / log, np.inf)
    return constants


def saturation(layer: LayerStates) -> float:
    """Return the share of saturated states: |h| > 0.99 for tanh, either end of a sigmoid, 0 for a ReLU."""
    h = layer.h
    if layer.nonlinearity == "relu":
        return float((h <= 0).mean())
    if layer.nonlinearity == "sigmoid":
        return float(((h > SATURATED) | (h < 1 - SATURATED)).mean())
    return float((np.abs(h) > SATURATED).mean()) if layer.nonlinearity == "tanh" else 0.0


def correlations(x: Floats, properties: Floats) -> Floats:
    """Return Pearson's r over tokens: (N, D), (N, P) -> (D, P); 0 if either column is constant."""
    r: Floats = _standardize(x).T @ _standardize(properties)
    return r


def are_redundant(x: Floats, y: Floats) -> bool:
    """Return whether two properties, (N,) each, are so correlated that a cell follows both or neither."""
    return bool(abs(correlations(x[:, None], y[:, None])[0, 0]) > REDUNDANT)


def select_varying(properties: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the properties, (N,) each, that vary in both halves of the text and are not duplicates."""
    selected: dict[str, Floats] = {}
    for name, values in properties.items():
        halves = np.split(values, [len(values) // 2])
        is_new = not any(np.array_equal(values, other) for other in selected.values())
        if is_new and all(_varies(half) for half in halves):
            selected[name] = values
    return selected


def find_correlated_cells(
    layers: list[LayerStates], properties: Mapping[str, Floats], top: int = 1
) -> dict[str, list[CorrelatedCell]]:
    """Return the `top` cells of all layers for each property (N,), ordered by |r| on the first half."""
    if not properties:
        return {}
    P = np.stack(list(properties.values()), axis=1)  # (N, P)
    middle = len(P) // 2
    cell_values = [layer.cell_values for layer in layers]
    first = np.concatenate([correlations(x[:middle], P[:middle]) for x in cell_values])  # (all D, P)
    second = np.concatenate([correlations(x[middle:], P[middle:]) for x in cell_values])
    cells = [(k, d) for k, x in enumerate(cell_values) for d in range(x.shape[1])]
    result: dict[str, list[CorrelatedCell]] = {}
    for p, name in enumerate(properties):
        best = np.argsort(-np.abs(first[:, p]), kind="stable")[:top]
        result[name] = [
            CorrelatedCell(
                layer=layers[k].layer,
                cell=d + 1,
                r_first=float(first[i, p]),
                r_second=float(second[i, p]),
                p_value=shift_p_value(cell_values[k][middle:, d], P[middle:, p]),
            )
            for i, (k, d) in ((i, cells[i]) for i in best.tolist())
        ]
    return result


def shift_p_value(x: Floats, values: Floats) -> float:
    """Return the share of circular shifts at which |r| is at least that of the aligned series.

    A shift preserves the autocorrelation of both series, so slow cells that match slow properties by accident are
    detected. Shifts of less than 1/20 of the text, which still overlap the same words, are excluded.
    """
    n = len(x)
    a, b = np.fft.rfft(_standardize(x[:, None])[:, 0]), np.fft.rfft(_standardize(values[:, None])[:, 0])
    r = np.fft.irfft(a * np.conj(b), n)  # (n,) by shift
    margin = max(1, n // MIN_SHIFT_DIVISOR)
    shifted = np.abs(r[margin : n - margin + 1])
    return float((1 + (shifted >= abs(r[0]) - 1e-9).sum()) / (1 + len(shifted)))


def _standardize(x: Floats) -> Floats:
    """Return (N, D) with columns of mean 0 and norm 1; constant columns become 0."""
    x = x.astype(np.float64)
    mean = x.mean(axis=0)
    x -= mean
    length = np.linalg.norm(x, axis=0)
    varies = length > 1e-6 * np.sqrt(len(x)) * np.maximum(np.abs(mean), 1e-3)
    x *= np.where(varies, 1.0 / np.where(varies, length, 1.0), 0.0)
    return x


def _varies(values: Floats) -> bool:
    """Return whether a property varies; for a binary one, whether both values are frequent enough."""
    unique, counts = np.unique(values, return_counts=True)
    return len(unique) > 1 and (len(unique) > 2 or int(counts.min()) >= MIN_TOKENS)


PANEL: Final = 148  # pixels
LOW: Final = 84  # height of a histogram
MOST_ROWS: Final = 8  # layers in one figure
MOST_POINTS: Final = 200  # points of a curve
LONGEST: Final = 1e5  # tokens: longer time constants are drawn at this value
LEVELS: Final = 5  # shades of each colour

_LINE_BREAK: Final[dict[int, int | str]] = {**CONTROL_PICTURES, 0x0A: "↵\n"}
_TEXT_STYLE: Final = (
    "display:block;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;line-height:1.7;"
    "font-family:ui-monospace,monospace"
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One small histogram."""

    name: str  # "forget gate f"
    shares: Floats  # of the values in each bin
    low: float
    high: float
    note: str  # shares at both ends


def plot_histograms(rows: Mapping[str, Sequence[Panel]], *, title: str) -> str:
    """Plot one histogram per gate (columns) and layer (rows); y is the share of values, scaled per panel."""
    rows = dict(list(rows.items())[:MOST_ROWS])
    across = max(map(len, rows.values()))
    width, height = max(figures.WIDTH, across * (PANEL + 18) + 18), len(rows) * (LOW + 54)

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for i, (layer, panels) in enumerate(rows.items()):
            for j, panel in enumerate(panels):
                left, top = 18 + j * (PANEL + 18), i * (LOW + 54) + 34
                box = (left / width, 1 - (top + LOW) / height, PANEL / width, LOW / height)
                _histogram(axes.figure.add_axes(box), panel, f"{layer}, {panel.name}", figures.PALETTE[j])

    descriptions = (f"{layer}, {panel.name}: {panel.note}" for layer, panels in rows.items() for panel in panels)
    margins = figures.Margins(0, 0, 0, 0)
    description = "; ".join(descriptions) + "."
    return figures.render(paint, title, description, margins, height, width, is_compact=True)


def plot_saturation(layers: Mapping[str, Mapping[str, GateStatistics]], *, title: str) -> str:
    """Plot one panel per gate, one dot per cell: share of tokens open (x) against closed (y)."""
    names = {gate: f"{GATE_NAMES[gate]} {gate}" for gate in next(iter(layers.values()))}
    width, height = max(figures.WIDTH, len(names) * (PANEL + 44) + 26), PANEL + 92

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for j, gate in enumerate(names):
            box = ((52 + j * (PANEL + 44)) / width, 42 / height, PANEL / width, PANEL / height)
            panel = axes.figure.add_axes(box)
            panel.plot([0, 1], [1, 0], lw=0.8, color=figures.PALETTE[-1])
            for index, statistics in enumerate(layers.values()):
                figures.draw_dots(
                    panel,
                    statistics[gate].open_share,
                    statistics[gate].closed_share,
                    figures.PALETTE[index % len(figures.PALETTE)],
                    3.5,
                )
            panel.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            panel.set_title(names[gate], fontsize=figures.FONT_SIZE, pad=4)
            panel.set_xlabel("open, share of tokens")
            panel.set_ylabel("closed, share of tokens" if j == 0 else "")
        for index, layer in enumerate(layers):
            colour = figures.PALETTE[index % len(figures.PALETTE)]
            axes.plot([], [], "o", ms=4, mew=0, color=colour, label=layer)
        axes.legend(frameon=False, loc="upper left", ncols=5, handletextpad=0.1, borderaxespad=0.0)

    descriptions = (
        f"{layer}, {names[gate]}: open at {100 * statistics.open_share.mean():.0f} %, "
        f"closed at {100 * statistics.closed_share.mean():.0f} % of tokens"
        for layer, by_gate in layers.items()
        for gate, statistics in by_gate.items()
    )
    margins = figures.Margins(8, 0, 2, 0)
    description = "; ".join(descriptions) + "."
    return figures.render(paint, title, description, margins, height, width, is_compact=True)


def plot_time_constants(curves: Mapping[str, Floats], *, title: str) -> str:
    """Plot the time constants of the cells of every layer on a log scale, longest first."""

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for index, (name, values) in enumerate(curves.items()):
            x, y = survival_curve(values)
            axes.plot(
                x, y, lw=2, color=figures.PALETTE[index % len(figures.PALETTE)], label=name, marker="o", ms=2.5
            )
        axes.set_xlabel("share of cells with at least this time constant")
        axes.set_ylabel("time constant, tokens")
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)

    descriptions = (f"{name}: median {np.median(values):.3g} tokens" for name, values in curves.items())
    margins = figures.Margins(left=66, top=20 + 18 * -(-len(curves) // 2))
    return figures.render(paint, title, "; ".join(descriptions) + ".", margins, is_compact=True)


def survival_curve(values: Floats) -> tuple[Floats, Floats]:
    """Return the share of cells and the value they reach or exceed, at no more than `MOST_POINTS` points."""
    ordered = np.clip(np.sort(values)[::-1], 1e-3, LONGEST)
    indices = np.unique(np.linspace(0, len(ordered) - 1, MOST_POINTS).round().astype(int))
    return (indices + 1) / len(ordered), ordered[indices]


def activation_html(pieces: Sequence[str], values: Floats) -> str:
    """Return text coloured orange above the mean activation and blue below, saturated at two deviations."""
    centred = values - values.mean()
    spread = float(centred.std())
    depth = np.clip(centred / (2 * spread), -1, 1) if spread > 0 else np.zeros(len(values))
    levels = (depth * LEVELS).round().astype(int).tolist()
    spans = []
    for level, run in groupby(zip(pieces, levels, strict=True), key=lambda pair: pair[1]):
        text = html.escape("".join(piece for piece, _ in run).translate(_LINE_BREAK))
        colour = f"rgba({ORANGE if level > 0 else BLUE},{MAX_OPACITY * abs(level) / LEVELS:.2f})"
        spans.append(f'<span style="background:{colour}">{text}</span>' if level else text)
    return f'<span dir="auto" style="{_TEXT_STYLE}">{"".join(spans)}</span>'


def _histogram(axes: Any, panel: Panel, name: str, colour: str) -> None:
    edges = np.linspace(panel.low, panel.high, len(panel.shares) + 1)
    axes.stairs(panel.shares, edges, fill=True, color=colour, alpha=0.75)
    axes.set(xlim=(panel.low, panel.high), ylim=(0, max(float(panel.shares.max()), 1e-9) * 1.02), yticks=[])
    axes.set_xticks([panel.low, (panel.low + panel.high) / 2, panel.high])
    axes.xaxis.set_major_formatter("{x:.3g}")
    axes.grid(visible=False)
    axes.set_title(f"{name}\n{panel.note}", fontsize=figures.FONT_SIZE - 1, pad=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellActivity:
    """Gate and cell activity of one model on its text."""

    name: str
    layers: list[LayerStates]
    gate_statistics: dict[int, dict[str, GateStatistics]]  # by layer and gate
    time_constants: dict[int, Floats]  # (D,) of every layer with a memory gate
    text: AlignedText
    token_texts: list[str]  # (N,) the text split at tokens
    values: dict[str, Floats]  # (N,) per varying property
    best_cells: dict[str, list[CorrelatedCell]]  # best cell per property
    tracked: dict[str, list[CorrelatedCell]]  # best cells per tracked property
    is_cut: bool  # only the beginning of the text was read

    @property
    def tokens(self) -> int:
        """N."""
        return len(self.token_texts)

    def significant_cells(self) -> list[tuple[str, CorrelatedCell]]:
        """Return properties with a significantly correlated cell, strongest first, without redundant ones."""
        candidates = [(name, best) for name, (best, *_) in self.best_cells.items() if best.is_significant]
        result: list[tuple[str, CorrelatedCell]] = []
        for name, cell in sorted(candidates, key=lambda pair: -abs(pair[1].r_second)):
            if not any(are_redundant(self.values[name], self.values[other]) for other, _ in result):
                result.append((name, cell))
        return result


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
        drawing=plot_histograms(rows, title=f"Gate activations of {activity.name}"),
        caption=(
            f"{name}: distribution of gate values over all cells and {activity.tokens:,} tokens. Values below "
            f"{SHUT} count as closed, above {OPEN} as open.{cut}"
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
    statistics = {f"layer {k}": by_gate for k, by_gate in activity.gate_statistics.items()}
    yield Figure(
        name=f"{activity.name}: saturation",
        drawing=plot_saturation(statistics, title=f"Saturation of the gates of {activity.name}"),
        caption=(
            f"{name}: one dot per cell. x: share of tokens at which the gate is open (above {OPEN}); y: "
            f"share at which it is closed (below {SHUT}). On the diagonal a gate is always saturated, at "
            "the origin never. A forget or update gate far to the right retains the content of its cell."
        ),
        is_wide=True,
    )
    constants = {f"layer {number}": values for number, values in activity.time_constants.items()}
    gate = next(layer.memory_gate for layer in activity.layers) or ""
    yield Figure(
        name=f"{activity.name}: memory",
        drawing=plot_time_constants(constants, title=f"Time constants of the cells of {activity.name}"),
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
            (*HEADER, "follows it"),
            rows,
            label="Cells correlated with text properties",
            style=RULED,
            numbers=range(1, len(HEADER)),
        ),
        caption=(
            f"{name}: for each text property, the cell with the largest |r| (Pearson) on the first half, with r "
            "on both halves; the second half is held out. The p-value is the share of circular shifts of the "
            f"text with at least this |r|. A cell follows the property if |r| ≥ {MIN_CORRELATION} on the "
            f"second half and p ≤ {100 * MAX_P_VALUE:.0f} %. {NUMBERED}"
        ),
        is_wide=True,
    )


def _tracked_figure(
    activity: CellActivity, property_name: str, text_property: Property, correlated: Sequence[CorrelatedCell]
) -> Figure:
    text_figure = _text_figure(activity, property_name, text_property, correlated[0])
    rows = [(text_property.label, *_cell_row(cell)) for cell in correlated]
    table = html_table(
        HEADER, rows, label=f"Cells that follow {text_property.label}", style=RULED, numbers=range(1, len(HEADER))
    )
    return Figure(
        name=f"{activity.name}: track {property_name}",
        drawing=f"<div>{text_figure.drawing}{table}</div>",
        caption=f"{text_figure.caption} Below: the {len(correlated)} best cells on the first half. {NUMBERED}",
        is_wide=True,
    )


def _cell_row(cell: CorrelatedCell) -> tuple[str, ...]:
    first, second = map(format_correlation, (cell.r_first, cell.r_second))
    return str(cell.layer), str(cell.cell), first, second, f"{100 * cell.p_value:.2g} %"


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
        drawing=activation_html(activity.token_texts[excerpt], values[excerpt]),
        caption=(
            f"{escape(activity.name)}: text coloured by the activation of cell {best.cell} of layer {best.layer} "
            f"after each token: orange above the mean of this excerpt, blue below. {claim}: r = "
            f"{format_correlation(best.r_second)} on the second half, from which the excerpt is taken."
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
    counts, _ = np.histogram(layer.h, bins=BINS, range=(low, high if high > low else low + 1.0))
    word = "zero" if layer.nonlinearity == "relu" else "saturated"
    note = f"{100 * saturation(layer):.0f} % {word}" if layer.nonlinearity != "leaky" else "never saturated"
    return [Panel("states h", counts / layer.h.size, low, max(high, low + 1e-6), note)]


MAX_CELLS: Final = 3  # correlated cells that are reported
LEAST_SATURATED: Final = 0.01  # smallest share of saturated states that is reported


def describe(activity: CellActivity, tracked: Mapping[str, Property]) -> Iterator[str]:
    """Yield findings without model name and full stop: tracked properties, memory, cells, saturation."""
    for name, text_property in tracked.items():
        yield _tracked_finding(activity, name, text_property)
    yield from _memory_findings(activity)
    for name, best in activity.significant_cells()[:MAX_CELLS]:
        yield (f"cell {best.cell} of layer {best.layer} follows {PROPERTIES[name].label} ({best.description})")
    for layer in activity.layers:
        share = saturation(layer)
        if layer.gates or share < LEAST_SATURATED:
            continue
        is_zero = layer.nonlinearity == "relu"
        effect = "zero and pass no gradient" if is_zero else "saturated and pass almost no gradient"
        yield f"{100 * share:.0f} % of the states of layer {layer.layer} are {effect} back"


def _memory_findings(activity: CellActivity) -> Iterator[str]:
    """Describe the memory gates, the layer of longest memory first."""
    constants = activity.time_constants
    layers = {layer.layer: layer for layer in activity.layers}
    for number in sorted(constants, key=lambda number: -float(np.median(constants[number]))):
        gate = layers[number].memory_gate or ""
        gate_statistics = activity.gate_statistics[number][gate]
        mean = float(gate_statistics.mean.mean())
        slowest = int(np.argmax(constants[number]))
        yield (
            f"the {GATE_NAMES[gate]}s of layer {number} average {mean:.2f}, a time constant of "
            f"{_tokens(float(time_constants(np.array([mean]))[0]), activity.tokens)}; "
            f"{100 * gate_statistics.always_open:.0f} % of them are nearly always open, and the longest time "
            f"constant, of cell {slowest + 1}, is {_tokens(float(constants[number][slowest]), activity.tokens)}"
        )


def _tokens(number: float, read: int) -> str:
    """Format a time constant, capped by the number of tokens read."""
    if number > read:
        return f"more than the {read} token{'s' * (read > 1)} read"
    shown = f"{number:.1f}" if number < 10 else f"{number:.0f}"
    return f"{shown} tokens"


def _tracked_finding(activity: CellActivity, name: str, text_property: Property) -> str:
    label = text_property.label
    if name not in activity.tracked:
        return f"{label} cannot be tracked: too rare or too common in the {activity.tokens:,} tokens read"
    best = activity.tracked[name][0]
    cell = f"cell {best.cell} of layer {best.layer}"
    if not best.is_significant:
        return f"no cell follows {label} significantly; the best, {cell}, has {best.description}"
    return f"the cell that follows {label} best is {cell} ({best.description})"


def to_json(activity: CellActivity) -> dict[str, Any]:
    """Return the statistics of gates, cells and tracked properties."""
    constants = activity.time_constants
    return {
        "tokens": activity.tokens,
        "layers": [
            {
                "layer": layer.layer,
                "width": layer.h.shape[1],
                "saturated_states": saturation(layer),
                "gates": {
                    gate: _gate_data(statistics)
                    for gate, statistics in activity.gate_statistics[layer.layer].items()
                },
                "memory": _memory_data(constants[layer.layer]) if layer.layer in constants else None,
            }
            for layer in activity.layers
        ],
        "followers": {name: _cell_data(best) for name, (best, *_) in activity.best_cells.items()},
        "tracked": {
            name: [_cell_data(statistics) for statistics in tracked_cells]
            for name, tracked_cells in activity.tracked.items()
        },
    }


def _gate_data(statistics: GateStatistics) -> dict[str, Any]:
    return {
        "mean": float(statistics.mean.mean()),
        "shut": float(statistics.closed_share.mean()),
        "open": float(statistics.open_share.mean()),
        "always_open": statistics.always_open,
        "histogram": statistics.histogram.tolist(),
    }


def _memory_data(values: Floats) -> dict[str, Any]:
    quantiles = np.quantile(np.sort(values), [0.25, 0.5, 0.75, 1.0], method="lower").tolist()
    names = ("lower_quartile", "median", "upper_quartile", "largest")
    quartiles = dict(zip(names, map(replace_nonfinite, quantiles), strict=True))
    return {"unit": "tokens", **quartiles, "slowest_cell": int(np.argmax(values)) + 1}


def _cell_data(cell: CorrelatedCell) -> dict[str, Any]:
    return {
        "layer": cell.layer,
        "cell": cell.cell,
        "r_first_half": cell.r_first,
        "r_second_half": cell.r_second,
        "chance": cell.p_value,
        "is_found": cell.is_significant,
    }


def activation_arrays(activity: CellActivity) -> Iterator[tuple[str, Floats]]:
    """Yield the gates and states of every layer, (N, D) each, by name."""
    for layer in activity.layers:
        states = {"h": layer.h} if layer.c is None else {"h": layer.h, "c": layer.c}
        for what, values in {**layer.gates, **states}.items():
            yield f"{activity.name}/layer {layer.layer}/{what}", values


TOP: Final = 10  # cells listed for a tracked property


def read_cells(
    sample: Sample, tracked: Mapping[str, Property], progress: Progress, *, models: int = 1
) -> CellActivity:
    """Read the text once and search all cells for every property that varies in it.

    The memory budget is shared by `models` models: the more there are, the less of a long text is read.
    """
    from chainrule.neural.probes.activations import read_gate_activations

    layers = read_gate_activations(sample.model.lm, sample.text, progress, models=models)  # type: ignore[arg-type]
    N = len(layers[0].h)
    text = align_text(sample, N)
    values = select_varying({name: text_property.values(text) for name, text_property in PROPERTIES.items()})
    tracked_values: dict[str, Floats] = {}
    for name, text_property in tracked.items():  # separately: select_varying drops duplicates
        tracked_values |= select_varying({name: text_property.values(text)})
    statistics = {
        layer.layer: {gate: gate_statistics(x) for gate, x in layer.sigmoid_gates.items()} for layer in layers
    }
    memory_gates = {layer.layer: gate for layer in layers if (gate := layer.memory_gate)}
    return CellActivity(
        name=sample.name,
        layers=layers,
        gate_statistics=statistics,
        time_constants={k: time_constants(statistics[k][gate].mean) for k, gate in memory_gates.items()},
        text=text,
        token_texts=text.token_texts(),
        values=values | tracked_values,
        best_cells=find_correlated_cells(layers, values),
        tracked=find_correlated_cells(layers, tracked_values, TOP),
        is_cut=len(sample.ids) > N,
    )


def align_text(sample: Sample, tokens: int) -> AlignedText:
    """Return the characters of the first tokens: `</s>` is a line break, words are separated by blanks.

    Unknown words are spelled as in the text, not as `<unk>`.
    """
    tokenizer = sample.model.tokenizer
    kind, collapses_blanks = tokenizer.config.kind, tokenizer.config.collapses_blanks
    ids = sample.ids[:tokens].tolist()
    pieces: list[bytes] = []
    is_apart: list[bool] = []
    joins_next = False
    for i, name in zip(ids, sample.source_tokens, strict=False):
        is_first = not pieces or pieces[-1] == b"\n"
        if i == tokenizer.eos:
            pieces.append(b"\n")
        elif kind == "word":
            text = punctuation.join(name)
            left, right = punctuation.joined_sides(name)
            pieces.append(text.encode())
            is_first, joins_next = is_first or left or joins_next, right
        elif kind in ("whitespace", "char") or i == tokenizer.unk:
            pieces.append(name.encode())
        else:
            written = tokenizer.name(i)
            pieces.append(_bytes(written.removeprefix("##") if kind == "wordpiece" else written))
            is_first = is_first or (kind == "wordpiece" and written.startswith("##"))
        is_apart.append(collapses_blanks and i != tokenizer.eos and not is_first)
    return AlignedText.from_bytes(pieces, is_apart, is_line=sample.model.lm.context == "line")


def _bytes(written: str) -> bytes:
    alphabet = byte_alphabet()
    return bytes(alphabet[character] for character in written)


def section(samples: Sequence[Sample], *, track: Sequence[str] = (), progress: Progress = silent) -> Section | None:
    """Return gates, time constants and correlated cells of every recurrent model; None without recurrent models.

    `track` selects text properties: names of `PROPERTIES` or `/regex/`.
    """
    tracked = {name: parse_property(name) for name in track}
    recurrent = [sample for sample in samples if sample.model.family in CELLS]
    if not recurrent:
        return None
    activities = [read_cells(sample, tracked, progress, models=len(recurrent)) for sample in recurrent]
    return Section(
        name="gates",
        title="Gates and states",
        findings=tuple(
            Finding(activity.name, f"{clause}.")
            for activity in activities
            for clause in describe(activity, tracked)
        ),
        figures=tuple(figure for activity in activities for figure in make_figures(activity, tracked)),
        data={activity.name: to_json(activity) for activity in activities},
        arrays={name: values for activity in activities for name, values in activation_arrays(activity)},
    )
