"""Noisy-channel spelling correction: argmax over intended texts of p(written | meant) p(meant).

corrector = Corrector(chainrule.load("runs/ngram3"), Channel.learn(read_misspellings(["pairs.tsv"])))
corrector.correct("i recieved teh letter").corrected
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from chainrule.applications.spelling.candidates import Candidates, Settings, Word, find_words
from chainrule.applications.spelling.lattice import (
    CandidateLattices,
    DecodedLine,
    merge_duplicates,
    refine_words,
    search,
)
from chainrule.applications.spelling.noisy_channel import Channel
from chainrule.errors import InputError
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.tokenizers.punctuation import is_punctuation

BATCH_LINES: Final = 512
MAX_CELLS: Final = (
    1 << 22
)  # maximum K · V of next-token distributions held at once (models without an n-gram engine)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate and its probability among the candidates."""

    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Change:
    """One word, or two joined words, with its correction and, if requested, its candidates."""

    start: int
    end: int
    written: str
    corrected: str
    candidates: tuple[Candidate, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether the correction differs from the written word."""
        return self.written != self.corrected


@dataclass(frozen=True, slots=True)
class Correction:
    """A line and its correction."""

    text: str
    corrected: str
    score: float  # log p(written | meant) + λ log p(meant), in nats
    words: tuple[Change, ...]  # all words, in order

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changed words."""
        return tuple(word for word in self.words if word.is_changed)


class Corrector:
    """Spelling corrector from a word-level language model and a channel model."""

    def __init__(self, model: Model, channel: Channel | None = None, settings: Settings | None = None) -> None:
        self.model = model
        self.channel = channel or Channel()
        self.settings = settings or Settings()
        self._candidates = Candidates(model, self.channel, self.settings)

    def correct(self, text: str, top: int = 0) -> Correction:
        """Correct one line; with `top`, include the best candidates of each word given the corrected rest."""
        return next(self.corrections([text], top))

    def corrections(self, lines: Iterable[str], top: int = 0) -> Iterator[Correction]:
        """Correct many independent lines in batches."""
        remaining = iter(lines)
        batch_size = BATCH_LINES
        if self.model.lm.engine is None:
            batch_size = max(1, MAX_CELLS // (self.settings.beam * self.model.lm.vocabulary.size))
        while batch := list(islice(remaining, batch_size)):
            yield from self._correct_batch(batch, top)

    def candidates(self, word: str, top: int = 10) -> list[Candidate]:
        """Candidates of a single word without context, most probable first."""
        return self.candidates_of([word], top)[0]

    def candidates_of(self, words: Sequence[str], top: int = 10) -> list[list[Candidate]]:
        """Candidates of each word without context."""
        parsed = [self._parse_word(word) for word in words]
        prior, weight = self._candidates.log_prior, self.settings.weight
        ranked = []
        for word, parsed_word, arcs in zip(words, parsed, self._candidates.find_in_line(parsed), strict=True):
            first, second = arcs.ids.T
            log_p = arcs.log_channel + weight * (prior[first] + np.where(second >= 0, prior[second], 0))
            before, after = word[: parsed_word.start], word[parsed_word.end :]
            ranked.append(_rank([before + parsed_word.put(text) + after for text in arcs.texts], log_p, top))
        return ranked

    def _parse_word(self, text: str) -> Word:
        """Parse a text that consists of one word and optional punctuation."""
        tokens = find_words(text, self.model.tokenizer, self._candidates.known)
        words = [word for word in tokens if not is_punctuation(word.core)] or tokens
        if len(words) != 1 or any(word.blanks for word in tokens[1:]):
            raise InputError(f"{text!r} is not a single word; use correct() for a whole line")
        return words[0]

    def _correct_batch(self, lines: Sequence[str], top: int) -> Iterator[Correction]:
        if not all(isinstance(line, str) and "\n" not in line for line in lines):
            raise InputError("a text to correct must be a single line; split it at line breaks")
        line_words = [find_words(line, self.model.tokenizer, self._candidates.known) for line in lines]
        grid = CandidateLattices(self._candidates, line_words)
        paths = search(self.model.lm, grid.lattices, self.settings.beam, self.settings.weight)
        decoded = [
            DecodedLine(words, grid.read(words, path), path.score, [])
            for words, path in zip(line_words, paths, strict=True)
        ]
        if top or self.model.lm.engine is not None:  # too slow for networks unless candidates are requested
            refine_words(self.model.lm, self.settings.weight, decoded)
        for text, line in zip(lines, decoded, strict=True):
            alternatives = _alternatives(line, top) if top else [()] * len(line.parts)
            yield _correction(text, line, alternatives)


def _alternatives(line: DecodedLine, top: int) -> list[tuple[Candidate, ...]]:
    """Rank the candidates of each word by the probability of the line with all other words corrected."""
    ranked = []
    for part, scores in zip(line.parts, line.scores, strict=True):
        texts = [part.put(line.words, text) for text in part.arcs.texts]
        ranked.append(tuple(_rank(texts, scores, top, texts[part.choice])))
    return ranked


def _correction(text: str, line: DecodedLine, alternatives: Sequence[tuple[Candidate, ...]]) -> Correction:
    """Assemble the corrected line, keeping its white space."""
    changes, pieces, position = [], [], 0
    for part, candidates in zip(line.parts, alternatives, strict=True):
        start, end = line.words[part.first].start, line.words[part.last - 1].end
        corrected = part.put(line.words, part.text)
        changes.append(Change(start, end, text[start:end], corrected, candidates))
        pieces += [text[position:start], corrected]
        position = end
    return Correction(text, "".join([*pieces, text[position:]]), line.score, tuple(changes))


def _rank(texts: Sequence[str], scores: Floats, top: int, chosen: str = "") -> list[Candidate]:
    """Distinct candidates with normalized probabilities, best first; ties go to the chosen text."""
    distinct, total = merge_duplicates(texts, scores)
    p = np.exp(total - total.max())
    p /= p.sum()
    order = np.lexsort(([text != chosen for text in distinct], -p))[:top]
    return [Candidate(distinct[i], float(p[i])) for i in order.tolist()]
