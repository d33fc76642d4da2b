"""Recurrent matrices as pictures: eigenvalues on the complex plane, a table of sizes, the bound by lag.

Lives here: `Recurrence`s in, HTML out; and dots that cost few bytes. Not here: the numbers (matrix.py).
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.matrix import GATES, Complexes, Recurrence, Spectrum
from chainrule.inspection.surprisal import CONTROL_PICTURES
from chainrule.lm import Floats

PANEL: Final = 150  # pixels
GAP: Final = 26
ACROSS: Final = 4  # panels in a row
LOWEST: Final = 1e-8  # of the bound as it is drawn
HIGHEST: Final = 1e8

TABLE_STYLE: Final = "border-collapse:collapse;font-size:.9em"
CELL_STYLE: Final = (
    "padding:.15em .7em;text-align:right;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)"
)

_DOT: Final = re.compile(r"M ([-\d.]+) ([-\d.]+) *\n?L \1 \2(?![\d.]) *\n?")
_PATH: Final = re.compile(r' d="(M [^"]*)"')


def eigenvalues(recurrences: Sequence[Recurrence], *, title: str) -> str:
    """One complex plane a layer, then one for each way to draw first weights of the first layer's width."""
    panels = {_layer_name(each): each.main.eigenvalues for each in recurrences}
    trained = len(panels)
    panels |= {f"drawn {name}": each.eigenvalues for name, each in recurrences[0].drawn.items()}
    rows = -(-len(panels) // ACROSS)
    across = min(len(panels), ACROSS)
    height, width = rows * (PANEL + GAP + 22), max(plots.WIDTH, across * (PANEL + GAP))

    def paint(axes: Any) -> None:
        axes.set_axis_off()
        for place, (name, values) in enumerate(panels.items()):
            left, top = place % across * (PANEL + GAP) + GAP, place // across * (PANEL + GAP + 22) + 22
            box = (left / width, 1 - (top + PANEL) / height, PANEL / width, PANEL / height)
            _plane(axes.figure.add_axes(box), values, name, plots.PALETTE[0 if place < trained else 1])

    sizes = (f"{name}: largest modulus {np.abs(values).max():.2f}" for name, values in panels.items())
    return compact(plots.render(paint, title, "; ".join(sizes) + ".", plots.Margins(0, 0, 0, 0), height, width))


def bounds(curves: Mapping[str, Floats], *, title: str) -> str:
    """(σ_max · γ)^k by lag k on a log scale, as far as numbers stay readable; level at 1."""

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        axes.axhline(1.0, color=plots.PALETTE[-1], lw=1)
        for place, (name, values) in enumerate(curves.items()):
            shown = values[: max(2, int(((values >= LOWEST) & (values <= HIGHEST)).sum()))]
            colour = plots.PALETTE[place % len(plots.PALETTE)]
            axes.plot(np.clip(shown, LOWEST, HIGHEST), lw=2, color=colour, label=name)
        axes.set_xlabel("tokens back, k")
        axes.set_ylabel("part of the gradient left, at most")
        axes.set_ylim(LOWEST, HIGHEST)
        axes.set_yticks([LOWEST, 1e-4, 1.0, 1e4, HIGHEST])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)

    ends = "; ".join(f"{name}: {values[1]:.3g} a step" for name, values in curves.items())
    margins = plots.Margins(left=66, top=20 + 18 * -(-len(curves) // 2))
    return plots.render(paint, title, ends + ".", margins)


def table(recurrences: Sequence[Recurrence]) -> str:
    """Sizes of every matrix, the drawn ones of each width below them."""
    rows = [
        (f"layer {each.layer}, {_gate_name(gate)}", each.width, spectrum)
        for each in recurrences
        for gate, spectrum in each.spectra.items()
    ]
    seen = {each.width: each.drawn for each in recurrences}
    rows += [
        (f"drawn {name}", width, spectrum) for width, drawn in seen.items() for name, spectrum in drawn.items()
    ]
    header = ("matrix", "width", "spectral radius", "largest singular value", "eigenvalues outside the circle")
    return html_table(header, [_sizes(*row) for row in rows])


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls where the page is narrow; the cells are plain text."""
    names = "".join(f'<th scope="col" style="{CELL_STYLE}">{html.escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="white-space:nowrap;{CELL_STYLE}">{html.escape(_shown(cell))}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    return (
        f'<div style="overflow-x:auto"><table style="{TABLE_STYLE}"><thead><tr>{names}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def dots(axes: Any, x: Floats, y: Floats, colour: str, size: float = 3.0) -> None:
    """Round points as one path, a dozen bytes each once `compact` has seen it."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = np.stack([x, y], axis=1)[:, None].repeat(2, axis=1).reshape(-1, 2)  # each twice: a line of no length
    path = Path(points, np.tile([Path.MOVETO, Path.LINETO], len(x)))
    path.should_simplify = False
    axes.add_patch(PathPatch(path, fill=False, lw=size, color=colour, capstyle="round", alpha=0.8, clip_on=False))


def compact(drawn: str) -> str:
    """The same SVG with every path's numbers at a tenth of a pixel, and points written short."""

    def shorter(match: re.Match[str]) -> str:
        path = re.sub(r"-?\d+\.\d\d+", lambda number: f"{float(number[0]):.1f}", match[1])
        return f' d="{_DOT.sub(lambda dot: f"M{dot[1]} {dot[2]}h0", path)}"'

    return _PATH.sub(shorter, drawn)


def _plane(axes: Any, values: Complexes, name: str, colour: str) -> None:
    """As wide as its eigenvalues need, and at least the unit circle."""
    reach = 1.08 * max(1.0, float(np.abs(values).max()))
    decade = 10.0 ** np.floor(np.log10(reach))
    tick = decade * max(step for step in (1, 2, 5) if step * decade <= reach)
    turn = np.linspace(0.0, 2 * np.pi, 73)
    axes.plot(np.cos(turn), np.sin(turn), lw=1, color=plots.PALETTE[-1])
    dots(axes, values.real, values.imag, colour)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[-tick, 0, tick], yticks=[-tick, 0, tick])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.spines[:].set_visible(False)
    axes.grid(visible=True, axis="both")
    axes.set_title(name, fontsize=plots.FONT_SIZE, pad=4)


def _sizes(name: str, width: int, spectrum: Spectrum) -> tuple[str, ...]:
    return name, str(width), f"{spectrum.radius:.3f}", f"{spectrum.norm:.3f}", f"{spectrum.outside:.0%}"


def _layer_name(recurrence: Recurrence) -> str:
    gate = recurrence.main_gate
    return f"layer {recurrence.layer}" + (f", {GATES[gate]} {gate}" if gate else "")


def _gate_name(gate: str) -> str:
    return f"{GATES[gate]} {gate}".strip()


def _shown(text: str) -> str:
    return text.translate(CONTROL_PICTURES)
