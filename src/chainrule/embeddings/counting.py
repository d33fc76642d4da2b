"""Count the words of a text and write its word numbers to a file in one pass, in constant memory.

Words are numbered in order of first appearance. The file holds one int32 per word, and SENTENCE_BREAK after every
non-empty line. Words are separated by blanks and tabs; punctuation is optionally split from them.
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

SENTENCE_BREAK: Final = -1
CHUNK_CHARACTERS: Final = 1 << 20
"""Approximate number of characters counted at a time."""


@dataclass(frozen=True, slots=True)
class CountedCorpus:
    """Text as word numbers, with the count of each distinct word."""

    counts: NDArray[np.uint64]  # (types,)  indexed by word number
    file: Path  # int32 word numbers
    numbers: int  # entries of the file, including sentence breaks
    total: int  # words of the text
    words_of: Callable[[NDArray[np.int64]], list[str]]  # word numbers -> words

    @property
    def types(self) -> int:
        """Number of distinct words."""
        return len(self.counts)

    @property
    def words(self) -> tuple[str, ...]:
        """All distinct words, rebuilt at each access."""
        return tuple(self.words_of(np.arange(self.types)))

    def without_words(self) -> "CountedCorpus":
        """Return a copy that does not keep the words in memory; `words` and `words_of` raise."""
        return replace(self, words_of=_words_released)


def _words_released(numbers: NDArray[np.int64]) -> list[str]:
    raise AssertionError("the words of this corpus have been released")


class Digest(Protocol):
    """Hash object, as in hashlib."""

    def update(self, content: bytes, /) -> None:
        """Hash more content."""
        ...


class WordCounter(Protocol):
    """Incremental word counter."""

    @property
    def words(self) -> int:
        """Words read so far."""
        ...

    @property
    def numbers(self) -> int:
        """Entries written to the file so far."""
        ...

    def feed(self, text: bytes) -> None:
        """Count the next piece of UTF-8 text."""
        ...

    def finish(self) -> None:
        """Count the last word and close the file."""
        ...

    def counts(self) -> NDArray[np.uint64]:
        """Return the count of each word number."""
        ...

    def words_of(self, numbers: NDArray[np.int64], /) -> list[str]:
        """Return the words with these numbers."""
        ...


def count(
    corpus: Iterable[str], file: Path, lowercase: bool = False, progress: Progress | bool = silent
) -> CountedCorpus:
    """Count the words of an iterable of lines and write their numbers to `file`.

    Args:
        corpus: Lines; each is a sentence.
        file: Output file of word numbers; overwritten.
        lowercase: Whether to convert words to lower case.
        progress: Called with the bytes read.

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
) -> CountedCorpus:
    """Count the words of a text and write their numbers to `file`; blocks may be split at any character.

    `digest` is updated with the UTF-8 text. With `splits_punctuation`, words are those of the word tokenizer,
    without joiner marks.
    """
    progress = as_progress(progress)
    core: Any = native.load()
    counter: WordCounter = core.WordCounter(str(file)) if core else PythonWordCounter(file)
    done = 0
    progress("counting words", 0, None)
    for piece in split_chunks(blocks, is_between_words=lowercase or splits_punctuation):
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
    return CountedCorpus(counter.counts(), file, counter.numbers, counter.words, counter.words_of)


def split_chunks(blocks: Iterable[str], is_between_words: bool, size: int = CHUNK_CHARACTERS) -> Iterator[str]:
    """Yield the text in chunks of about `size` characters, split between words if `is_between_words`.

    Lower-casing and punctuation splitting need whole words; for example, a final Σ has a different lower case.
    """
    held: list[str] = []
    length = 0
    for block in blocks:
        for part in [block] if len(block) <= size else (block[i : i + size] for i in range(0, len(block), size)):
            end = 0  # characters of `part` that complete the current chunk
            if length + len(part) >= size:
                end = 1 + max(map(part.rfind, " \t\n")) if is_between_words else len(part)
            if end:
                yield "".join([*held, part[:end]])
                held, length = [], 0
            held.append(part[end:])
            length += len(part) - end
    if length:
        yield "".join(held)


class PythonWordCounter:
    """Python version of WordCounter in cpp/vectors/corpus.cpp; text may be split between any two bytes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.words = self.numbers = 0
        self._numbers: dict[str, int] = {}
        self._counts = array("Q")
        self._rest = b""  # incomplete word at the end of the last piece
        self._is_within = False  # inside a sentence that has words
        self._write(array("i"), "wb")

    def feed(self, text: bytes) -> None:
        """Count all complete words of the next piece of text."""
        end = 1 + max(map(text.rfind, (b" ", b"\t", b"\n")))
        if not end:
            self._rest += text
            return
        whole, self._rest = self._rest + text[:end], text[end:]
        *lines, last = whole.decode("utf-8").split("\n")
        numbers = array("i")
        for line in lines:
            self._count(line, numbers)
            self._end_sentence(numbers)
        self._count(last, numbers)
        self._write(numbers)

    def finish(self) -> None:
        """Count the last word."""
        numbers = array("i")
        self._count(self._rest.decode("utf-8"), numbers)
        self._end_sentence(numbers)
        self._rest = b""
        self._write(numbers)

    def counts(self) -> NDArray[np.uint64]:
        """Return the count of each word number."""
        return np.array(self._counts, np.uint64)

    def words_of(self, numbers: NDArray[np.int64], /) -> list[str]:
        """Return the words with these numbers."""
        words = list(self._numbers)
        return [words[number] for number in numbers.tolist()]

    def _count(self, line: str, numbers: "array[int]") -> None:
        words = split_words(line)
        for word in words:
            number = self._numbers.setdefault(word, len(self._numbers))
            if number == len(self._counts):
                self._counts.append(0)
            self._counts[number] += 1
            numbers.append(number)
        self._is_within = self._is_within or bool(words)
        self.words += len(words)

    def _end_sentence(self, numbers: "array[int]") -> None:
        if self._is_within:
            numbers.append(SENTENCE_BREAK)
        self._is_within = False

    def _write(self, numbers: "array[int]", mode: str = "ab") -> None:
        self.numbers += len(numbers)
        try:
            with self.file.open(mode) as out:
                out.write(numbers.tobytes())
        except OSError as error:
            raise ChainruleError(f"{self.file} cannot be written: {error.strerror}") from error
