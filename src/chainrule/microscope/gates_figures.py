"""Figures of gates and states, with the captions that say how to read them.

Lives here: one model's figures. Not here: the numbers (cell_reading.py), drawing (inspection/cells_plot.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from chainrule.inspection import cells, cells_plot
from chainrule.inspection.cells import Follower, LayerStates, Opening
from chainrule.inspection.cells_plot import Panel
from chainrule.inspection.foreign import isolated
from chainrule.inspection.matrix import GATES
from chainrule.inspection.running_text import PROPERTIES, Property, RunningText
from chainrule.inspection.section import Figure
from chainrule.inspection.table import RULED, html_table
from chainrule.lm import Floats
from chainrule.microscope.cell_reading import Reading

MOST_TEXTS: Final = 4  # coloured texts a model, beside those that were asked for
EXCERPT: Final = 700  # characters of a coloured text
STARTS: Final = 10  # places an excerpt may begin at
NUMBERED: Final = "Layers and cells are counted from 1."
HEADER: Final = ("property", "layer", "cell", "r, first half", "r, second half", "chance")


def figures(reading: Reading, wanted: Mapping[str, Property]) -> Iterator[Figure]:
    """Distributions, saturation, memory; the cells that follow something, and text in their colours."""
    name = isolated(reading.name)
    rows = {f"layer {layer.layer}": _panels(layer, reading.openings[layer.layer]) for layer in reading.layers}
    cut = f" Read were the first {reading.tokens:,} tokens." if reading.is_cut else ""
    yield Figure(
        name=f"{reading.name}: distributions",
        drawing=cells_plot.histograms(rows, title=f"What the cells of {reading.name} do"),
        caption=(
            f"{name}: how often each value comes, over all cells and {reading.tokens:,} tokens. A gate at 0 is "
            f"shut, at 1 open; shut counts values below {cells.SHUT}, open above {cells.OPEN}.{cut}"
            if reading.openings[1]
            else f"{name}: how often each state comes, over all cells and {reading.tokens:,} tokens. Where φ is "
            f"saturated its slope is almost 0, and so is the gradient that passes.{cut}"
        ),
        is_wide=True,
    )
    if reading.openings[1]:
        yield from _gate_figures(reading, name)
    if reading.followers:
        yield _follower_figure(reading, name)
    for asked, best in reading.found()[:MOST_TEXTS]:
        yield _text_figure(reading, asked, PROPERTIES[asked], best)
    for asked, several in reading.tracked.items():
        yield _tracked_figure(reading, asked, wanted[asked], several)


def _gate_figures(reading: Reading, name: str) -> Iterator[Figure]:
    openings = {f"layer {number}": own for number, own in reading.openings.items()}
    yield Figure(
        name=f"{reading.name}: saturation",
        drawing=cells_plot.saturations(openings, title=f"Saturation of the gates of {reading.name}"),
        caption=(
            f"{name}: a dot a cell. Across: share of the tokens at which its gate is open (above {cells.OPEN}); "
            f"up: share at which it is shut (below {cells.SHUT}). On the line a gate is always one or the "
            "other; at the origin it is neither. A forget or update gate far to the right keeps what its cell has."
        ),
        is_wide=True,
    )
    memories = {f"layer {number}": values for number, values in reading.memories().items()}
    gate = next(layer.keeping for layer in reading.layers) or ""
    yield Figure(
        name=f"{reading.name}: memory",
        drawing=cells_plot.memories(memories, title=f"Memory of the cells of {reading.name}"),
        caption=(
            f"{name}: time constants in tokens, −1 / log {gate}̄ with {gate}̄ the cell's mean {GATES[gate]} over the "
            "text: after so many tokens 1/e, or 37 %, of what the cell held is left. Read: so many of the cells "
            "keep at least so long."
        ),
    )


def _follower_figure(reading: Reading, name: str) -> Figure:
    rows = [
        (PROPERTIES[asked].label, *_cells_of(best), "yes" if best.is_found else "no")
        for asked, (best, *_) in sorted(reading.followers.items(), key=lambda pair: -abs(pair[1][0].second))
    ]
    return Figure(
        name=f"{reading.name}: cells",
        drawing=html_table((*HEADER, "follows it"), rows, label="Cells that follow the text", look=RULED),
        caption=(
            f"{name}: of each property of the text the cell that follows it best on the first half, and Pearson's "
            "correlation r there and on the second half, which had no part in the choice. Chance: how many shifts "
            f"of the text against the cell give as much. A cell counts where |r| is at least {cells.LEAST} on the "
            f"second half and chance at most {100 * cells.MOST_CHANCE:.0f} %. {NUMBERED}"
        ),
        is_wide=True,
    )


def _tracked_figure(reading: Reading, asked: str, each: Property, several: Sequence[Follower]) -> Figure:
    best = _text_figure(reading, asked, each, several[0])
    rows = [(each.label, *_cells_of(follower)) for follower in several]
    table = html_table(HEADER, rows, label=f"Cells that follow {each.label}", look=RULED)
    return Figure(
        name=f"{reading.name}: track {asked}",
        drawing=f"<div>{best.drawing}{table}</div>",
        caption=f"{best.caption} Below the {len(several)} best cells, by the first half. {NUMBERED}",
        is_wide=True,
    )


def _cells_of(follower: Follower) -> tuple[str, ...]:
    numbers = (cells.signed(follower.first), cells.signed(follower.second), f"{100 * follower.chance:.2g} %")
    return str(follower.layer), str(follower.cell), *numbers


def _text_figure(reading: Reading, asked: str, each: Property, best: Follower) -> Figure:
    values = reading.layers[best.layer - 1].shown[:, best.cell - 1]
    part = excerpt(reading.values[asked], reading.text)
    label = isolated(each.label)
    claim = f"It follows {label}" if best.is_found else f"No cell follows {label}; this one came closest to it"
    return Figure(
        name=f"{reading.name}: {asked}",
        drawing=cells_plot.coloured(reading.shown[part], values[part]),
        caption=(
            f"{isolated(reading.name)}: text coloured by what cell {best.cell} of layer {best.layer} holds "
            f"after each token, orange above its mean here, blue below. {claim}: r = "
            f"{cells.signed(best.second)} on the second half, which this piece is from."
        ),
        is_wide=True,
    )


def excerpt(values: Floats, text: RunningText) -> slice:
    """Some `EXCERPT` characters of the second half where a property, (N,), varies most."""
    N = len(values)
    size = min(N - N // 2, max(1, int(EXCERPT * N / max(1, len(text.text)))))
    starts = np.linspace(N // 2, N - size, STARTS).astype(int).tolist()
    first = max(starts, key=lambda start: float(values[start : start + size].std()))
    return slice(first, first + size)


def _panels(layer: LayerStates, openings: Mapping[str, Opening]) -> list[Panel]:
    """A histogram a gate; of a layer without gates one of its states."""
    if openings:
        return [
            Panel(
                f"{GATES[gate]} {gate}",
                each.histogram,
                0.0,
                1.0,
                f"shut {100 * each.left.mean():.0f} %, open {100 * each.right.mean():.0f} %",
            )
            for gate, each in openings.items()
        ]
    bounds = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0)}
    low, high = bounds.get(layer.nonlinearity, (float(layer.h.min()), float(layer.h.max())))
    counts, _ = np.histogram(layer.h, bins=cells.BINS, range=(low, high if high > low else low + 1.0))
    word = "zero" if layer.nonlinearity == "relu" else "saturated"
    note = f"{100 * cells.saturation(layer):.0f} % {word}" if layer.nonlinearity != "leaky" else "never saturated"
    return [Panel("states h", counts / layer.h.size, low, max(high, low + 1e-6), note)]
