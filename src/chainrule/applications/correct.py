"""Correcting text by the noisy channel: argmax over what was meant of p(written | meant) p(meant).

Lives here: lines in, corrections out. Not here: the channel (channel.py), candidates (candidates.py), the search
over the sentence (lattice.py), the second look at it (rechoice.py).

    corrector = Corrector(chainrule.load("runs/ngram3"), Channel.learn(read_misspellings(["pairs.tsv"])))
    corrector.correct("i recieved teh letter").corrected
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from chainrule.applications.candidates import Candidates, Settings
from chainrule.applications.channel import Channel
from chainrule.applications.grid import Grid, Part
from chainrule.applications.lattice import search
from chainrule.applications.rechoice import Line, merge, rechoose
from chainrule.applications.words import Word, cut
from chainrule.errors import InputError
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.tokenizers.punctuation import is_mark

LINES_AT_ONCE: Final = 512
CELLS_AT_ONCE: Final = 1 << 22  # K · V of distributions that a model without an engine holds


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may have been meant, and how probable that is among the candidates."""

    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Change:
    """A word of the line, or two that were one, with what takes its place; candidates where they were asked for."""

    start: int
    end: int
    written: str
    corrected: str
    candidates: tuple[Candidate, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether something else was put there."""
        return self.written != self.corrected


@dataclass(frozen=True, slots=True)
class Correction:
    """A line as it was and as it is corrected."""

    text: str
    corrected: str
    score: float  # log p(written | meant) + λ log p(meant), in nats
    words: tuple[Change, ...]  # all of them, in the line's order

    @property
    def changes(self) -> tuple[Change, ...]:
        """The words that are not as they were."""
        return tuple(word for word in self.words if word.is_changed)


class Corrector:
    """A language model of words and a channel; made once, asked often."""

    def __init__(self, model: Model, channel: Channel | None = None, settings: Settings | None = None) -> None:
        self.model = model
        self.channel = channel or Channel()
        self.settings = settings or Settings()
        self._candidates = Candidates(model, self.channel, self.settings)

    def correct(self, text: str, top: int = 0) -> Correction:
        """One line; with `top` every word's best candidates, the rest of the line being as corrected."""
        return next(self.corrections([text], top))

    def corrections(self, lines: Iterable[str], top: int = 0) -> Iterator[Correction]:
        """The same of many lines, each for itself; hundreds are searched side by side."""
        rest = iter(lines)
        at_once = LINES_AT_ONCE
        if not hasattr(self.model.lm, "engine"):
            at_once = max(1, CELLS_AT_ONCE // (self.settings.beam * self.model.lm.vocabulary.size))
        while batch := list(islice(rest, at_once)):
            yield from self._batch(batch, top)

    def candidates(self, word: str, top: int = 10) -> list[Candidate]:
        """What may have been meant by a word that stands alone, the most probable first."""
        return self.candidates_of([word], top)[0]

    def candidates_of(self, words: Sequence[str], top: int = 10) -> list[list[Candidate]]:
        """The same of many words, each alone."""
        cuts = [self._single(word) for word in words]
        prior, weight = self._candidates.log_prior, self.settings.weight
        ranked = []
        for word, own, arcs in zip(words, cuts, self._candidates.of_words(cuts), strict=True):
            first, second = arcs.ids.T
            log_p = arcs.log_channel + weight * (prior[first] + np.where(second >= 0, prior[second], 0))
            before, after = word[: own.start], word[own.end :]
            ranked.append(_ranked([before + own.put(text) + after for text in arcs.texts], log_p, top))
        return ranked

    def _single(self, text: str) -> Word:
        """The word of a text that holds one, with or without punctuation marks around it."""
        found = cut(text, self.model.tokenizer, self._candidates.known)
        words = [word for word in found if not is_mark(word.core)] or found
        if len(words) != 1 or any(word.blanks for word in found[1:]):
            raise InputError(f"{text!r} is not one word; correct takes a line")
        return words[0]

    def _batch(self, lines: Sequence[str], top: int) -> Iterator[Correction]:
        if not all(isinstance(line, str) and "\n" not in line for line in lines):
            raise InputError("a text to be corrected is one line; cut it at its line breaks")
        cuts = [cut(line, self.model.tokenizer, self._candidates.known) for line in lines]
        grid = Grid(self._candidates, cuts)
        paths = search(self.model.lm, grid.lattices, self.settings.beam, self.settings.weight)
        found = [
            Line(words, grid.read(words, path), path.score, []) for words, path in zip(cuts, paths, strict=True)
        ]
        if top or hasattr(self.model.lm, "engine"):  # a network would take many times as long as for the search
            rechoose(self.model.lm, self.settings.weight, found)
        for text, line in zip(lines, found, strict=True):
            alternatives = _alternatives(line, top) if top else [()] * len(line.parts)
            yield _correction(text, line.words, line.parts, alternatives, line.score)


def _alternatives(line: Line, top: int) -> list[tuple[Candidate, ...]]:
    """Each word's candidates by the whole line's probability, the other words as corrected."""
    ranked = []
    for part, scores in zip(line.parts, line.scores, strict=True):
        texts = [part.put(line.words, text) for text in part.arcs.texts]
        ranked.append(tuple(_ranked(texts, scores, top, texts[part.choice])))
    return ranked


def _correction(
    line: str, words: list[Word], parts: list[Part], alternatives: Sequence[tuple[Candidate, ...]], score: float
) -> Correction:
    """The line with every part in its place, blanks as they were."""
    changes, pieces, at = [], [], 0
    for part, found in zip(parts, alternatives, strict=True):
        start, end = words[part.first].start, words[part.last - 1].end
        corrected = part.put(words, part.text)
        changes.append(Change(start, end, line[start:end], corrected, found))
        pieces += [line[at:start], corrected]
        at = end
    return Correction(line, "".join([*pieces, line[at:]]), score, tuple(changes))


def _ranked(texts: Sequence[str], scores: Floats, top: int, chosen: str = "") -> list[Candidate]:
    """The candidates, each text once, with their shares, the most probable first; of equals the chosen one."""
    distinct, total = merge(texts, scores)
    p = np.exp(total - total.max())
    p /= p.sum()
    order = np.lexsort(([text != chosen for text in distinct], -p))[:top]
    return [Candidate(distinct[i], float(p[i])) for i in order.tolist()]
