"""Text to a file of word numbers in one pass, so that the text is never in memory.

Each new word gets the next number. The file holds one 32-bit number a word, and BREAK after every sentence (line)
that has words. Words are cut at blanks and tabs, punctuation split from them where it is wanted, as in tokenizers/.
Which words are kept is decided in vocabulary.py. Compiled where the extension is present, to the same file byte for
byte.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule import native
from chainrule.errors import ChainruleError, InputError
from chainrule.progress import Progress, as_progress, silent
from chainrule.tokenizers.punctuation import split_without_joiners
from chainrule.tokenizers.tokenizer import split_words

BREAK: Final = -1
PIECE: Final = 1 << 20
"""Characters of text counted at a time."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A text as word numbers, in the order in which words first appear."""

    counts: NDArray[np.uint64]  # (types,)
    file: Path
    numbers: int  # in the file, breaks among them
    total: int  # words of the text
    words_of: Callable[[NDArray[np.int64]], list[str]]  # numbers -> words

    @property
    def types(self) -> int:
        """How many different words there are."""
        return len(self.counts)

    @property
    def words(self) -> tuple[str, ...]:
        """All words, made anew at each call."""
        return tuple(self.words_of(np.arange(self.types)))

    def without_words(self) -> "Counted":
        """The same, the memory of the words given back; they cannot be asked for any more."""
        return replace(self, words_of=_forgotten)


def _forgotten(numbers: NDArray[np.int64]) -> list[str]:
    raise AssertionError("the words are asked for before they are given back")


class Digest(Protocol):
    """What a hash offers."""

    def update(self, content: bytes, /) -> None:
        """Read on."""
        ...


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

    def words_of(self, numbers: NDArray[np.int64], /) -> list[str]:
        """The words that have these numbers."""
        ...


def count(
    corpus: Iterable[str], file: Path, lowercase: bool = False, progress: Progress | bool = silent
) -> Counted:
    """Write the numbers of a text's words to `file`.

    Args:
        corpus: Lines; each is a sentence.
        file: Where the numbers go; what is there is replaced.
        lowercase: Whether words are counted in lower case.
        progress: Told the bytes read.

    """
    progress = as_progress(progress)
    return count_blocks((f"{line}\n" for line in corpus), file, lowercase, progress)


def count_blocks(
    blocks: Iterable[str],
    file: Path,
    lowercase: bool = False,
    progress: Progress | bool = silent,
    digest: Digest | None = None,
    *,
    splits_punctuation: bool = False,
) -> Counted:
    """Write the numbers of a text's words to `file`; blocks of text are cut anywhere, and `digest` reads them.

    With `splits_punctuation` words are those of the word tokenizer, punctuation marks without joiners.
    """
    progress = as_progress(progress)
    core: Any = native.load()
    counter: Counter = core.WordCounter(str(file)) if core else CounterInPython(file)
    done = 0
    progress("counting words", 0, None)
    for piece in pieces(blocks, is_between_words=lowercase or splits_punctuation):
        try:
            text = piece.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"the text holds half a surrogate pair, which no UTF-8 has: {error}") from error
        if digest:
            digest.update(text)
        words = piece.lower() if lowercase else piece
        if splits_punctuation:
            counter.feed(split_without_joiners(words))
        else:
            counter.feed(words.encode("utf-8") if lowercase else text)
        done += len(text)
        progress(f"counting words, {counter.words:,}", done, None)
    counter.finish()
    progress(f"counting words, {counter.words:,}", done, done)
    return Counted(counter.counts(), file, counter.numbers, counter.words, counter.words_of)


def pieces(blocks: Iterable[str], is_between_words: bool, size: int = PIECE) -> Iterator[str]:
    """The same text in pieces of about `size` characters.

    Lower case and splitting need whole words: a Σ at the end of one has a lower case of its own.
    """
    held: list[str] = []
    length = 0
    for block in blocks:
        for part in [block] if len(block) <= size else (block[i : i + size] for i in range(0, len(block), size)):
            end = 0  # of what is handed over now
            if length + len(part) >= size:
                end = 1 + max(map(part.rfind, " \t\n")) if is_between_words else len(part)
            if end:
                yield "".join([*held, part[:end]])
                held, length = [], 0
            held.append(part[end:])
            length += len(part) - end
    if length:
        yield "".join(held)


class CounterInPython:
    """The twin of WordCounter in cpp/vectors/corpus.cpp; the text may be cut between any two bytes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.words = self.numbers = 0
        self._numbers: dict[str, int] = {}
        self._counts = array("Q")
        self._rest = b""  # of a word that the last piece cut
        self._is_within = False  # a sentence that has words has not ended
        self._write(array("i"), "wb")

    def feed(self, text: bytes) -> None:
        """Count all whole words; the rest of the last one waits."""
        end = 1 + max(map(text.rfind, (b" ", b"\t", b"\n")))
        if not end:
            self._rest += text
            return
        whole, self._rest = self._rest + text[:end], text[end:]
        *lines, last = whole.decode("utf-8").split("\n")
        made = array("i")
        for line in lines:
            self._count(line, made)
            self._end_sentence(made)
        self._count(last, made)
        self._write(made)

    def finish(self) -> None:
        """Count what is left."""
        made = array("i")
        self._count(self._rest.decode("utf-8"), made)
        self._end_sentence(made)
        self._rest = b""
        self._write(made)

    def counts(self) -> NDArray[np.uint64]:
        """How often each word came."""
        return np.array(self._counts, np.uint64)

    def words_of(self, numbers: NDArray[np.int64], /) -> list[str]:
        """The words that have these numbers."""
        words = list(self._numbers)
        return [words[number] for number in numbers.tolist()]

    def _count(self, line: str, made: "array[int]") -> None:
        words = split_words(line)
        for word in words:
            number = self._numbers.setdefault(word, len(self._numbers))
            if number == len(self._counts):
                self._counts.append(0)
            self._counts[number] += 1
            made.append(number)
        self._is_within = self._is_within or bool(words)
        self.words += len(words)

    def _end_sentence(self, made: "array[int]") -> None:
        if self._is_within:
            made.append(BREAK)
        self._is_within = False

    def _write(self, made: "array[int]", mode: str = "ab") -> None:
        self.numbers += len(made)
        try:
            with self.file.open(mode) as out:
                out.write(made.tobytes())
        except OSError as error:
            raise ChainruleError(f"{self.file} cannot be written: {error.strerror}") from error
