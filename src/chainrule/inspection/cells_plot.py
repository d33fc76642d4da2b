"""Plots of gates and cells: histograms, saturation, time constants, text coloured by cell activation."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.cells import GateStatistics
from chainrule.inspection.matrix import GATE_NAMES
from chainrule.inspection.matrix_plot import compact_paths, draw_dots
from chainrule.inspection.surprisal import CONTROL_PICTURES, MAX_OPACITY
from chainrule.lm import Floats

PANEL: Final = 148  # pixels
LOW: Final = 84  # height of a histogram
MOST_ROWS: Final = 8  # layers in one figure
MOST_POINTS: Final = 200  # points of a curve
LONGEST: Final = 1e5  # tokens: longer time constants are drawn at this value
LEVELS: Final = 5  # shades of each colour

ABOVE: Final = "213,94,0"
BELOW: Final = "0,114,178"
"""Orange and blue of `plots.PALETTE`, as RGB."""

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
    width, height = max(plots.WIDTH, across * (PANEL + 18) + 18), len(rows) * (LOW + 54)

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for i, (layer, panels) in enumerate(rows.items()):
            for j, panel in enumerate(panels):
                left, top = 18 + j * (PANEL + 18), i * (LOW + 54) + 34
                box = (left / width, 1 - (top + LOW) / height, PANEL / width, LOW / height)
                _histogram(axes.figure.add_axes(box), panel, f"{layer}, {panel.name}", plots.PALETTE[j])

    descriptions = (f"{layer}, {panel.name}: {panel.note}" for layer, panels in rows.items() for panel in panels)
    margins = plots.Margins(0, 0, 0, 0)
    return compact_paths(plots.render(paint, title, "; ".join(descriptions) + ".", margins, height, width))


def plot_saturation(layers: Mapping[str, Mapping[str, GateStatistics]], *, title: str) -> str:
    """Plot one panel per gate, one dot per cell: share of tokens open (x) against closed (y)."""
    gates = list(next(iter(layers.values())))
    width, height = max(plots.WIDTH, len(gates) * (PANEL + 44) + 26), PANEL + 92

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for j, gate in enumerate(gates):
            box = ((52 + j * (PANEL + 44)) / width, 42 / height, PANEL / width, PANEL / height)
            panel = axes.figure.add_axes(box)
            panel.plot([0, 1], [1, 0], lw=0.8, color=plots.PALETTE[-1])
            for index, statistics in enumerate(layers.values()):
                draw_dots(
                    panel,
                    statistics[gate].open_share,
                    statistics[gate].closed_share,
                    plots.PALETTE[index % len(plots.PALETTE)],
                    3.5,
                )
            panel.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            panel.set_title(_gate_name(gate), fontsize=plots.FONT_SIZE, pad=4)
            panel.set_xlabel("open, share of tokens")
            panel.set_ylabel("closed, share of tokens" if j == 0 else "")
        for index, layer in enumerate(layers):
            colour = plots.PALETTE[index % len(plots.PALETTE)]
            axes.plot([], [], "o", ms=4, mew=0, color=colour, label=layer)
        axes.legend(frameon=False, loc="upper left", ncols=5, handletextpad=0.1, borderaxespad=0.0)

    descriptions = (
        f"{layer}, {_gate_name(gate)}: open at {100 * statistics.open_share.mean():.0f} %, "
        f"closed at {100 * statistics.closed_share.mean():.0f} % of tokens"
        for layer, by_gate in layers.items()
        for gate, statistics in by_gate.items()
    )
    margins = plots.Margins(8, 0, 2, 0)
    return compact_paths(plots.render(paint, title, "; ".join(descriptions) + ".", margins, height, width))


def plot_time_constants(curves: Mapping[str, Floats], *, title: str) -> str:
    """Plot the time constants of the cells of every layer on a log scale, longest first."""

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for index, (name, values) in enumerate(curves.items()):
            x, y = survival_curve(values)
            axes.plot(x, y, lw=2, color=plots.PALETTE[index % len(plots.PALETTE)], label=name, marker="o", ms=2.5)
        axes.set_xlabel("share of cells with at least this time constant")
        axes.set_ylabel("time constant, tokens")
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)

    descriptions = (f"{name}: median {np.median(values):.3g} tokens" for name, values in curves.items())
    margins = plots.Margins(left=66, top=20 + 18 * -(-len(curves) // 2))
    return compact_paths(plots.render(paint, title, "; ".join(descriptions) + ".", margins))


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
        colour = f"rgba({ABOVE if level > 0 else BELOW},{MAX_OPACITY * abs(level) / LEVELS:.2f})"
        spans.append(f'<span style="background:{colour}">{text}</span>' if level else text)
    return f'<span dir="auto" style="{_TEXT_STYLE}">{"".join(spans)}</span>'


def _histogram(axes: Any, panel: Panel, name: str, colour: str) -> None:
    edges = np.linspace(panel.low, panel.high, len(panel.shares) + 1)
    axes.stairs(panel.shares, edges, fill=True, color=colour, alpha=0.75)
    axes.set(xlim=(panel.low, panel.high), ylim=(0, max(float(panel.shares.max()), 1e-9) * 1.02), yticks=[])
    axes.set_xticks([panel.low, (panel.low + panel.high) / 2, panel.high])
    axes.xaxis.set_major_formatter("{x:.3g}")
    axes.grid(visible=False)
    axes.set_title(f"{name}\n{panel.note}", fontsize=plots.FONT_SIZE - 1, pad=3)


def _gate_name(gate: str) -> str:
    return f"{GATE_NAMES[gate]} {gate}"
