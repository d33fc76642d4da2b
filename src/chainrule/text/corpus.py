"""A corpus: lines of text from files or memory that can be read repeatedly."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self, TypeVar, get_args

from chainrule.errors import InputError, UsageError
from chainrule.text.lines import FRAGMENT, Fragment, cut_lines, drop_blank_lines, end_lines, join_lines
from chainrule.text.readers import (
    CONVERT,
    OPTION,
    Decoder,
    Document,
    Errors,
    Sources,
    TextFile,
    check_column,
    find_files,
    read_documents,
    warn_about_replaced,
)

T = TypeVar("T")

CHARACTERS_AT_ONCE: Final = 1 << 21
"""Approximate characters per batch of `read_batches`."""

LONGEST_WORD: Final = FRAGMENT
"""Largest number of characters of a word in a vocabulary."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Lines of text that can be read repeatedly with the same result.

    >>> list(Corpus.from_lines(["one", "two"]))
    ['one', 'two']
    """

    files: tuple[TextFile, ...] = ()
    texts: tuple[str, ...] = ()  # texts in memory; each is at least one line
    column: str | None = None  # text column of JSON Lines and Parquet (`text` by default), CSV and TSV
    errors: Errors = "strict"
    drop_blank_lines: bool = False
    title: str = ""  # replaces the file names in `name`
    has_errors_option: bool = True  # whether error messages may advise `--errors`

    def __post_init__(self) -> None:
        if self.errors not in get_args(Errors):
            raise UsageError(f"errors is {self.errors!r}; choose one of {', '.join(get_args(Errors))}")

    @classmethod
    def of(
        cls,
        sources: "Sources | Corpus",
        *,
        column: str | None = None,
        errors: Errors = "strict",
        drop_blank_lines: bool = False,
        reads_once: bool = False,
        expects_lines: bool = True,
        has_errors_option: bool = True,
    ) -> Self:
        """Open files, folders, globs and standard input (`-`) as a corpus.

        Standard input is copied to a temporary file now; with `reads_once` it is streamed instead, and the corpus
        can be read only once.

        Formats are plain text, JSON Lines (`.jsonl`, `.ndjson`) and Parquet (`.parquet`), the first two also
        compressed by gzip, bzip2, xz or zstd. CSV and TSV are tables if a `column` is named, else plain text, with
        a warning unless `expects_lines` is False. A `column` of plain text is an error. With `errors="replace"`
        invalid UTF-8 becomes U+FFFD, and `fragments()` counts the replacements.
        """
        if isinstance(sources, Corpus):
            return cls(**{field.name: getattr(sources, field.name) for field in fields(Corpus)})
        files = find_files(sources, reads_once=reads_once)
        for file in files:
            check_column(file, column, expects_lines)
        return cls(
            files,
            column=column,
            errors=errors,
            drop_blank_lines=drop_blank_lines,
            has_errors_option=has_errors_option,
        )

    @classmethod
    def from_lines(cls, lines: Sequence[str], *, title: str = "") -> Self:
        """Create a corpus from lines in memory; a string with line breaks is several lines."""
        if isinstance(lines, str):
            raise UsageError("from_lines was given one text; give a list of lines, such as [text]")
        return cls(texts=tuple(lines), title=title)

    @property
    def name(self) -> str:
        """Title, or names of the files with invalid UTF-8 replaced."""
        name = self.title or ", ".join(file.name for file in self.files) or "lines in memory"
        return name.encode(errors="replace").decode()

    def __iter__(self) -> Iterator[str]:
        """Iterate over whole lines, without line breaks."""
        return join_lines(self.fragments())

    def read(self) -> Iterator[str]:
        """Yield the lines, then warn if invalid UTF-8 was replaced."""
        fragments = self.fragments()
        yield from join_lines(fragments)
        warn_about_replaced(self.name, fragments.replaced)

    def fragments(self) -> "CorpusReader[Fragment]":
        """Return an iterator over the lines in fragments of bounded size."""
        return CorpusReader(self, self._cut)

    def blocks(self) -> "CorpusReader[str]":
        """Return an iterator over blocks of text with LF after each line; the fastest way to read a corpus."""
        return CorpusReader(self, self._end_lines)

    def decoder(self) -> Decoder:
        """Return a decoder for one pass over the corpus."""
        return Decoder(self.errors, remedy=CONVERT + OPTION if self.has_errors_option else CONVERT)

    def documents(self, decoder: Decoder) -> Iterator[Document]:
        """Yield the documents of the texts in memory."""
        for number, text in enumerate(self.texts, start=1):
            yield [decoder.check(text or "\n", f"given line {number}")]

    def _cut(self, documents: Iterable[Document]) -> Iterator[Fragment]:
        fragments = chain.from_iterable(map(cut_lines, documents))
        return drop_blank_lines(fragments) if self.drop_blank_lines else fragments

    def _end_lines(self, documents: Iterable[Document]) -> Iterator[str]:
        if self.drop_blank_lines:
            return (text + "\n" * ends_line for text, ends_line in self._cut(documents))
        return chain.from_iterable(map(end_lines, documents))

    def digest(self) -> str:
        """Return the SHA-256 of the text as UTF-8 with LF after each line, whatever the file format."""
        sha256 = hashlib.sha256()
        for text in self.blocks():
            sha256.update(text.encode())
        return sha256.hexdigest()

    def is_ready(self) -> bool:
        """Whether more text can be read without waiting for standard input."""
        return all(file.stream is None or file.stream.is_ready() for file in self.files)

    def size_hint(self) -> int | None:
        """Return the stored size of the files in bytes; None for text in memory."""
        return None if self.texts else sum(file.size for file in self.files)


class CorpusReader(Iterator[T]):
    """One pass over a corpus; `split` turns its documents into the items of the iterator."""

    def __init__(self, corpus: Corpus, split: Callable[[Iterable[Document]], Iterator[T]]) -> None:
        self._decoder = corpus.decoder()
        self._corpus = corpus
        self.file_name = corpus.name  # name of the current file
        self._items = split(self._documents())

    def __iter__(self) -> Iterator[T]:
        return self._items  # iterating over it does not call `__next__` for each item

    def __next__(self) -> T:
        return next(self._items)

    @property
    def replaced(self) -> int:
        """Number of invalid UTF-8 sequences replaced by U+FFFD so far."""
        return self._decoder.replaced

    def _documents(self) -> Iterator[Document]:
        yield from self._corpus.documents(self._decoder)
        for file in self._corpus.files:
            self.file_name = file.name
            yield from read_documents(file, self._corpus.column, self._decoder)


class WordLengthCheck:
    """Raise for words of more than `LONGEST_WORD` characters while training on a text in pieces.

    A vocabulary should not contain words of tens of thousands of characters. When a text is scored, words are split
    after `FRAGMENT` characters instead.
    """

    def __init__(self, reading: CorpusReader[Any], remedy: str) -> None:
        self._reading = reading
        self._remedy = remedy
        self._file_name = reading.file_name
        self._line = 1
        self._length = 0  # length of the word at the end of the last piece

    def check(self, text: str) -> None:
        """Check the next piece of text, with LF after each line."""
        if self._reading.file_name != self._file_name:
            self._file_name, self._line, self._length = self._reading.file_name, 1, 0
        if len(text) > LONGEST_WORD:  # so that a word that is too long does not end in its piece
            for first in range(0, len(text), LONGEST_WORD):
                self.check(text[first : first + LONGEST_WORD])
            return
        ends = [index for index in map(text.find, " \t\n") if index >= 0]
        self._length += min(ends, default=len(text))
        if self._length > LONGEST_WORD:
            raise InputError(
                f"{self._file_name}, line {self._line} has a word of more than {LONGEST_WORD:,} characters; "
                f"{self._remedy}"
            )
        if ends:
            self._length = len(text) - 1 - max(map(text.rfind, " \t\n"))
            self._line += text.count("\n")


def open_file(file: str | Path, remedy: str) -> Corpus:
    """Open one file as a corpus; raise UsageError, with the remedy, if the name refers to several."""
    corpus = Corpus.of(file, expects_lines=False, has_errors_option=False)
    if len(corpus.files) != 1:
        raise UsageError(f"{file} refers to {len(corpus.files)} files; {remedy}")
    return corpus


def read_batches(corpus: Corpus, characters: int | None = None) -> Iterator[list[str]]:
    """Yield lists of lines with about `characters` characters, or of one longer line.

    A batch ends early if reading on would wait for standard input, so that the lines so far are processed first.
    """
    enough = CHARACTERS_AT_ONCE if characters is None else characters
    pending: list[str] = []
    size, has_break = 0, False
    blocks = corpus.blocks()
    for block in blocks:
        pending.append(block)
        size += len(block)
        has_break = has_break or "\n" in block
        if has_break and (size >= enough or not corpus.is_ready()):
            text = "".join(pending)
            pending.clear()
            lines = text.split("\n")
            del text
            rest = lines.pop()
            yield lines
            pending, size, has_break = [rest], len(rest), False
    if text := "".join(pending):
        yield text.removesuffix("\n").split("\n")
    warn_about_replaced(corpus.name, blocks.replaced)
