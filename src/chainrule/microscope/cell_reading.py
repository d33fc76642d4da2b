"""A recurrent model on its text: what every cell did, and which cells follow what in the text.

Lives here: all numbers of one model, gathered. Not here: the section that tells of them (gates.py), its figures
(gates_figures.py). Letters: N tokens, D cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chainrule.inspection import cells
from chainrule.inspection.cells import Follower, LayerStates, Opening
from chainrule.inspection.running_text import PROPERTIES, Property, RunningText
from chainrule.lm import Floats
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.tokenizer import byte_alphabet

TOP: Final = 10  # cells of a property that was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that is known of one model on its text."""

    name: str
    layers: list[LayerStates]
    openings: dict[int, dict[str, Opening]]  # by layer and gate
    text: RunningText
    shown: list[str]  # (N,) the text, cut between tokens
    values: dict[str, Floats]  # (N,) of every property that varies
    followers: dict[str, list[Follower]]  # the best cell of each
    tracked: dict[str, list[Follower]]  # the best cells of each that was asked for
    is_cut: bool  # the text was longer than what was read

    @property
    def tokens(self) -> int:
        """N."""
        return len(self.shown)

    def found(self) -> list[tuple[str, Follower]]:
        """Properties with a cell that follows them beyond chance, the closest first; of like ones the first."""
        best = [(name, several[0]) for name, several in self.followers.items() if several[0].is_found]
        told: list[tuple[str, Follower]] = []
        for name, follower in sorted(best, key=lambda pair: -abs(pair[1].second)):
            if not any(cells.is_alike(self.values[name], self.values[other]) for other, _ in told):
                told.append((name, follower))
        return told

    def memories(self) -> dict[int, Floats]:
        """(D,) time constants of every layer that has a gate to keep with."""
        return {
            layer.layer: cells.time_constants(self.openings[layer.layer][layer.keeping].mean)
            for layer in self.layers
            if layer.keeping
        }


def read(sample: Sample, wanted: Mapping[str, Property], progress: Progress, *, models: int = 1) -> Reading:
    """Read the text once, and search all cells for every property that varies in it.

    So many models share the memory; with more of them less of a long text is read.
    """
    from chainrule.neural.states import read_states

    layers = read_states(sample.model.lm, sample.text, progress, models=models)  # type: ignore[arg-type]
    N = len(layers[0].h)
    text = running_text(sample, N)
    values = cells.varying({name: each.values(text) for name, each in PROPERTIES.items()})
    asked: dict[str, Floats] = {}
    for name, each in wanted.items():  # one by one: two may ask for the same
        asked |= cells.varying({name: each.values(text)})
    return Reading(
        name=sample.name,
        layers=layers,
        openings={layer.layer: {gate: cells.opening(x) for gate, x in layer.openings.items()} for layer in layers},
        text=text,
        shown=text.shown(),
        values=values | asked,
        followers=cells.followers(layers, values),
        tracked=cells.followers(layers, asked, TOP),
        is_cut=len(sample.ids) > N,
    )


def running_text(sample: Sample, tokens: int) -> RunningText:
    """The characters of the first tokens: `</s>` is a line break, words stand apart, other tokens do not.

    Unknown words are those of the text, not `<unk>`.
    """
    kind = sample.model.tokenizer.config.kind
    ids = sample.ids[:tokens].tolist()
    eos, unk = sample.model.tokenizer.eos, sample.model.tokenizer.unk
    pieces: list[bytes] = []
    is_apart: list[bool] = []
    joins_next = False
    for i, name in zip(ids, sample.written, strict=False):
        is_first = not pieces or pieces[-1] == b"\n"
        if i == eos:
            pieces.append(b"\n")
        elif kind == "word":
            text = punctuation.join(name)
            left, right = punctuation.joins(name)
            pieces.append(text.encode())
            is_first, joins_next = is_first or left or joins_next, right
        elif kind in ("whitespace", "char") or i == unk:
            pieces.append(name.encode())
        else:
            written = sample.model.tokenizer.backend.id_to_token(i) or ""
            pieces.append(_bytes(written.removeprefix("##") if kind == "wordpiece" else written))
            is_first = is_first or (kind == "wordpiece" and written.startswith("##"))
        is_apart.append(sample.model.tokenizer.config.collapses_blanks and i != eos and not is_first)
    return RunningText.of(pieces, is_apart, is_line=sample.model.lm.context == "line")


def _bytes(written: str) -> bytes:
    alphabet = byte_alphabet()
    return bytes(alphabet[character] for character in written)
