"""Text to a file of word numbers in one pass, so that the text is never in memory.

Each new word gets the next number. The file holds one 32-bit number a word, and BREAK after every sentence (line)
that has words. Words are cut at blanks and tabs, as tokenizers/tokenizer.py does. Not here: which words are kept
(vocabulary.py). Compiled where the extension is present, to the same file byte for byte.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule import native
from chainrule.errors import ChainruleError, InputError
from chainrule.progress import Progress, silent
from chainrule.tokenizers.tokenizer import split_words

BREAK: Final = -1
PIECE: Final = 1 << 20
"""Characters of text counted at a time."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A text as word numbers, in the order in which words first appear."""

    words: tuple[str, ...]
    counts: NDArray[np.uint64]  # (types,)
    file: Path
    numbers: int  # in the file, breaks among them
    total: int  # words of the text


class Counter(Protocol):
    """What counts, compiled or not."""

    @property
    def words(self) -> int:
        """Words so far."""
        ...

    @property
    def numbers(self) -> int:
        """Numbers in the file so far."""
        ...

    def feed(self, text: bytes) -> None:
        """The next piece of UTF-8 text."""
        ...

    def finish(self) -> None:
        """The text has ended."""
        ...

    def counts(self) -> NDArray[np.uint64]:
        """How often each word came."""
        ...

    def word_list(self) -> list[str]:
        """The words by number."""
        ...


def count(corpus: Iterable[str], file: Path, lowercase: bool = False, progress: Progress = silent) -> Counted:
    """Write the numbers of a text's words to `file`.

    Args:
        corpus: Lines; each is a sentence.
        file: Where the numbers go; what is there is replaced.
        lowercase: Whether words are counted in lower case.
        progress: Told the bytes read.

    """
    core: Any = native.load()
    counter: Counter = core.WordCounter(str(file)) if core else CounterInPython(file)
    done = 0
    progress("counting words", 0, None)
    for piece in pieces(corpus, lowercase):
        try:
            text = piece.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"the text holds half a surrogate pair, which no UTF-8 has: {error}") from error
        counter.feed(text)
        done += len(text)
        progress(f"counting words, {counter.words:,}", done, None)
    counter.finish()
    progress(f"counting words, {counter.words:,}", done, done)
    return Counted(tuple(counter.word_list()), counter.counts(), file, counter.numbers, counter.words)


def pieces(lines: Iterable[str], lowercase: bool, size: int = PIECE) -> Iterator[str]:
    """Lines joined to pieces of about `size` characters, each ending with a line break."""
    held: list[str] = []
    length = 0
    for line in lines:
        held.append(line)
        length += len(line) + 1
        if length >= size:
            yield _join(held, lowercase)
            held, length = [], 0
    if held:
        yield _join(held, lowercase)


def _join(lines: list[str], lowercase: bool) -> str:
    text = "\n".join([*lines, ""])
    return text.lower() if lowercase else text


class CounterInPython:
    """The twin of WordCounter in cpp/words.cpp; the text may be cut between any two bytes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.words = self.numbers = 0
        self._numbers: dict[str, int] = {}
        self._counts = array("Q")
        self._rest = b""  # of a line that the last piece cut
        self._write(array("i"), "wb")

    def feed(self, text: bytes) -> None:
        """Count all whole lines; the rest waits."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        made = array("i")
        for line in lines:
            self._count(line.decode("utf-8"), made)
        self._write(made)

    def finish(self) -> None:
        """Count what is left."""
        made = array("i")
        self._count(self._rest.decode("utf-8"), made)
        self._rest = b""
        self._write(made)

    def counts(self) -> NDArray[np.uint64]:
        """How often each word came."""
        return np.array(self._counts, np.uint64)

    def word_list(self) -> list[str]:
        """The words by number."""
        return list(self._numbers)

    def _count(self, line: str, made: "array[int]") -> None:
        words = split_words(line)
        for word in words:
            number = self._numbers.setdefault(word, len(self._numbers))
            if number == len(self._counts):
                self._counts.append(0)
            self._counts[number] += 1
            made.append(number)
        if words:
            made.append(BREAK)
        self.words += len(words)

    def _write(self, made: "array[int]", mode: str = "ab") -> None:
        self.numbers += len(made)
        try:
            with self.file.open(mode) as out:
                out.write(made.tobytes())
        except OSError as error:
            raise ChainruleError(f"{self.file} cannot be written: {error.strerror}") from error
