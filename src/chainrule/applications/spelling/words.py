"""Split a line into words for correction, and restore case, punctuation and white space of corrections."""

import re
import unicodedata
from collections.abc import Container
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

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
"""A capitalised word of up to four letters and a dot, such as `Dr.`: it does not end a sentence."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line: `text` = before + word + after, where the word is looked up as `core`."""

    text: str
    core: str
    start: int
    before: str = ""
    after: str = ""
    is_capitalized: bool = False  # corrections are capitalised
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

        Capitals inside a correction (`iPhone`, `McDonald`) are kept in a capitalised word.
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

    Words outside the vocabulary are looked up without surrounding punctuation and, if capitalised, in lower case.
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
    """Whether a word is short, capitalised and followed by a dot and a capitalised word, as in `Dr. Who`."""
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
