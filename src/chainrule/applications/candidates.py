"""Candidates for a written word, each with log p(written | meant).

A candidate is the word itself, an out-of-vocabulary word, a word of the vocabulary within two edits, two words that
were run together, or one word that was cut in two.
"""

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.channel import Channel
from chainrule.applications.edits import Edits
from chainrule.applications.neighbors import FURTHEST, Neighbors
from chainrule.applications.rewriting import Rewriting
from chainrule.applications.words import Word, is_mark, split_punctuation
from chainrule.errors import ConfigError, UsageError
from chainrule.lm import Floats, Ids
from chainrule.model import Model

NONE: Final = -1  # in place of a second word
CRUDE: Final = 4.0  # nats an edit costs at the first look
FIRST_LOOK: Final = {
    True: 16,
    False: 48,
}  # near words that are worth the channel's time, of a word that is known or not
SYMBOLS: Final = frozenset("&@#/\\_+=<>|~^*$%§©®°")
"""A word with one of these inside (`A&M`, `and/or`, an address) is left alone, as one with digits is."""
INITIALS: Final = re.compile(r"(?:\w\.)+\w?")
"""`U.S`, `e.g`: left alone, too."""
LATIN: Final = frozenset(string.ascii_lowercase)
RARE_ACCENT: Final = 1e-4
"""Share of the letters of the vocabulary below which an accented letter does not belong to the alphabet."""
INITIAL: Final = 2.0
"""A word so many times as probable at the beginning of a line as on average owes its capital to its place."""
CONTEXTS: Final = 64  # over which a word's probability by itself is averaged

LONGEST_CORRECTED: Final = 100
"""Characters of a word that is looked up; a longer one stays as it is, for the ways to cut it are as many."""
MOST_READINGS: Final = 10_000
"""Of a sentence, and choices for a word: the work grows with both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a text is corrected."""

    error_rate: float = 0.02  # ε: how many words are taken to be wrong
    weight: float = 1.0  # λ of the language model's log p beside the channel's
    choices: int = 12  # candidates of a word that are tried in its sentence
    beam: int = 8  # ways to read a sentence that are kept from word to word
    distance: int = 2  # edits of a word that is not in the vocabulary
    real_word_distance: int = 2  # edits of one that is; 0: words of the vocabulary are right
    name_error_ratio: float = 1e-8  # error rate of capitalised words outside the vocabulary, as a share of ε

    def __post_init__(self) -> None:
        if not 0 < self.error_rate < 1:
            raise ConfigError(f"error-rate is {self.error_rate}; choose a number between 0 and 1")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"weight is {self.weight}; choose a number above 0")
        if not 0 < self.name_error_ratio <= 1:
            raise ConfigError(f"name-error-ratio is {self.name_error_ratio}; choose a number above 0, at most 1")
        for name in ("choices", "beam"):
            if not 1 <= getattr(self, name) <= MOST_READINGS:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}; choose a whole number from 1 to {MOST_READINGS}"
                )
        for name, least in (("distance", 1), ("real_word_distance", 0)):
            if not least <= getattr(self, name) <= FURTHEST:
                given = f"{name.replace('_', '-')} is {getattr(self, name)}"
                raise ConfigError(f"{given}; choose a whole number from {least} to {FURTHEST}")


@dataclass(frozen=True, slots=True)
class Arcs:
    """Candidates side by side; the first is always what is written."""

    texts: tuple[str, ...]
    ids: Ids  # (k, 2) what the model reads for each; NONE where there is no second word
    log_channel: Floats  # (k,) log p(written | meant), for a new word with its spelling


class Candidates:
    """Candidates of words, each word looked up once."""

    def __init__(self, model: Model, channel: Channel, settings: Settings) -> None:
        if not model.tokenizer.config.is_words:
            kind = model.tokenizer.config.kind
            raise UsageError(f"correcting needs a model of whole words; this one reads {kind} tokens")
        self._model = model
        self._settings = settings
        self._edits = Edits.of(channel)
        self._rewriting = Rewriting.of(channel)
        unk = model.tokenizer.unk
        by_id = sorted(model.tokenizer.known.items(), key=lambda item: item[1])  # `known` has no fixed order
        self.known = {word: i for word, i in by_id if i != unk}
        self._words = list(self.known)
        self._alphabet = alphabet(self._words)
        self._characters = frozenset("".join(self._words))
        self._ids = np.array([self.known[word] for word in self._words], dtype=np.int64)
        self._neighbors = Neighbors.of(self._words)
        self._ends: dict[tuple[str, str], int] = {}  # a number for each punctuation around words
        self._ends_of = np.array([self._end(word) for word in self._words], dtype=np.int64)
        self.log_prior = prior(model)
        first = np.full(1, model.lm.vocabulary.bos, dtype=np.int32)
        self._log_initial = model.lm.step(model.lm.start(1), first)[0][0]  # (V,) log p of a line's first word
        self._found: dict[str, Arcs] = {}
        self._fitted: dict[tuple[str, bool, bool, bool, bool], Arcs] = {}

    def of(self, words: Iterable[str]) -> list[Arcs]:
        """The candidates of each word, in whatever case the vocabulary has them."""
        wanted = list(words)
        new = [word for word in dict.fromkeys(wanted) if word not in self._found]
        if new:
            self._look_up(new)
        return [self._found[word] for word in wanted]

    def of_words(self, words: Sequence[Word]) -> list[Arcs]:
        """The candidates of words as they stand in a line, in the case that is written there; names cost more."""
        every = self.of(word.core for word in words)
        return [self._fit(word, arcs) for word, arcs in zip(words, every, strict=True)]

    def _fit(self, word: Word, arcs: Arcs) -> Arcs:
        """Drop candidates that change the case alone, or a fixed word; make changing a name less probable."""
        if word.query not in self._fitted:
            texts = [arcs.texts[0], *(self._within_sentence(word, text) for text in arcs.texts[1:])]
            rows = [0]
            if not word.is_fixed:
                rows += [i for i, text in enumerate(texts) if i and self._keeps_case(word, text)]
            log_channel = arcs.log_channel[rows]
            if word.is_name:
                log_channel[1:] += math.log(self._settings.name_error_ratio)
            self._fitted[word.query] = Arcs(tuple(texts[i] for i in rows), arcs.ids[rows], log_channel)
        return self._fitted[word.query]

    def _within_sentence(self, word: Word, text: str) -> str:
        """The candidate in lower case if it owes its capital to its place and the written word has none."""
        place = self.known.get(text)
        if word.is_capitalized or place is None or text.islower():
            return text
        is_initial = self._log_initial[place] - self.log_prior[place] > math.log(INITIAL)
        return text.lower() if is_initial and text == text.capitalize() else text

    def _keeps_case(self, word: Word, text: str) -> bool:
        """Whether the candidate leaves the case of what is written, or no other form of it is in the vocabulary."""
        if word.is_upper or text.islower():
            return True
        if word.core in self.known and text.lower() == word.core.lower():
            return False
        allowed = (str.lower, str.capitalize) if word.is_capitalized else (str.lower,)
        return all(
            any(part == form(part) for form in allowed) or not any(form(part) in self.known for form in allowed)
            for part in text.split(" ")
        )

    def joined(self, pairs: Sequence[tuple[str, str]]) -> list[Arcs]:
        """Of two words written that together are one of the vocabulary, that word."""
        meant = [first + second for first, second in pairs]
        log_p = self._edits.log_probs(meant, [f"{first} {second}" for first, second in pairs])
        log_p = log_p + math.log(self._settings.error_rate)
        return [
            Arcs((word,), np.array([[self.known[word], NONE]]), np.array([p]))
            for word, p in zip(meant, log_p, strict=True)
        ]

    def _look_up(self, words: list[str]) -> None:
        open_ = [word for word in words if self._is_correctable(word)]
        near = self._near(open_)
        far = {word: self._far(word) for word in open_ if word not in self.known}
        texts = {word: list(dict.fromkeys([*near.get(word, ()), *far.get(word, ())])) for word in words}
        rows = [(text, word) for word in words for text in texts[word]]
        log_p = self._edits.log_probs([text for text, _ in rows], [word for _, word in rows])
        log_p = log_p + math.log(self._settings.error_rate)
        spellings = self._spellings([word for word in words if word not in self.known])
        at = 0
        for word in words:
            own = texts[word]
            self._found[word] = self._arcs(word, own, log_p[at : at + len(own)], spellings.get(word, 0.0))
            at += len(own)

    def _is_correctable(self, word: str) -> bool:
        """Whether a word could be misspelt: a spelling in the letters of the alphabet, not the unknown word."""
        if word == self._model.tokenizer.config.unk or not _is_spelling(word):
            return False
        return all(c in self._alphabet for c in word.lower() if c.isalpha() or is_mark(c))

    def _arcs(self, word: str, texts: list[str], log_channel: Floats, log_spelling: float) -> Arcs:
        """The best of them by their own probability, after the word itself."""
        unk = self._model.tokenizer.unk
        assert unk is not None
        own = (self.known.get(word, unk), NONE)
        ids = np.array([own, *map(self._read, texts)], dtype=np.int64)
        channel = np.array([math.log1p(-self._settings.error_rate) + log_spelling, *log_channel])
        log_p = channel + self._settings.weight * self.log_prior[ids[:, 0]]
        log_p += np.where(ids[:, 1] >= 0, self._settings.weight * self.log_prior[ids[:, 1]], 0)
        kept = _kept(log_p, ids[:, 1] >= 0, self._settings.choices)
        return Arcs(tuple([word, *texts][i] for i in kept), ids[kept], channel[kept])

    def _read(self, text: str) -> tuple[int, int]:
        first, _, second = text.partition(" ")
        return self.known[first], self.known[second] if second else NONE

    def _near(self, words: list[str]) -> dict[str, list[str]]:
        """The most promising words within the distance; a frequent word one edit away before a rare one."""
        found: dict[str, list[str]] = {}
        for is_known in (True, False):
            distance = self._settings.real_word_distance if is_known else self._settings.distance
            asked = [word for word in words if (word in self.known) == is_known]
            if not distance or not asked:
                continue
            rows, places, edits = self._neighbors.find(asked, distance)
            ends = np.array([self._end(word) for word in asked])
            is_meant = (edits > 0) & (self._ends_of[places] == ends[rows])
            rows, places, edits = (column[is_meant] for column in (rows, places, edits))
            rough = self._settings.weight * self.log_prior[self._ids[places]] - CRUDE * edits
            order = np.lexsort((-rough, rows))
            rows, places = rows[order], places[order]
            is_kept = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left") < FIRST_LOOK[is_known]
            for row, place in zip(rows[is_kept].tolist(), places[is_kept].tolist(), strict=True):
                found.setdefault(asked[row], []).append(self._words[place])
        return found

    def _far(self, word: str) -> list[str]:
        """Two words of the vocabulary run together, and those found by undoing what was learnt."""
        cuts = ((word[:i], word[i:]) for i in range(1, len(word)))
        split = [f"{first} {second}" for first, second in cuts if first in self.known and second in self.known]
        undone = (text for text in self._rewriting.undo(word) if text in self.known)
        return [*split, *sorted(text for text in undone if self._end(text) == self._end(word))]

    def _end(self, word: str) -> int:
        """The number of the punctuation around a word: it is no slip, and stays as it is written."""
        before, _, after = split_punctuation(word)
        return self._ends.setdefault((before, after), len(self._ends))

    def _spellings(self, words: list[str]) -> dict[str, float]:
        """log p(spelling) of new words; a model without a speller finds every letter as probable as another.

        The channel ignores case. A word with a capital that no word of the vocabulary has is therefore spelt in
        lower case: otherwise the capital would count against what is written, and not against its corrections.
        """
        if self._model.speller is None or not words:
            return {word: -math.log(26) * (len(word) + 1) for word in words}
        spelt = [word if self._characters.issuperset(word) else word.lower() for word in words]
        return dict(zip(words, self._model.speller.log_probs(spelt).tolist(), strict=True))


def alphabet(words: Iterable[str]) -> frozenset[str]:
    """The letters and combining marks of words, in lower case, without rare accented forms of other letters.

    English text has a few words such as `Zoë`: `ë` is rare there, and nobody writes it for `e` by mistake. All of
    a-z belong to an alphabet that has one of them, as a small vocabulary may lack some.
    """
    counts = Counter(c for c in "".join(words).lower() if c.isalpha() or is_mark(c))
    least = RARE_ACCENT * counts.total()

    def is_rare_accent(letter: str) -> bool:
        base = unicodedata.normalize("NFD", letter)[0]
        return base != letter and base in counts and counts[letter] < least

    letters = {letter for letter in counts if not is_rare_accent(letter)}
    return frozenset(letters.union(LATIN) if letters & LATIN else letters)


def prior(model: Model) -> Floats:
    """(V,) log p of each word when nothing is known: the mean over contexts that the model itself draws."""
    lm, rng = model.lm, np.random.default_rng(0)
    rows = max(1, min(CONTEXTS // 4, (1 << 22) // lm.vocabulary.size))
    total = np.zeros(lm.vocabulary.size)
    state, ids = lm.start(rows), np.full(rows, lm.vocabulary.bos, dtype=np.int32)
    steps = -(-CONTEXTS // rows)
    for _ in range(steps):
        log_p, state = lm.step(state, ids)
        p = np.exp(log_p.astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        total += p.mean(axis=0) / steps
        cumulative = p.cumsum(axis=1)
        drawn = (cumulative < rng.random((rows, 1)) * cumulative[:, -1:]).sum(axis=1)
        ids = np.minimum(drawn, lm.vocabulary.size - 1).astype(np.int32)
    floor = np.exp(-50.0)
    return np.log(np.maximum(total, floor))


def _kept(log_p: Floats, is_split: NDArray[np.bool_], choices: int) -> Ids:
    """What is written, then the most probable others; the last gives way to the best split if there is none yet."""
    order = np.argsort(-log_p[1:], kind="stable") + 1
    best, rest = order[: choices - 1], order[choices - 1 :]
    splits = rest[is_split[rest]]
    if len(best) > 1 and len(splits) and not is_split[best].any():
        best = np.append(best[:-1], splits[0])
    return np.concatenate([[0], best])


def _is_spelling(word: str) -> bool:
    """Whether a word is one of letters: no digits, symbols or hidden blanks, not initials, and not too long."""
    if len(word) > LONGEST_CORRECTED or INITIALS.fullmatch(word) or not word.isprintable():
        return False
    return any(c.isalpha() for c in word) and not any(c.isdigit() or c in SYMBOLS for c in word)
