"""The gates section: gate openness, time constants, and cells that correlate with text properties."""

from collections.abc import Mapping, Sequence
from typing import Final

from chainrule.analysis import gates
from chainrule.analysis.gates import CellActivity
from chainrule.analysis.section import Finding, Section
from chainrule.analysis.text_properties import PROPERTIES, AlignedText, Property, parse_property
from chainrule.inspection.sample import Sample
from chainrule.lm import Floats
from chainrule.neural.cells import CELLS
from chainrule.progress import Progress, silent
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.tokenizer import byte_alphabet

TOP: Final = 10  # cells listed for a tracked property


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


def section(samples: Sequence[Sample], *, track: Sequence[str] = (), progress: Progress = silent) -> Section | None:
    """Return gates, time constants and correlated cells of every recurrent model; None if there is none.

    `track` selects text properties: names of `running_text.PROPERTIES` or `/regex/`. The arrays of all models take
    at most `neural.states.MOST_BYTES` together.
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
            for clause in gates.describe(activity, tracked)
        ),
        figures=tuple(figure for activity in activities for figure in gates.make_figures(activity, tracked)),
        data={activity.name: gates.to_json(activity) for activity in activities},
        arrays={name: values for activity in activities for name, values in gates.activation_arrays(activity)},
    )
