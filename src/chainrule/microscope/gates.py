"""Gates and states: how far gates open, how long cells keep, and which cells follow something in the text.

Lives here: the section of an inspection, its words and its JSON. Not here: its numbers (cell_reading.py), its
figures (gates_figures.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection import cells
from chainrule.inspection.cells import Follower, Opening
from chainrule.inspection.matrix import GATES
from chainrule.inspection.running_text import PROPERTIES, Property, property_of
from chainrule.inspection.section import Section, finite
from chainrule.lm import Floats
from chainrule.microscope.cell_reading import Reading, read
from chainrule.microscope.gates_figures import figures
from chainrule.microscope.matrix import RECURRENT
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress, as_progress, silent

MOST_FOLLOWERS: Final = 3  # cells that are told of
LEAST_SATURATED: Final = 0.01  # of the states; less is none to speak of


def section(
    samples: Sequence[Sample], *, track: Sequence[str] = (), progress: Progress | bool = silent
) -> Section | None:
    """Gates, memories and cells of every recurrent model; None where there is none.

    `track` searches all cells for properties: names of `running_text.PROPERTIES` or `/regex/`. The arrays of all
    models, which the section keeps, have at most `neural.states.MOST_BYTES` together.
    """
    progress = as_progress(progress)
    wanted = {name: property_of(name) for name in track}
    recurrent = [sample for sample in samples if sample.model.family in RECURRENT]
    if not recurrent:
        return None
    readings = [read(sample, wanted, progress, models=len(recurrent)) for sample in recurrent]
    return Section(
        name="gates",
        title="Gates and states",
        findings=tuple(f"{each.name}: {finding}." for each in readings for finding in _findings(each, wanted)),
        figures=tuple(figure for each in readings for figure in figures(each, wanted)),
        data={each.name: _data(each) for each in readings},
        arrays={name: values for each in readings for name, values in _arrays(each)},
    )


def _findings(reading: Reading, wanted: Mapping[str, Property]) -> Iterator[str]:
    """What is worth saying, without name and full stop: what was asked for, memories, cells, saturation."""
    for name, each in wanted.items():
        yield _tracked_finding(reading, name, each)
    yield from _memory_findings(reading)
    for name, best in reading.found()[:MOST_FOLLOWERS]:
        yield (f"cell {best.cell} of layer {best.layer} follows {PROPERTIES[name].label} ({best.judged})")
    for layer in reading.layers:
        share = cells.saturation(layer)
        if layer.gates or share < LEAST_SATURATED:
            continue
        if layer.nonlinearity == "relu":
            yield f"{100 * share:.0f} % of the states of layer {layer.layer} are zero and pass no gradient back"
        else:
            words = "are saturated and pass almost no gradient back"
            yield f"{100 * share:.0f} % of the states of layer {layer.layer} {words}"


def _memory_findings(reading: Reading) -> Iterator[str]:
    """The slowest layer first."""
    memories = reading.memories()
    layers = {layer.layer: layer for layer in reading.layers}
    for number in sorted(memories, key=lambda number: -float(np.median(memories[number]))):
        gate = layers[number].keeping or ""
        opening = reading.openings[number][gate]
        mean = float(opening.mean.mean())
        slowest = int(np.argmax(memories[number]))
        yield (
            f"the {GATES[gate]}s of layer {number} sit at {mean:.2f} on average, a memory of "
            f"{_tokens(float(cells.time_constants(np.array([mean]))[0]), reading.tokens)}; "
            f"{100 * opening.always_open:.0f} % of them are nearly always open, and the slowest cell, "
            f"{slowest + 1}, keeps {_tokens(float(memories[number][slowest]), reading.tokens)}"
        )


def _tokens(number: float, read: int) -> str:
    """A memory in words; beyond what was read nothing was seen of it."""
    if number > read:
        return f"more than the {read} token{'s' * (read > 1)} read"
    shown = f"{number:.1f}" if number < 10 else f"{number:.0f}"
    return f"{shown} tokens"


def _tracked_finding(reading: Reading, name: str, each: Property) -> str:
    if name not in reading.tracked:
        return f"{each.label} cannot be tracked: too rare or too common in the {reading.tokens:,} tokens read"
    best = reading.tracked[name][0]
    if not best.is_found:
        return f"no cell follows {each.label}; the best, cell {best.cell} of layer {best.layer}, has {best.judged}"
    return f"the cell that follows {each.label} best is cell {best.cell} of layer {best.layer} ({best.judged})"


def _data(reading: Reading) -> dict[str, Any]:
    memories = reading.memories()
    return {
        "tokens": reading.tokens,
        "layers": [
            {
                "layer": layer.layer,
                "width": layer.h.shape[1],
                "saturated_states": cells.saturation(layer),
                "gates": {gate: _gate_data(each) for gate, each in reading.openings[layer.layer].items()},
                "memory": _memory_data(memories[layer.layer]) if layer.layer in memories else None,
            }
            for layer in reading.layers
        ],
        "followers": {name: _follower_data(best) for name, (best, *_) in reading.followers.items()},
        "tracked": {name: [_follower_data(each) for each in several] for name, several in reading.tracked.items()},
    }


def _gate_data(opening: Opening) -> dict[str, Any]:
    return {
        "mean": float(opening.mean.mean()),
        "shut": float(opening.left.mean()),
        "open": float(opening.right.mean()),
        "always_open": opening.always_open,
        "histogram": opening.histogram.tolist(),
    }


def _memory_data(values: Floats) -> dict[str, Any]:
    quantiles = np.quantile(np.sort(values), [0.25, 0.5, 0.75, 1.0], method="lower").tolist()
    names = ("lower_quartile", "median", "upper_quartile", "largest")
    known = dict(zip(names, map(finite, quantiles), strict=True))
    return {"unit": "tokens", **known, "slowest_cell": int(np.argmax(values)) + 1}


def _follower_data(each: Follower) -> dict[str, Any]:
    return {
        "layer": each.layer,
        "cell": each.cell,
        "r_first_half": each.first,
        "r_second_half": each.second,
        "chance": each.chance,
        "is_found": each.is_found,
    }


def _arrays(reading: Reading) -> Iterator[tuple[str, Floats]]:
    for layer in reading.layers:
        states = {"h": layer.h} if layer.c is None else {"h": layer.h, "c": layer.c}
        for what, values in {**layer.gates, **states}.items():
            yield f"{reading.name}/layer {layer.layer}/{what}", values
