"""The words of a line as they stand there: blanks, punctuation and capitals kept, so that the rest stays as it was.

Lives here: what of a word is looked up, and how a correction is put in its place.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from chainrule.tokenizers.tokenizer import Tokenizer

WORD: Final = re.compile(r"[^ \t]+")
CORE: Final = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line: `text` = before + the part that is looked up as `core` + after."""

    text: str
    core: str
    start: int
    before: str = ""
    after: str = ""
    is_capitalized: bool = False  # the core stands in lower case, the text does not
    is_upper: bool = False

    @property
    def end(self) -> int:
        """Where it ends in the line."""
        return self.start + len(self.text)

    def put(self, correction: str) -> str:
        """A correction in its place."""
        if correction == self.core:
            return self.text
        if self.is_upper:
            correction = correction.upper()
        elif self.is_capitalized:
            correction = correction[:1].upper() + correction[1:]
        return self.before + correction + self.after


def cut(line: str, tokenizer: Tokenizer, known: Container[str]) -> list[Word]:
    """The words of a line, cut where the tokenizer cuts.

    A word that the vocabulary does not hold as it stands is looked up without the punctuation around it and, where
    it has capitals, in lower case.
    """
    return [_word(found[0], found.start(), tokenizer, known) for found in WORD.finditer(line)]


def _word(text: str, start: int, tokenizer: Tokenizer, known: Container[str]) -> Word:
    lowers = tokenizer.config.lowercase
    if not lowers and text in known:
        return Word(text, text, start)
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
    is_lowered = core != middle
    is_upper = is_lowered and middle.isupper() and len(middle) > 1
    return Word(text, core, start, before, after, is_lowered and middle[:1].isupper(), is_upper)
