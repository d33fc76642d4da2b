"""The gates section: gate openness, time constants, and cells that correlate with text properties."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.analysis import gates
from chainrule.analysis.gates import CorrelatedCell, GateStatistics, LayerStates, Panel
from chainrule.analysis.recurrent_matrix import GATE_NAMES
from chainrule.analysis.section import Figure, Finding, Section, finite_or_none
from chainrule.analysis.text_properties import PROPERTIES, AlignedText, Property, parse_property
from chainrule.inspection.sample import Sample
from chainrule.inspection.sections.recurrent_matrix import RECURRENT
from chainrule.lm import Floats
from chainrule.plots.html import RULED, escape, html_table
from chainrule.progress import Progress, silent
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.tokenizer import byte_alphabet

TOP: Final = 10  # cells listed for a tracked property


@dataclass(frozen=True, slots=True, kw_only=True)
class CellActivity:
    """Gate and cell activity of one model on its text."""

    name: str
    layers: list[LayerStates]
    gate_statistics: dict[int, dict[str, GateStatistics]]  # by layer and gate
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
        candidates = [
            (name, cells_of_property[0])
            for name, cells_of_property in self.best_cells.items()
            if cells_of_property[0].is_significant
        ]
        result: list[tuple[str, CorrelatedCell]] = []
        for name, cell in sorted(candidates, key=lambda pair: -abs(pair[1].r_second)):
            if not any(gates.are_redundant(self.values[name], self.values[other]) for other, _ in result):
                result.append((name, cell))
        return result

    def time_constants(self) -> dict[int, Floats]:
        """Return the time constants (D,) of every layer with a memory gate."""
        return {
            layer.layer: gates.time_constants(self.gate_statistics[layer.layer][layer.memory_gate].mean)
            for layer in self.layers
            if layer.memory_gate
        }


def read_cells(
    sample: Sample, tracked: Mapping[str, Property], progress: Progress, *, models: int = 1
) -> CellActivity:
    """Read the text once and search all cells for every property that varies in it.

    `models` share the memory budget; with more of them less of a long text is read.
    """
    from chainrule.neural.probes.activations import read_gate_activations

    layers = read_gate_activations(sample.model.lm, sample.text, progress, models=models)  # type: ignore[arg-type]
    N = len(layers[0].h)
    text = align_text(sample, N)
    values = gates.select_varying({name: text_property.values(text) for name, text_property in PROPERTIES.items()})
    tracked_values: dict[str, Floats] = {}
    for name, text_property in tracked.items():  # separately: select_varying drops duplicates
        tracked_values |= gates.select_varying({name: text_property.values(text)})
    return CellActivity(
        name=sample.name,
        layers=layers,
        gate_statistics={
            layer.layer: {gate: gates.gate_statistics(x) for gate, x in layer.sigmoid_gates.items()}
            for layer in layers
        },
        text=text,
        token_texts=text.token_texts(),
        values=values | tracked_values,
        best_cells=gates.find_correlated_cells(layers, values),
        tracked=gates.find_correlated_cells(layers, tracked_values, TOP),
        is_cut=len(sample.ids) > N,
    )


def align_text(sample: Sample, tokens: int) -> AlignedText:
    """Return the characters of the first tokens: `</s>` is a line break, words are separated by blanks.

    Unknown words are spelled as in the text, not as `<unk>`.
    """
    kind = sample.model.tokenizer.config.kind
    ids = sample.ids[:tokens].tolist()
    eos, unk = sample.model.tokenizer.eos, sample.model.tokenizer.unk
    pieces: list[bytes] = []
    is_apart: list[bool] = []
    joins_next = False
    for i, name in zip(ids, sample.source_tokens, strict=False):
        is_first = not pieces or pieces[-1] == b"\n"
        if i == eos:
            pieces.append(b"\n")
        elif kind == "word":
            text = punctuation.join(name)
            left, right = punctuation.joined_sides(name)
            pieces.append(text.encode())
            is_first, joins_next = is_first or left or joins_next, right
        elif kind in ("whitespace", "char") or i == unk:
            pieces.append(name.encode())
        else:
            written = sample.model.tokenizer.backend.id_to_token(i) or ""
            pieces.append(_bytes(written.removeprefix("##") if kind == "wordpiece" else written))
            is_first = is_first or (kind == "wordpiece" and written.startswith("##"))
        is_apart.append(sample.model.tokenizer.config.collapses_blanks and i != eos and not is_first)
    return AlignedText.from_bytes(pieces, is_apart, is_line=sample.model.lm.context == "line")


def _bytes(written: str) -> bytes:
    alphabet = byte_alphabet()
    return bytes(alphabet[character] for character in written)


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
        drawing=gates.plot_histograms(rows, title=f"Gate activations of {activity.name}"),
        caption=(
            f"{name}: distribution of gate values over all cells and {activity.tokens:,} tokens. Values below "
            f"{gates.SHUT} count as closed, above {gates.OPEN} as open.{cut}"
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
        drawing=gates.plot_saturation(statistics, title=f"Saturation of the gates of {activity.name}"),
        caption=(
            f"{name}: one dot per cell. x: share of tokens at which the gate is open (above {gates.OPEN}); y: "
            f"share at which it is closed (below {gates.SHUT}). On the diagonal a gate is always saturated, at "
            "the origin never. A forget or update gate far to the right retains the content of its cell."
        ),
        is_wide=True,
    )
    constants = {f"layer {number}": values for number, values in activity.time_constants().items()}
    gate = next(layer.memory_gate for layer in activity.layers) or ""
    yield Figure(
        name=f"{activity.name}: memory",
        drawing=gates.plot_time_constants(constants, title=f"Time constants of the cells of {activity.name}"),
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
            f"text with at least this |r|. A cell follows the property if |r| ≥ {gates.MIN_CORRELATION} on the "
            f"second half and p ≤ {100 * gates.MAX_P_VALUE:.0f} %. {NUMBERED}"
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
        gates.format_correlation(cell.r_first),
        gates.format_correlation(cell.r_second),
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
        drawing=gates.activation_html(activity.token_texts[excerpt], values[excerpt]),
        caption=(
            f"{escape(activity.name)}: text coloured by the activation of cell {best.cell} of layer {best.layer} "
            f"after each token: orange above the mean of this excerpt, blue below. {claim}: r = "
            f"{gates.format_correlation(best.r_second)} on the second half, from which the excerpt is taken."
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
    counts, _ = np.histogram(layer.h, bins=gates.BINS, range=(low, high if high > low else low + 1.0))
    word = "zero" if layer.nonlinearity == "relu" else "saturated"
    note = f"{100 * gates.saturation(layer):.0f} % {word}" if layer.nonlinearity != "leaky" else "never saturated"
    return [Panel("states h", counts / layer.h.size, low, max(high, low + 1e-6), note)]


MAX_CELLS: Final = 3  # correlated cells that are reported
LEAST_SATURATED: Final = 0.01  # smallest share of saturated states that is reported


def section(samples: Sequence[Sample], *, track: Sequence[str] = (), progress: Progress = silent) -> Section | None:
    """Return gates, time constants and correlated cells of every recurrent model; None if there is none.

    `track` selects text properties: names of `running_text.PROPERTIES` or `/regex/`. The arrays of all models take
    at most `neural.states.MOST_BYTES` together.
    """
    tracked = {name: parse_property(name) for name in track}
    recurrent = [sample for sample in samples if sample.model.family in RECURRENT]
    if not recurrent:
        return None
    activities = [read_cells(sample, tracked, progress, models=len(recurrent)) for sample in recurrent]
    return Section(
        name="gates",
        title="Gates and states",
        findings=tuple(
            Finding(activity.name, f"{clause}.")
            for activity in activities
            for clause in _findings(activity, tracked)
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
        share = gates.saturation(layer)
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
            f"{_tokens(float(gates.time_constants(np.array([mean]))[0]), activity.tokens)}; "
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
                "saturated_states": gates.saturation(layer),
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
    quartiles = dict(zip(names, map(finite_or_none, quantiles), strict=True))
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


def _arrays(activity: CellActivity) -> Iterator[tuple[str, Floats]]:
    for layer in activity.layers:
        states = {"h": layer.h} if layer.c is None else {"h": layer.h, "c": layer.c}
        for what, values in {**layer.gates, **states}.items():
            yield f"{activity.name}/layer {layer.layer}/{what}", values
