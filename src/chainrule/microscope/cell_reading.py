"""Read a text with a recurrent model and correlate its cells with text properties. N tokens, D cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chainrule.inspection import cells
from chainrule.inspection.cells import CorrelatedCell, GateStatistics, LayerStates
from chainrule.inspection.running_text import PROPERTIES, AlignedText, Property
from chainrule.lm import Floats
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress
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
            if not any(cells.are_redundant(self.values[name], self.values[other]) for other, _ in result):
                result.append((name, cell))
        return result

    def time_constants(self) -> dict[int, Floats]:
        """Return the time constants (D,) of every layer with a memory gate."""
        return {
            layer.layer: cells.time_constants(self.gate_statistics[layer.layer][layer.memory_gate].mean)
            for layer in self.layers
            if layer.memory_gate
        }


def read_cells(
    sample: Sample, tracked: Mapping[str, Property], progress: Progress, *, models: int = 1
) -> CellActivity:
    """Read the text once and search all cells for every property that varies in it.

    `models` share the memory budget; with more of them less of a long text is read.
    """
    from chainrule.neural.states import read_gate_activations

    layers = read_gate_activations(sample.model.lm, sample.text, progress, models=models)  # type: ignore[arg-type]
    N = len(layers[0].h)
    text = align_text(sample, N)
    values = cells.select_varying({name: text_property.values(text) for name, text_property in PROPERTIES.items()})
    tracked_values: dict[str, Floats] = {}
    for name, text_property in tracked.items():  # separately: select_varying drops duplicates
        tracked_values |= cells.select_varying({name: text_property.values(text)})
    return CellActivity(
        name=sample.name,
        layers=layers,
        gate_statistics={
            layer.layer: {gate: cells.gate_statistics(x) for gate, x in layer.sigmoid_gates.items()}
            for layer in layers
        },
        text=text,
        token_texts=text.token_texts(),
        values=values | tracked_values,
        best_cells=cells.find_correlated_cells(layers, values),
        tracked=cells.find_correlated_cells(layers, tracked_values, TOP),
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
