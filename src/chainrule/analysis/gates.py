"""Activity of recurrent cells over a text: gate statistics, saturation, memory, correlation with text properties.

N tokens, D cells, P properties.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import numpy as np

from chainrule.analysis.recurrent_matrix import GATE_NAMES, compact_paths, draw_dots
from chainrule.lm import Floats
from chainrule.plots import base
from chainrule.plots.html import BLUE, CONTROL_PICTURES, MAX_OPACITY, ORANGE

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStates:
    """Gate activations and states of one layer, (N, D) each."""

    layer: int  # the first is 1
    h: Floats
    c: Floats | None = None  # an LSTM's
    gates: Mapping[str, Floats] = field(default_factory=dict)  # i, f, g, o or r, z, n
    nonlinearity: str = "tanh"  # activation function of h

    @property
    def memory_gate(self) -> str | None:
        """The gate that retains the state: f of an LSTM, z of a GRU."""
        return next((name for name in ("f", "z") if name in self.gates), None)

    @property
    def sigmoid_gates(self) -> dict[str, Floats]:
        """The gates with values between 0 and 1, without the candidates g and n."""
        return {name: values for name, values in self.gates.items() if name not in ("g", "n")}

    @property
    def cell_values(self) -> Floats:
        """(N, D) tanh(c) of an LSTM, otherwise h."""
        return self.h if self.c is None else np.tanh(self.c)


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
    width, height = max(base.WIDTH, across * (PANEL + 18) + 18), len(rows) * (LOW + 54)

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for i, (layer, panels) in enumerate(rows.items()):
            for j, panel in enumerate(panels):
                left, top = 18 + j * (PANEL + 18), i * (LOW + 54) + 34
                box = (left / width, 1 - (top + LOW) / height, PANEL / width, LOW / height)
                _histogram(axes.figure.add_axes(box), panel, f"{layer}, {panel.name}", base.PALETTE[j])

    descriptions = (f"{layer}, {panel.name}: {panel.note}" for layer, panels in rows.items() for panel in panels)
    margins = base.Margins(0, 0, 0, 0)
    return compact_paths(base.render(paint, title, "; ".join(descriptions) + ".", margins, height, width))


def plot_saturation(layers: Mapping[str, Mapping[str, GateStatistics]], *, title: str) -> str:
    """Plot one panel per gate, one dot per cell: share of tokens open (x) against closed (y)."""
    gates = list(next(iter(layers.values())))
    width, height = max(base.WIDTH, len(gates) * (PANEL + 44) + 26), PANEL + 92

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for j, gate in enumerate(gates):
            box = ((52 + j * (PANEL + 44)) / width, 42 / height, PANEL / width, PANEL / height)
            panel = axes.figure.add_axes(box)
            panel.plot([0, 1], [1, 0], lw=0.8, color=base.PALETTE[-1])
            for index, statistics in enumerate(layers.values()):
                draw_dots(
                    panel,
                    statistics[gate].open_share,
                    statistics[gate].closed_share,
                    base.PALETTE[index % len(base.PALETTE)],
                    3.5,
                )
            panel.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            panel.set_title(_gate_name(gate), fontsize=base.FONT_SIZE, pad=4)
            panel.set_xlabel("open, share of tokens")
            panel.set_ylabel("closed, share of tokens" if j == 0 else "")
        for index, layer in enumerate(layers):
            colour = base.PALETTE[index % len(base.PALETTE)]
            axes.plot([], [], "o", ms=4, mew=0, color=colour, label=layer)
        axes.legend(frameon=False, loc="upper left", ncols=5, handletextpad=0.1, borderaxespad=0.0)

    descriptions = (
        f"{layer}, {_gate_name(gate)}: open at {100 * statistics.open_share.mean():.0f} %, "
        f"closed at {100 * statistics.closed_share.mean():.0f} % of tokens"
        for layer, by_gate in layers.items()
        for gate, statistics in by_gate.items()
    )
    margins = base.Margins(8, 0, 2, 0)
    return compact_paths(base.render(paint, title, "; ".join(descriptions) + ".", margins, height, width))


def plot_time_constants(curves: Mapping[str, Floats], *, title: str) -> str:
    """Plot the time constants of the cells of every layer on a log scale, longest first."""

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for index, (name, values) in enumerate(curves.items()):
            x, y = survival_curve(values)
            axes.plot(x, y, lw=2, color=base.PALETTE[index % len(base.PALETTE)], label=name, marker="o", ms=2.5)
        axes.set_xlabel("share of cells with at least this time constant")
        axes.set_ylabel("time constant, tokens")
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)

    descriptions = (f"{name}: median {np.median(values):.3g} tokens" for name, values in curves.items())
    margins = base.Margins(left=66, top=20 + 18 * -(-len(curves) // 2))
    return compact_paths(base.render(paint, title, "; ".join(descriptions) + ".", margins))


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
    axes.set_title(f"{name}\n{panel.note}", fontsize=base.FONT_SIZE - 1, pad=3)


def _gate_name(gate: str) -> str:
    return f"{GATE_NAMES[gate]} {gate}"
