"""Gates and cells as pictures: small histograms, saturation, memory, text coloured by what a cell holds.

Lives here: numbers in, HTML out. Not here: the numbers (cells.py), captions (microscope/gates.py).
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.cells import Opening
from chainrule.inspection.matrix import GATES
from chainrule.inspection.matrix_plot import compact, dots
from chainrule.inspection.surprisal import CONTROL_PICTURES, DEEPEST
from chainrule.lm import Floats

PANEL: Final = 148  # pixels
LOW: Final = 84  # height of a histogram
MOST_ROWS: Final = 8  # layers in one picture
MOST_POINTS: Final = 200  # of a curve
LONGEST: Final = 1e5  # tokens: memories beyond it are drawn here
LEVELS: Final = 5  # depths of either colour

ABOVE: Final = "213,94,0"
BELOW: Final = "0,114,178"
"""Red and blue of `plots.PALETTE`, translucent."""

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
    note: str  # what lies at the ends


def histograms(rows: Mapping[str, Sequence[Panel]], *, title: str) -> str:
    """A row a layer, a panel a gate; y is the share of the values, the highest bin fills the panel."""
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

    words = (f"{layer}, {each.name}: {each.note}" for layer, panels in rows.items() for each in panels)
    margins = plots.Margins(0, 0, 0, 0)
    return compact(plots.render(paint, title, "; ".join(words) + ".", margins, height, width))


def saturations(layers: Mapping[str, Mapping[str, Opening]], *, title: str) -> str:
    """A panel a gate, a dot a cell: across how often it is open, up how often it is shut."""
    gates = list(next(iter(layers.values())))
    width, height = max(plots.WIDTH, len(gates) * (PANEL + 44) + 26), PANEL + 92

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for j, gate in enumerate(gates):
            box = ((52 + j * (PANEL + 44)) / width, 42 / height, PANEL / width, PANEL / height)
            own = axes.figure.add_axes(box)
            own.plot([0, 1], [1, 0], lw=0.8, color=plots.PALETTE[-1])
            for place, each in enumerate(layers.values()):
                dots(own, each[gate].right, each[gate].left, plots.PALETTE[place % len(plots.PALETTE)], 3.5)
            own.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            own.set_title(_gate_name(gate), fontsize=plots.FONT_SIZE, pad=4)
            own.set_xlabel("open, share of tokens")
            own.set_ylabel("shut, share of tokens" if j == 0 else "")
        for place, layer in enumerate(layers):
            colour = plots.PALETTE[place % len(plots.PALETTE)]
            axes.plot([], [], "o", ms=4, mew=0, color=colour, label=layer)
        axes.legend(frameon=False, loc="upper left", ncols=5, handletextpad=0.1, borderaxespad=0.0)

    words = (
        f"{layer}, {_gate_name(gate)}: open at {100 * each.right.mean():.0f} %, "
        f"shut at {100 * each.left.mean():.0f} % of tokens"
        for layer, own in layers.items()
        for gate, each in own.items()
    )
    margins = plots.Margins(8, 0, 2, 0)
    return compact(plots.render(paint, title, "; ".join(words) + ".", margins, height, width))


def memories(curves: Mapping[str, Floats], *, title: str) -> str:
    """Time constants of every layer's cells, the slowest first, on a log scale."""

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for place, (name, values) in enumerate(curves.items()):
            x, y = sorted_curve(values)
            axes.plot(x, y, lw=2, color=plots.PALETTE[place % len(plots.PALETTE)], label=name, marker="o", ms=2.5)
        axes.set_xlabel("share of the layer's cells with at least this memory")
        axes.set_ylabel("time constant, tokens")
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)

    words = (f"{name}: median {np.median(values):.3g} tokens" for name, values in curves.items())
    margins = plots.Margins(left=66, top=20 + 18 * -(-len(curves) // 2))
    return compact(plots.render(paint, title, "; ".join(words) + ".", margins))


def sorted_curve(values: Floats) -> tuple[Floats, Floats]:
    """Share of the cells and the value they have at least, at no more than `MOST_POINTS` points."""
    ordered = np.clip(np.sort(values)[::-1], 1e-3, LONGEST)
    at = np.unique(np.linspace(0, len(ordered) - 1, MOST_POINTS).round().astype(int))
    return (at + 1) / len(ordered), ordered[at]


def coloured(pieces: Sequence[str], values: Floats) -> str:
    """The text, orange where the cell holds more than its mean here, blue where less; full at two deviations."""
    centred = values - values.mean()
    spread = float(centred.std())
    depth = np.clip(centred / (2 * spread), -1, 1) if spread > 0 else np.zeros(len(values))
    levels = (depth * LEVELS).round().astype(int).tolist()
    spans = []
    for level, run in groupby(zip(pieces, levels, strict=True), key=lambda pair: pair[1]):
        text = html.escape("".join(piece for piece, _ in run).translate(_LINE_BREAK))
        colour = f"rgba({ABOVE if level > 0 else BELOW},{DEEPEST * abs(level) / LEVELS:.2f})"
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
    return f"{GATES[gate]} {gate}"
