"""Correcting text by the noisy channel: argmax over what was meant of p(written | meant) p(meant).

Lives here: lines in, corrections out. Not here: the channel (channel.py), candidates (candidates.py), the search
over the sentence (lattice.py).

    corrector = Corrector(chainrule.load("runs/ngram3"), Channel.learn(read_misspellings(["pairs.tsv"])))
    corrector.correct("i recieved teh letter").corrected
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import numpy as np

from chainrule.applications.candidates import Candidates, Settings
from chainrule.applications.channel import Channel
from chainrule.applications.grid import Grid, Part
from chainrule.applications.lattice import IMPOSSIBLE, search
from chainrule.applications.words import Word, cut
from chainrule.errors import InputError
from chainrule.lm import Batch, Floats
from chainrule.model import Model

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
        cuts = [cut(word, self.model.tokenizer, self._candidates.known) for word in words]
        for word, found in zip(words, cuts, strict=True):
            if len(found) != 1:
                raise InputError(f"{word!r} is not one word; correct takes a line")
        prior, weight = self._candidates.log_prior, self.settings.weight
        ranked = []
        for (own,), arcs in zip(cuts, self._candidates.of(own.core for (own,) in cuts), strict=True):
            first, second = arcs.ids.T
            log_p = arcs.log_channel + weight * (prior[first] + np.where(second >= 0, prior[second], 0))
            ranked.append(_ranked([own.put(text) for text in arcs.texts], log_p, top))
        return ranked

    def _batch(self, lines: Sequence[str], top: int) -> Iterator[Correction]:
        if not all(isinstance(line, str) and "\n" not in line for line in lines):
            raise InputError("a text to be corrected is one line; cut it at its line breaks")
        cuts = [cut(line, self.model.tokenizer, self._candidates.known) for line in lines]
        grid = Grid(self._candidates, cuts)
        paths = search(self.model.lm, grid.lattices, self.settings.beam, self.settings.weight)
        for line, words, path in zip(lines, cuts, paths, strict=True):
            parts = grid.read(words, path)
            alternatives = self._rank(grid, words, parts, top) if top else [()] * len(parts)
            yield _correction(line, words, parts, alternatives, path.score)

    def _rank(self, grid: Grid, words: list[Word], parts: list[Part], top: int) -> list[tuple[Candidate, ...]]:
        """Each word's candidates by the whole line's probability, the other words as corrected."""
        ids = [grid.ids_of(part.arc) for part in parts]
        rows = []
        for place, part in enumerate(parts):
            before, after = (list(chain.from_iterable(side)) for side in (ids[:place], ids[place + 1 :]))
            rows += [[*before, *(i for i in own if i >= 0), *after] for own in part.arcs.ids.tolist()]
        log_p = self._log_probs(rows)
        ranked, at = [], 0
        for part in parts:
            texts = part.arcs.texts
            scores = part.arcs.log_channel + self.settings.weight * log_p[at : at + len(texts)]
            ranked.append(tuple(_ranked([part.put(words, text) for text in texts], scores, top)))
            at += len(texts)
        return ranked

    def _log_probs(self, rows: list[list[int]]) -> Floats:
        """log p of each row of ids as a line."""
        lm = self.model.lm
        eos, bos = lm.vocabulary.eos, lm.vocabulary.bos
        found = []
        for first in range(0, len(rows), LINES_AT_ONCE):
            part = rows[first : first + LINES_AT_ONCE]
            T = max(len(row) for row in part) + 1
            inputs = np.array([[bos, *row, *[eos] * (T - 1 - len(row))] for row in part], dtype=np.int32)
            targets = np.array([[*row, *[eos] * (T - len(row))] for row in part], dtype=np.int32)
            mask = np.arange(T) <= np.array([len(row) for row in part])[:, None]
            log_p, _ = lm.score(Batch(inputs, targets, mask), lm.start(len(part)))
            found.append(np.where(mask, np.maximum(log_p, IMPOSSIBLE), 0).sum(axis=1))
        return np.concatenate([np.zeros(0), *found])


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


def _ranked(texts: Sequence[str], scores: Floats, top: int) -> list[Candidate]:
    """The candidates with their shares, the most probable first."""
    p = np.exp(scores - scores.max())
    p /= p.sum()
    order = np.argsort(-p, kind="stable")[:top]
    return [Candidate(texts[i], float(p[i])) for i in order.tolist()]
