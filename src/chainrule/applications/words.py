"""The words of a line as they stand there: blanks, punctuation and capitals kept, so that the rest stays as it was.

Lives here: what of a word is looked up, and how a correction is put in its place.
"""

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

from chainrule.tokenizers.tokenizer import Tokenizer

WORD: Final = re.compile(r"[^ \t]+")
CORE: Final = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)
LONGEST_ACRONYM: Final = 4
"""Letters of a word in capitals that is taken for an acronym; a longer one is taken for emphasis."""
FIRST_LETTER: Final = re.compile(r"[^\W\d_]")
SENTENCE_END: Final = re.compile(r"""[.!?:]["'”’»)\]]*$""")
"""What the word before the first word of a sentence ends with."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line: `text` = before + the part that is looked up as `core` + after."""

    text: str
    core: str
    start: int
    before: str = ""
    after: str = ""
    is_capitalized: bool = False  # a correction in lower case gets a capital
    is_upper: bool = False  # a correction is written in capitals
    is_name: bool = False  # not in the vocabulary and capitalised where sentences do not demand it

    @property
    def end(self) -> int:
        """Where it ends in the line."""
        return self.start + len(self.text)

    @property
    def query(self) -> tuple[str, bool, bool, bool]:
        """What its candidates depend on."""
        return self.core, self.is_capitalized, self.is_upper, self.is_name

    def put(self, correction: str) -> str:
        """A correction in its place, in the case of what is written there.

        A correction that has capitals of its own (`iPhone`, `McDonald`) keeps them in a capitalised word.
        """
        if correction == self.core:
            return self.text
        if self.is_upper:
            correction = correction.upper()
        elif self.is_capitalized and correction.islower():
            correction = FIRST_LETTER.sub(lambda match: match[0].upper(), correction, count=1)
        return self.before + correction + self.after


def cut(line: str, tokenizer: Tokenizer, known: Container[str]) -> list[Word]:
    """The words of a line, cut where the tokenizer cuts.

    A word that the vocabulary does not hold as it stands is looked up without the punctuation around it and, where
    it has capitals, in lower case.
    """
    words: list[Word] = []
    has_lower_case = any(map(str.islower, line))
    for match in WORD.finditer(line):
        word = _word(match[0], match.start(), tokenizer, known)
        begins_sentence = not words or SENTENCE_END.search(words[-1].text) is not None
        is_emphasized = word.is_upper and (not has_lower_case or len(word.core) > LONGEST_ACRONYM)
        has_capitals = any(map(str.isupper, word.text))
        if has_capitals and not (is_emphasized or begins_sentence or word.core in known):
            word = replace(word, is_name=True)
        words.append(word)
    return words


def _word(text: str, start: int, tokenizer: Tokenizer, known: Container[str]) -> Word:
    lowers = tokenizer.config.lowercase
    if not lowers and text in known:
        return _shaped(text, text, start, "", text, "")
    seen = tokenizer.normalize(text)
    if seen in known:
        return _shaped(text, seen, start, "", text, "")
    if seen == tokenizer.config.unk:
        return Word(text, seen, start)
    found = CORE.match(text)
    before, middle, after = found.groups() if found else ("", text, "")
    if not middle:
        return Word(text, seen, start)
    core = tokenizer.normalize(middle)
    if core not in known and (core.lower() in known or middle.istitle() or middle.isupper()):
        core = core.lower()
    return _shaped(text, core, start, before, middle, after)


def _shaped(text: str, core: str, start: int, before: str, middle: str, after: str) -> Word:
    letters = [character for character in middle if character.isalpha()]
    is_capitalized = bool(letters) and letters[0].isupper()
    is_upper = middle.isupper() and len(letters) > 1
    return Word(text, core, start, before, after, is_capitalized, is_upper)
