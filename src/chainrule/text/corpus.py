"""Any text as lines, as often as wanted: the one door through which text comes in.

Lives here: the corpus and the passes over it. Not here: finding files (files.py), unpacking (compression.py),
decoding (utf8.py), records (documents.py), line breaks (lines.py).
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, get_args

from chainrule.errors import InputError, UsageError
from chainrule.text.documents import Document, check_column, read_documents
from chainrule.text.files import Sources, TextFile, find_files
from chainrule.text.lines import FRAGMENT, Fragment, cut_lines, drop_blanks, end_lines, join_lines
from chainrule.text.utf8 import Decoder, Errors, warn_of_replaced

CHARACTERS_AT_ONCE: Final = 1 << 21
"""Characters of the lines that `read_batches` gives at a time, about."""

LONGEST_WORD: Final = FRAGMENT
"""Characters of a word that a vocabulary may hold."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Lines of text that can be read again and again, the same each time.

    >>> list(Corpus.from_lines(["one", "two"]))
    ['one', 'two']
    """

    files: tuple[TextFile, ...] = ()
    texts: tuple[str, ...] = ()  # in memory; each is at least one line
    column: str | None = None  # of JSON Lines and Parquet (`text` by default), CSV and TSV
    errors: Errors = "strict"
    drop_blank_lines: bool = False
    title: str = ""  # shown as `name` in place of the file names

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
    ) -> Self:
        """The text of files, folders, globs and standard input (`-`), which is read here and now.

        With `reads_once` standard input is read as it comes instead, and the corpus can be read only once.

        Plain text, JSON Lines (`.jsonl`, `.ndjson`) and Parquet (`.parquet`), the first two also as gzip,
        bzip2, xz or zstd. CSV and TSV are tables if a `column` is named, else plain text, with a warning unless
        `expects_lines` is False. A `column` of plain text is an error. With `errors="replace"` what is not UTF-8
        becomes U+FFFD; `fragments()` counts it.
        """
        if isinstance(sources, Corpus):
            return cls(**{field.name: getattr(sources, field.name) for field in fields(Corpus)})
        files = find_files(sources, reads_once=reads_once)
        for file in files:
            check_column(file, column, expects_lines)
        return cls(files, column=column, errors=errors, drop_blank_lines=drop_blank_lines)

    @classmethod
    def from_lines(cls, lines: Sequence[str], *, title: str = "") -> Self:
        """The text of lines in memory; one that holds line breaks is several."""
        if isinstance(lines, str):
            raise UsageError("from_lines was given one text; give a list of lines, such as [text]")
        return cls(texts=tuple(lines), title=title)

    @property
    def name(self) -> str:
        """The title, or the names of the files; bytes of a name that are not UTF-8 are replaced."""
        name = self.title or ", ".join(file.name for file in self.files) or "lines in memory"
        return name.encode(errors="replace").decode()

    def __iter__(self) -> Iterator[str]:
        """Whole lines, without their breaks."""
        return join_lines(self.fragments())

    def read(self) -> Iterator[str]:
        """The same once, with a warning at the end of what was not UTF-8: for results that have no place for it."""
        fragments = self.fragments()
        yield from join_lines(fragments)
        warn_of_replaced(self.name, fragments.replaced)

    def fragments(self) -> "Fragments":
        """The same lines in pieces of bounded size."""
        return Fragments(self)

    def blocks(self) -> "Blocks":
        """The text with LF after each line, in blocks that hold many lines or a piece of one; the fastest way."""
        return Blocks(self)

    def digest(self) -> str:
        """SHA-256 of the text as read, in UTF-8 with LF after each line, however it was stored."""
        sha256 = hashlib.sha256()
        for text, ends_line in self.fragments():
            sha256.update(text.encode() + b"\n" * ends_line)
        return sha256.hexdigest()

    def is_ready(self) -> bool:
        """Whether reading on would not wait for standard input."""
        return all(file.stream is None or file.stream.is_ready() for file in self.files)

    def size_hint(self) -> int | None:
        """Bytes of the files as stored; None for text in memory."""
        return None if self.texts else sum(file.size for file in self.files)


class _Pass:
    """One pass over a corpus."""

    def __init__(self, corpus: Corpus) -> None:
        self._decoder = Decoder(corpus.errors)
        self._corpus = corpus
        self.file_name = corpus.name  # of the file that is being read

    @property
    def replaced(self) -> int:
        """Sequences met so far that were not UTF-8 and were read as U+FFFD."""
        return self._decoder.replaced

    def _documents(self) -> Iterator[Document]:
        for number, text in enumerate(self._corpus.texts, start=1):
            yield [self._decoder.check(text or "\n", f"given line {number}")]
        for file in self._corpus.files:
            self.file_name = file.name
            yield from read_documents(file, self._corpus.column, self._decoder)

    def _cut(self) -> Iterator[Fragment]:
        fragments = (piece for document in self._documents() for piece in cut_lines(document))
        return drop_blanks(fragments) if self._corpus.drop_blank_lines else fragments


class Fragments(_Pass, Iterator[Fragment]):
    """One pass over a corpus, in pieces of lines."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(corpus)
        self._fragments = self._cut()

    def __next__(self) -> Fragment:
        return next(self._fragments)


class Blocks(_Pass, Iterator[str]):
    """One pass over a corpus, as text with LF after each line."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(corpus)
        self._blocks = (
            (text + "\n" * ends_line for text, ends_line in self._cut())
            if corpus.drop_blank_lines
            else (chunk for document in self._documents() for chunk in end_lines(document))
        )

    def __next__(self) -> str:
        return next(self._blocks)


class WordLengthCheck:
    """Refuses words of more than `LONGEST_WORD` characters while a text is read in pieces.

    Such a word is no word: a table of words would hold pieces of tens of thousands of characters. It is for texts
    that are learnt word by word; where lines are scored, a word is cut after `FRAGMENT` characters.
    """

    def __init__(self, reading: "Fragments | Blocks", remedy: str) -> None:
        self._reading = reading
        self._remedy = remedy
        self._file_name = reading.file_name
        self._line = 1
        self._length = 0  # of the word that the last piece ended with

    def check(self, text: str) -> None:
        """Take the next piece, LF after each line."""
        if self._reading.file_name != self._file_name:
            self._file_name, self._line, self._length = self._reading.file_name, 1, 0
        if len(text) > LONGEST_WORD:  # so that a word that is too long has no end in its piece
            for first in range(0, len(text), LONGEST_WORD):
                self.check(text[first : first + LONGEST_WORD])
            return
        ends = [place for place in map(text.find, " \t\n") if place >= 0]
        self._length += min(ends, default=len(text))
        if self._length > LONGEST_WORD:
            raise InputError(
                f"{self._file_name}, line {self._line} has a word of more than {LONGEST_WORD:,} characters; "
                f"{self._remedy}"
            )
        if ends:
            self._length = len(text) - 1 - max(map(text.rfind, " \t\n"))
            self._line += text.count("\n")


def read_batches(corpus: Corpus, characters: int | None = None) -> Iterator[list[str]]:
    """The lines of a text in lists of about so many characters, or of one line that is longer.

    A list is shorter where reading on would wait for standard input: what has been written is answered first.
    """
    enough = CHARACTERS_AT_ONCE if characters is None else characters
    held: list[str] = []
    size, has_break = 0, False
    blocks = corpus.blocks()
    for block in blocks:
        held.append(block)
        size += len(block)
        has_break = has_break or "\n" in block
        if has_break and (size >= enough or not corpus.is_ready()):
            text = "".join(held)
            held.clear()
            lines = text.split("\n")
            del text
            rest = lines.pop()
            yield lines
            held, size, has_break = [rest], len(rest), False
    if text := "".join(held):
        yield text.removesuffix("\n").split("\n")
    warn_of_replaced(corpus.name, blocks.replaced)
