"""The gates section: gate openness, time constants, and cells that correlate with text properties."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection import cells
from chainrule.inspection.cells import CorrelatedCell, GateStatistics
from chainrule.inspection.matrix import GATE_NAMES
from chainrule.inspection.running_text import PROPERTIES, Property, parse_property
from chainrule.inspection.section import Section, finite_or_none
from chainrule.lm import Floats
from chainrule.microscope.cell_reading import CellActivity, read_cells
from chainrule.microscope.gates_figures import make_figures
from chainrule.microscope.matrix import RECURRENT
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress, as_progress, silent

MAX_CELLS: Final = 3  # correlated cells that are reported
LEAST_SATURATED: Final = 0.01  # smallest share of saturated states that is reported


def section(
    samples: Sequence[Sample], *, track: Sequence[str] = (), progress: Progress | bool = silent
) -> Section | None:
    """Return gates, time constants and correlated cells of every recurrent model; None if there is none.

    `track` selects text properties: names of `running_text.PROPERTIES` or `/regex/`. The arrays of all models take
    at most `neural.states.MOST_BYTES` together.
    """
    progress = as_progress(progress)
    tracked = {name: parse_property(name) for name in track}
    recurrent = [sample for sample in samples if sample.model.family in RECURRENT]
    if not recurrent:
        return None
    activities = [read_cells(sample, tracked, progress, models=len(recurrent)) for sample in recurrent]
    return Section(
        name="gates",
        title="Gates and states",
        findings=tuple(
            f"{activity.name}: {finding}." for activity in activities for finding in _findings(activity, tracked)
        ),
        figures=tuple(figure for activity in activities for figure in make_figures(activity, tracked)),
        data={activity.name: _data(activity) for activity in activities},
        arrays={name: values for activity in activities for name, values in _arrays(activity)},
    )


def _findings(activity: CellActivity, tracked: Mapping[str, Property]) -> Iterator[str]:
    """Yield findings without model name and full stop: tracked properties, memory, cells, saturation."""
    for name, text_property in tracked.items():
        yield _tracked_finding(activity, name, text_property)
    yield from _memory_findings(activity)
    for name, best in activity.significant_cells()[:MAX_CELLS]:
        yield (f"cell {best.cell} of layer {best.layer} follows {PROPERTIES[name].label} ({best.description})")
    for layer in activity.layers:
        share = cells.saturation(layer)
        if layer.gates or share < LEAST_SATURATED:
            continue
        if layer.nonlinearity == "relu":
            yield f"{100 * share:.0f} % of the states of layer {layer.layer} are zero and pass no gradient back"
        else:
            clause = "are saturated and pass almost no gradient back"
            yield f"{100 * share:.0f} % of the states of layer {layer.layer} {clause}"


def _memory_findings(activity: CellActivity) -> Iterator[str]:
    """Describe the memory gates, the layer of longest memory first."""
    constants = activity.time_constants()
    layers = {layer.layer: layer for layer in activity.layers}
    for number in sorted(constants, key=lambda number: -float(np.median(constants[number]))):
        gate = layers[number].memory_gate or ""
        gate_statistics = activity.gate_statistics[number][gate]
        mean = float(gate_statistics.mean.mean())
        slowest = int(np.argmax(constants[number]))
        yield (
            f"the {GATE_NAMES[gate]}s of layer {number} average {mean:.2f}, a time constant of "
            f"{_tokens(float(cells.time_constants(np.array([mean]))[0]), activity.tokens)}; "
            f"{100 * gate_statistics.always_open:.0f} % of them are nearly always open, and the cell of longest "
            f"memory, {slowest + 1}, has {_tokens(float(constants[number][slowest]), activity.tokens)}"
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


def _data(activity: CellActivity) -> dict[str, Any]:
    constants = activity.time_constants()
    return {
        "tokens": activity.tokens,
        "layers": [
            {
                "layer": layer.layer,
                "width": layer.h.shape[1],
                "saturated_states": cells.saturation(layer),
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
    values = dict(zip(names, map(finite_or_none, quantiles), strict=True))
    return {"unit": "tokens", **values, "slowest_cell": int(np.argmax(values)) + 1}


def _cell_data(cell: CorrelatedCell) -> dict[str, Any]:
    return {
        "layer": cell.layer,
        "cell": cell.cell,
        "r_first_half": cell.r_first,
        "r_second_half": cell.r_second,
        "chance": cell.p_value,
        "is_found": cell.is_significant,
    }


def _arrays(activity: CellActivity) -> Iterator[tuple[str, Floats]]:
    for layer in activity.layers:
        states = {"h": layer.h} if layer.c is None else {"h": layer.h, "c": layer.c}
        for what, values in {**layer.gates, **states}.items():
            yield f"{activity.name}/layer {layer.layer}/{what}", values
