"""Words of a line, and correction candidates for each with log p(written | meant).

Candidates are the word itself, vocabulary words within two edits, two vocabulary words that were run together, one
vocabulary word that was split in two, and words reached by undoing learned error patterns.
"""

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.spelling.noisy_channel import BEGIN, END, Channel, ChannelTables
from chainrule.applications.spelling.symspell import MAX_DISTANCE, SymSpellIndex, edit_distances, to_code_points
from chainrule.errors import ConfigError, UsageError
from chainrule.lm import Floats, Ids
from chainrule.model import Model
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.tokenizer import Tokenizer

WORD: Final = re.compile(r"[^ \t]+")
CORE: Final = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)
LONGEST_ACRONYM: Final = 5
"""Unknown upper-case words up to this length are treated as acronyms and never changed."""
FIRST_LETTER: Final = re.compile(r"[^\W\d_]")
SENTENCE_END: Final = re.compile(r"""[.!?:]["'”’»)\]]*$""")
"""End of the last word of a sentence."""
LONGEST_SENTENCE_END: Final = 16
ABBREVIATION_BEFORE: Final = re.compile(r"(?<!\w)[^\W\d_a-z][^\W\d_]{0,3}\.$")
"""A capitalized word of up to four letters and a dot, such as `Dr.`: it does not end a sentence."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line: `text` = before + word + after, where the word is looked up as `core`."""

    text: str
    core: str
    start: int
    before: str = ""
    after: str = ""
    is_capitalized: bool = False  # corrections are capitalized
    is_upper: bool = False  # corrections are upper-cased
    is_name: bool = False  # not in the vocabulary, with capitals that the start of a sentence does not explain
    is_fixed: bool = False  # never changed: a punctuation mark, an acronym, or a word in mixed case
    blanks: str = ""  # white space before the word

    @property
    def end(self) -> int:
        """End offset in the line."""
        return self.start + len(self.text)

    @property
    def lookup_key(self) -> tuple[str, bool, bool, bool, bool]:
        """Cache key of the candidates."""
        return self.core, self.is_capitalized, self.is_upper, self.is_name, self.is_fixed

    def put(self, correction: str) -> str:
        """Render a correction with the case and punctuation of the written word.

        Capitals inside a correction (`iPhone`, `McDonald`) are kept in a capitalized word.
        """
        if correction == self.core:
            return self.text
        if self.is_upper:
            correction = correction.upper()
        elif self.is_capitalized and correction.islower():
            correction = FIRST_LETTER.sub(lambda match: match[0].upper(), correction, count=1)
        return self.before + correction + self.after


def find_words(line: str, tokenizer: Tokenizer, known: Container[str]) -> list[Word]:
    """Split a line into words with the tokenizer's word boundaries.

    Words outside the vocabulary are looked up without surrounding punctuation and, if capitalized, in lower case.
    If the tokenizer splits punctuation, marks are words that never change.
    """
    if tokenizer.config.splits_punctuation:
        tokens = [
            _split_word(line[first:last], name, first, tokenizer, known)
            for name, first, last in tokenizer.spans(line)
        ]
    else:
        tokens = [_parse_word(match[0], match.start(), tokenizer, known) for match in WORD.finditer(line)]
    is_all_upper = len(tokens) > 1 and not any(map(str.islower, line))
    words: list[Word] = []
    end = 0
    for word in tokens:
        if word.core not in known and not word.is_fixed:
            begins_sentence = _begins_sentence(line, word.start) and not _is_abbreviation(line, word)
            is_name = _is_written_as_name(word, begins_sentence)
            word = replace(word, is_name=is_name, is_fixed=_is_fixed(word, is_all_upper))
        words.append(replace(word, blanks=line[end : word.start]))
        end = word.end
    return words


def _begins_sentence(line: str, start: int) -> bool:
    """Whether the word at `start` begins a sentence, possibly after quotes or brackets."""
    chunk = 1 + max(line.rfind(" ", 0, start), line.rfind("\t", 0, start))
    if any(map(str.isalnum, line[chunk:start])):
        return False
    previous = line[:chunk].rstrip(" \t")
    ending = previous[-LONGEST_SENTENCE_END:]
    return not previous or (SENTENCE_END.search(ending) is not None and ABBREVIATION_BEFORE.search(ending) is None)


def _is_abbreviation(line: str, word: Word) -> bool:
    """Whether a word is short, capitalized and followed by a dot and a capitalized word, as in `Dr. Who`."""
    end = word.start + len(word.before) + len(word.core)
    is_short = ABBREVIATION_BEFORE.search(line[: end + 1]) is not None and line[word.start : end].isalpha()
    following = line[end + 1 :].lstrip(" \t")
    return is_short and line[end + 1 : end + 2] in (" ", "\t") and following[:1].isupper()


def split_punctuation(text: str) -> tuple[str, str, str]:
    """Split into leading punctuation, word and trailing punctuation; combining marks belong to the word."""
    match = CORE.match(text)
    before, core, after = match.groups() if match else ("", text, "")
    marks = 0
    while core and marks < len(after) and is_combining_mark(after[marks]):
        marks += 1
    return before, core + after[:marks], after[marks:]


def is_combining_mark(character: str) -> bool:
    """Whether a character is a combining mark, such as an accent."""
    return not character.isascii() and unicodedata.category(character).startswith("M")


def _is_written_as_name(word: Word, begins_sentence: bool) -> bool:
    """Whether an unknown word has a capital that is not due to the start of a sentence."""
    letters = [character for character in word.text if character.isalpha()]
    return any(map(str.isupper, letters[1:] if begins_sentence else letters))


def _is_fixed(word: Word, is_all_upper: bool) -> bool:
    """Whether an unknown word is an acronym or in mixed case; undecidable in an upper-case line."""
    if not any(first.isalpha() and second.isupper() for first, second in pairwise(word.text)):
        return False
    return not word.is_upper or (len(word.core) <= LONGEST_ACRONYM and not is_all_upper)


def _parse_word(text: str, start: int, tokenizer: Tokenizer, known: Container[str]) -> Word:
    lowers = tokenizer.config.lowercase
    if not lowers and text in known:
        return _make_word(text, text, start, "", text, "")
    normalized = tokenizer.normalize(text)
    if normalized in known:
        return _make_word(text, normalized, start, "", text, "")
    if normalized == tokenizer.config.unk:
        return Word(text, normalized, start)
    before, middle, after = split_punctuation(text)
    if not middle:
        return Word(text, normalized, start)
    core = tokenizer.normalize(middle)
    if core not in known and (core.lower() in known or middle.istitle() or middle.isupper()):
        core = core.lower()
    return _make_word(text, core, start, before, middle, after)


def _split_word(text: str, name: str, start: int, tokenizer: Tokenizer, known: Container[str]) -> Word:
    """Create a word from a token of a punctuation-splitting tokenizer."""
    if punctuation.is_punctuation(name) or name == tokenizer.config.unk:
        return Word(text, name, start, is_fixed=True)
    core = name
    if core not in known and (core.lower() in known or text.istitle() or text.isupper()):
        core = core.lower()
    return _make_word(text, core, start, "", text, "")


def _make_word(text: str, core: str, start: int, before: str, middle: str, after: str) -> Word:
    letters = [character for character in middle if character.isalpha()]
    is_capitalized = bool(letters) and letters[0].isupper()
    is_upper = middle.isupper() and len(letters) > 1
    return Word(text, core, start, before, after, is_capitalized, is_upper)


MAX_PATTERNS: Final = 60  # number of most frequent substitutions to undo
NO_WORD: Final = -1  # id that marks the absence of a second word
ROUGH_EDIT_COST: Final = 4.0  # nats per edit in the preselection of neighbours
MAX_NEIGHBORS: Final = {True: 16, False: 48}
"""Neighbours of a word scored by the channel model, by whether the word is in the vocabulary."""
SYMBOLS: Final = frozenset("&@#/\\_+=<>|~^*$%§©®°")
"""Words that contain one of these (`A&M`, `and/or`, an address) or a digit are not corrected."""
INITIALS: Final = re.compile(r"(?:\w\.)+\w?")
"""Initials such as `U.S` and `e.g` are not corrected."""
LATIN: Final = frozenset(string.ascii_lowercase)
RARE_ACCENT: Final = 1e-4
"""Relative frequency below which an accented letter is excluded from the alphabet."""
INITIAL_RATIO: Final = 2.0
"""Ratio of line-initial to overall probability above which a capital is attributed to the position."""
PRIOR_CONTEXTS: Final = 64  # contexts over which the prior of a word is averaged
LOG_PRIOR_FLOOR: Final = -50.0
MAX_WORD_LENGTH: Final = 100
"""Maximum length of a word to correct; the number of possible splits grows with it."""
MAX_BEAM: Final = 10_000
"""Upper limit of `beam` and `choices`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the spelling corrector."""

    error_rate: float = 0.02  # ε: prior probability that a word is misspelt
    weight: float = 1.0  # λ: weight of the language model relative to the channel
    choices: int = 12  # candidates per word in the lattice
    beam: int = 8  # beam size of the lattice search
    distance: int = 2  # maximum edits for out-of-vocabulary words
    real_word_distance: int = 2  # maximum edits for vocabulary words; 0: never change them
    name_error_ratio: float = 1e-8  # error rate of capitalized out-of-vocabulary words relative to ε

    def __post_init__(self) -> None:
        if not 0 < self.error_rate < 1:
            raise ConfigError(f"error-rate is {self.error_rate}; choose a number between 0 and 1")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"weight is {self.weight}; choose a number above 0")
        if not 0 < self.name_error_ratio <= 1:
            raise ConfigError(f"name-error-ratio is {self.name_error_ratio}; choose a number above 0, at most 1")
        for name in ("choices", "beam"):
            if not 1 <= getattr(self, name) <= MAX_BEAM:
                raise ConfigError(f"{name} is {getattr(self, name)}; choose a whole number from 1 to {MAX_BEAM}")
        for name, least in (("distance", 1), ("real_word_distance", 0)):
            if not least <= getattr(self, name) <= MAX_DISTANCE:
                setting = f"{name.replace('_', '-')} is {getattr(self, name)}"
                raise ConfigError(f"{setting}; choose a whole number from {least} to {MAX_DISTANCE}")


@dataclass(frozen=True, slots=True)
class Arcs:
    """Candidates of one word; the first is always the written word."""

    texts: tuple[str, ...]
    ids: Ids  # (k, 2) token ids; NO_WORD for single words
    log_channel: Floats  # (k,) log p(written | meant); includes the spelling of an unknown word


class Candidates:
    """Candidate generator with a cache of looked-up words."""

    def __init__(self, model: Model, channel: Channel, settings: Settings) -> None:
        if not model.tokenizer.config.is_word_level:
            kind = model.tokenizer.config.kind
            raise UsageError(f"correcting needs a model of whole words; this one reads {kind} tokens")
        self._model = model
        self._settings = settings
        self._channel = ChannelTables.of(channel)
        self._error_patterns = ErrorPatterns.of(channel)
        unk = model.tokenizer.unk
        by_id = sorted(model.tokenizer.vocab.items(), key=lambda item: item[1])  # `vocab` is unordered
        self.known = {word: i for word, i in by_id if i != unk}
        self._words = list(self.known)
        self._alphabet = alphabet(self._words)
        self._characters = frozenset("".join(self._words))
        self._ids = np.array([self.known[word] for word in self._words], dtype=np.int64)
        self._neighbors = SymSpellIndex.of(self._words)
        self._punctuation: dict[tuple[str, str], int] = {}  # id of each combination of surrounding punctuation
        self._punctuation_ids = np.array([self._punctuation_id(word) for word in self._words], dtype=np.int64)
        self.log_prior = unigram_log_prior(model)
        first = np.full(1, model.lm.vocabulary.bos, dtype=np.int32)
        self._log_initial = model.lm.step(model.lm.start(1), first)[0][0]  # (V,) log p of the first word of a line
        self._cache: dict[str, Arcs] = {}
        self._case_cache: dict[tuple[str, bool, bool, bool, bool], Arcs] = {}

    def of(self, words: Iterable[str]) -> list[Arcs]:
        """Candidates of each word, in the case of the vocabulary."""
        queries = list(words)
        uncached = [word for word in dict.fromkeys(queries) if word not in self._cache]
        if uncached:
            self._generate(uncached)
        return [self._cache[word] for word in queries]

    def find_in_line(self, words: Sequence[Word]) -> list[Arcs]:
        """Candidates of words in a line, filtered by case; changing a name is penalized."""
        candidates = self.of(word.core for word in words)
        return [self._fit_case(word, arcs) for word, arcs in zip(words, candidates, strict=True)]

    def _fit_case(self, word: Word, arcs: Arcs) -> Arcs:
        """Drop candidates that only change case or change a fixed word; penalize changing a name."""
        if word.lookup_key not in self._case_cache:
            texts = [arcs.texts[0], *(self._lower_initial(word, text) for text in arcs.texts[1:])]
            rows = [0]
            if not word.is_fixed:
                rows += [i for i, text in enumerate(texts) if i and self._keeps_case(word, text)]
            log_channel = arcs.log_channel[rows]
            if word.is_name:
                log_channel[1:] += math.log(self._settings.name_error_ratio)
            self._case_cache[word.lookup_key] = Arcs(tuple(texts[i] for i in rows), arcs.ids[rows], log_channel)
        return self._case_cache[word.lookup_key]

    def _lower_initial(self, word: Word, text: str) -> str:
        """Lower-case a candidate whose capital comes from line-initial use if the written word is lower-case."""
        word_id = self.known.get(text)
        if word.is_capitalized or word_id is None or text.islower():
            return text
        is_initial = self._log_initial[word_id] - self.log_prior[word_id] > math.log(INITIAL_RATIO)
        return text.lower() if is_initial and text == text.capitalize() else text

    def _keeps_case(self, word: Word, text: str) -> bool:
        """Whether the candidate has the case of the written word, or no form in that case is in the vocabulary."""
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
        """Arcs for two written words whose concatenation is a vocabulary word."""
        meant = [first + second for first, second in pairs]
        log_p = self._channel.log_probs(meant, [f"{first} {second}" for first, second in pairs])
        log_p = log_p + math.log(self._settings.error_rate)
        return [
            Arcs((word,), np.array([[self.known[word], NO_WORD]]), np.array([p]))
            for word, p in zip(meant, log_p, strict=True)
        ]

    def _generate(self, words: list[str]) -> None:
        correctable = [word for word in words if self._is_correctable(word)]
        near = self._neighbor_words(correctable)
        far = {word: self._split_or_rewritten_words(word) for word in correctable if word not in self.known}
        texts = {word: list(dict.fromkeys([*near.get(word, ()), *far.get(word, ())])) for word in words}
        pairs = [(text, word) for word in words for text in texts[word]]
        log_p = self._channel.log_probs([text for text, _ in pairs], [word for _, word in pairs])
        log_p = log_p + math.log(self._settings.error_rate)
        spellings = self._log_spellings([word for word in words if word not in self.known])
        offset = 0
        for word in words:
            word_texts = texts[word]
            self._cache[word] = self._arcs(
                word, word_texts, log_p[offset : offset + len(word_texts)], spellings.get(word, 0.0)
            )
            offset += len(word_texts)

    def _is_correctable(self, word: str) -> bool:
        """Whether a word consists of letters of the alphabet and is not the unknown word."""
        if word == self._model.tokenizer.config.unk or not _is_spelling(word):
            return False
        return all(c in self._alphabet for c in word.lower() if c.isalpha() or is_combining_mark(c))

    def _arcs(self, word: str, texts: list[str], log_channel: Floats, log_spelling: float) -> Arcs:
        """The written word and its best candidates by context-free probability."""
        unk = self._model.tokenizer.unk
        assert unk is not None
        written_ids = (self.known.get(word, unk), NO_WORD)
        ids = np.array([written_ids, *map(self._word_ids, texts)], dtype=np.int64)
        channel = np.array([math.log1p(-self._settings.error_rate) + log_spelling, *log_channel])
        log_p = channel + self._settings.weight * self.log_prior[ids[:, 0]]
        log_p += np.where(ids[:, 1] >= 0, self._settings.weight * self.log_prior[ids[:, 1]], 0)
        rows = _best_rows(log_p, ids[:, 1] >= 0, self._settings.choices)
        return Arcs(tuple([word, *texts][i] for i in rows), ids[rows], channel[rows])

    def _word_ids(self, text: str) -> tuple[int, int]:
        first, _, second = text.partition(" ")
        return self.known[first], self.known[second] if second else NO_WORD

    def _neighbor_words(self, words: list[str]) -> dict[str, list[str]]:
        """Vocabulary words within the edit distance, preselected by prior and number of edits."""
        neighbors: dict[str, list[str]] = {}
        for is_known in (True, False):
            distance = self._settings.real_word_distance if is_known else self._settings.distance
            queries = [word for word in words if (word in self.known) == is_known]
            if not distance or not queries:
                continue
            rows, indices, edits = self._neighbors.find(queries, distance)
            punctuation = np.array([self._punctuation_id(word) for word in queries])
            is_meant = (edits > 0) & (self._punctuation_ids[indices] == punctuation[rows])
            rows, indices, edits = (values[is_meant] for values in (rows, indices, edits))
            rough = self._settings.weight * self.log_prior[self._ids[indices]] - ROUGH_EDIT_COST * edits
            order = np.lexsort((-rough, rows))
            rows, indices = rows[order], indices[order]
            is_kept = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left") < MAX_NEIGHBORS[is_known]
            for row, index in zip(rows[is_kept].tolist(), indices[is_kept].tolist(), strict=True):
                neighbors.setdefault(queries[row], []).append(self._words[index])
        return neighbors

    def _split_or_rewritten_words(self, word: str) -> list[str]:
        """Splits into two vocabulary words, and words reached by undoing learned error patterns."""
        cuts = ((word[:i], word[i:]) for i in range(1, len(word)))
        split = [f"{first} {second}" for first, second in cuts if first in self.known and second in self.known]
        undone = (text for text in self._error_patterns.undo(word) if text in self.known)
        return [
            *split,
            *sorted(text for text in undone if self._punctuation_id(text) == self._punctuation_id(word)),
        ]

    def _punctuation_id(self, word: str) -> int:
        """Id of the punctuation around a word; corrections never change it."""
        before, _, after = split_punctuation(word)
        return self._punctuation.setdefault((before, after), len(self._punctuation))

    def _log_spellings(self, words: list[str]) -> dict[str, float]:
        """log p(spelling) of out-of-vocabulary words; uniform over letters without a speller.

        The channel ignores case, so a word with a capital that no vocabulary word contains is scored in lower case:
        otherwise the capital would count against the written word but not against its corrections.
        """
        if self._model.speller is None or not words:
            return {word: -math.log(26) * (len(word) + 1) for word in words}
        spelt = [word if self._characters.issuperset(word) else word.lower() for word in words]
        return dict(zip(words, self._model.speller.log_probs(spelt).tolist(), strict=True))


@dataclass(frozen=True)
class ErrorPatterns:
    """Frequent substitutions α → β of two or more edits, by β."""

    meant: dict[str, tuple[str, ...]] = field(default_factory=dict)  # β to its possible α

    @classmethod
    def of(cls, channel: Channel) -> "ErrorPatterns":
        """Select the patterns of a channel."""
        meant: dict[str, tuple[str, ...]] = {}
        short = [key for key in channel.substitutions if all(key) and max(map(len, key)) <= 2]
        alphas, betas = (to_code_points([key[side] for key in short]) for side in (0, 1))
        edits = edit_distances(alphas, betas, most=1)
        several = [key for key, count in zip(short, edits.tolist(), strict=True) if count > 1]
        for alpha, beta in sorted(several, key=lambda key: (-channel.substitutions[key], key))[:MAX_PATTERNS]:
            meant[beta] = (*meant.get(beta, ()), alpha)
        return cls(meant)

    def undo(self, spelling: str) -> set[str]:
        """Spellings with one or two substitutions undone."""
        if not self.meant:
            return set()
        once = dict.fromkeys(self._undo_one(f"{BEGIN}{spelling}{END}"))
        twice = (again for text in once for again in self._undo_one(text))
        return {text[1:-1] for text in (*once, *twice) if text[:1] == BEGIN and text[-1:] == END} - {spelling}

    def _undo_one(self, text: str) -> Iterator[str]:
        for size in (1, 2):
            for i in range(len(text) - size + 1):
                for alpha in self.meant.get(text[i : i + size], ()):
                    yield text[:i] + alpha + text[i + size :]


def alphabet(words: Iterable[str]) -> frozenset[str]:
    """Lower-case letters and combining marks of words, without rare accented letters.

    English text has a few words such as `Zoë`, whose rare `ë` is not a plausible misspelling of `e`. If any of a-z
    occurs, all are included, since a small vocabulary may lack some.
    """
    counts = Counter(c for c in "".join(words).lower() if c.isalpha() or is_combining_mark(c))
    least = RARE_ACCENT * counts.total()

    def is_rare_accent(letter: str) -> bool:
        base = unicodedata.normalize("NFD", letter)[0]
        return base != letter and base in counts and counts[letter] < least

    letters = {letter for letter in counts if not is_rare_accent(letter)}
    return frozenset(letters.union(LATIN) if letters & LATIN else letters)


def unigram_log_prior(model: Model) -> Floats:
    """Return the (V,) context-free log p of each word, averaged over contexts sampled from the model."""
    lm, rng = model.lm, np.random.default_rng(0)
    rows = max(1, min(PRIOR_CONTEXTS // 4, (1 << 22) // lm.vocabulary.size))
    total = np.zeros(lm.vocabulary.size)
    state, ids = lm.start(rows), np.full(rows, lm.vocabulary.bos, dtype=np.int32)
    steps = -(-PRIOR_CONTEXTS // rows)
    for _ in range(steps):
        log_p, state = lm.step(state, ids)
        p = np.exp(log_p.astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        total += p.mean(axis=0) / steps
        cumulative = p.cumsum(axis=1)
        drawn = (cumulative < rng.random((rows, 1)) * cumulative[:, -1:]).sum(axis=1)
        ids = np.minimum(drawn, lm.vocabulary.size - 1).astype(np.int32)
    return np.log(np.maximum(total, np.exp(LOG_PRIOR_FLOOR)))


def _best_rows(log_p: Floats, is_split: NDArray[np.bool_], choices: int) -> Ids:
    """Row 0, then the most probable others; the best split replaces the last if none is included."""
    order = np.argsort(-log_p[1:], kind="stable") + 1
    best, rest = order[: choices - 1], order[choices - 1 :]
    splits = rest[is_split[rest]]
    if len(best) > 1 and len(splits) and not is_split[best].any():
        best = np.append(best[:-1], splits[0])
    return np.concatenate([[0], best])


def _is_spelling(word: str) -> bool:
    """Whether a word has letters, no digits, symbols or invisible characters, and is not initials or too long."""
    if len(word) > MAX_WORD_LENGTH or INITIALS.fullmatch(word) or not word.isprintable():
        return False
    return any(c.isalpha() for c in word) and not any(c.isdigit() or c in SYMBOLS for c in word)
