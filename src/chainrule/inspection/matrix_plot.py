"""Recurrent matrices as pictures: eigenvalues on the complex plane, a table of sizes, the bound by lag.

Lives here: `Recurrence`s in, HTML out; and dots that cost few bytes. Not here: the numbers (matrix.py).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.matrix import GATES, Complexes, Recurrence, Spectrum
from chainrule.inspection.table import RULED, html_table
from chainrule.lm import Floats

PANEL: Final = 150  # pixels
GAP: Final = 26
HEAD: Final = 22
NARROWEST, WIDEST = 150, 234  # pixels of a page that a plane takes; five stand side by side in 1,040
LOWEST: Final = 1e-8  # of the bound as it is drawn
HIGHEST: Final = 1e8

_DOT: Final = re.compile(r"M ([-\d.]+) ([-\d.]+) *\n?L \1 \2(?![\d.]) *\n?")
_PATH: Final = re.compile(r' d="(M [^"]*)"')


def eigenvalues(recurrences: Sequence[Recurrence], *, title: str) -> str:
    """One complex plane a layer, then one for each way to draw first weights of the first layer's width."""
    panels = {_layer_name(each): each.main.eigenvalues for each in recurrences}
    trained = len(panels)
    panels |= {f"drawn {name}": each.eigenvalues for name, each in recurrences[0].drawn.items()}
    planes = [
        _plane(values, f"{title}, {name}", name, plots.PALETTE[0 if place < trained else 1])
        for place, (name, values) in enumerate(panels.items())
    ]
    if not planes[0].startswith("<svg"):
        return planes[0]  # a note that nothing can be drawn
    style = f"flex:0 0 {share_of_row(len(planes))};min-width:0"
    limit = f"max-width:{WIDEST}px"
    cells = "".join(f'<div style="{style}"><div style="{limit}">{plane}</div></div>' for plane in planes)
    return f'<div style="display:flex;flex-wrap:wrap">{cells}</div>'


def share_of_row(count: int) -> str:
    """The width, as CSS, of each of so many planes: all in one row where it is wide enough, else in even rows.

    (least − 100 %) · 999 is huge where the row is narrower than `least` and below 0 where it is not, so that each
    `min` counts from its width downwards: of five planes five in a row, then three and two, then two, two and one.
    """
    steps = []
    is_above = count
    for across in sorted({-(-count // rows) for rows in range(2, count + 1)}, reverse=True):
        steps.append(f"min(({NARROWEST * is_above}px - 100%)*999,100%/{across})")
        is_above = across
    return f"max({','.join([f'100%/{count}', *steps])})" if steps else "100%"


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
    return html_table(header, [_sizes(*row) for row in rows], label="Sizes of recurrent matrices", look=RULED)


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


def _plane(values: Complexes, title: str, name: str, colour: str) -> str:
    """An `<svg>` of its own."""
    margins = plots.Margins(left=GAP, right=4, top=HEAD, bottom=HEAD)
    height, width = PANEL + 2 * HEAD, PANEL + GAP + 4
    description = f"{name}: largest modulus {np.abs(values).max():.2f}."
    drawn = plots.render(
        lambda axes: _paint_plane(axes, values, name, colour), title, description, margins, height, width
    )
    return compact(drawn)


def _paint_plane(axes: Any, values: Complexes, name: str, colour: str) -> None:
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
    return name, str(width), f"{spectrum.radius:.3f}", f"{spectrum.norm:.3f}", f"{100 * spectrum.outside:.0f} %"


def _layer_name(recurrence: Recurrence) -> str:
    gate = recurrence.main_gate
    return f"layer {recurrence.layer}" + (f", {GATES[gate]} {gate}" if gate else "")


def _gate_name(gate: str) -> str:
    return f"{GATES[gate]} {gate}".strip()
