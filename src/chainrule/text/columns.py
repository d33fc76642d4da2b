"""Columns of tagged words -> sentences: CoNLL columns and CoNLL-U, packed or not.

Lives here: what the lines of such files mean, and the refusal of those that mean nothing. Not here: finding,
unpacking and decoding the file (corpus.py), files that are to be tagged (sheets.py), what tags say of spans
(evaluation/spans.py).
"""

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final, NoReturn

from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.text.compression import SUFFIXES, read_blocks
from chainrule.text.corpus import Corpus
from chainrule.text.lines import BLANKS, cut_lines, join_lines
from chainrule.text.utf8 import Decoder, Errors

DOCUMENT: Final = "-DOCSTART-"
"""Begins a line that marks a document and holds no word."""
MISSING: Final = "_"
"""What stands where a word has no tag."""
CONLLU_COLUMNS: Final = 10
CONLLU_NAMES: Final = {"upos": 4, "xpos": 5}
"""The columns of CoNLL-U that can be asked for by name, from 1."""
JSON_SUFFIXES: Final = (".json", ".jsonl", ".ndjson")
HEADERS: Final = frozenset({"word", "words", "token", "tokens", "form", "forms", "text", "id", "sentence"})
"""What the first column is called in files that name their columns."""

_WORD: Final = re.compile(r"[0-9]+")  # the id of a word
_NO_WORD: Final = re.compile(r"[0-9]+[-.][0-9]+")  # of a multiword token, 1-2, or an empty node, 8.1


@dataclass(frozen=True, slots=True)
class Tagged:
    """One sentence: its words and as many tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.tags):
            raise InputError(f"{len(self.words)} words have {len(self.tags)} tags; give each word one tag")


@dataclass(frozen=True, slots=True)
class Row:
    """A line that holds a word."""

    line: int  # from 1
    cells: list[str]


@dataclass(frozen=True, slots=True)
class File:
    """One file of columns, and how it is written."""

    corpus: Corpus
    is_conllu: bool = False
    is_json: bool = False

    @property
    def word(self) -> int:
        """Where the word stands, from 0."""
        return 1 if self.is_conllu else 0

    def lines(self) -> Iterator[str]:
        """Its lines as they are stored, also where its suffix speaks of records."""
        (file,) = self.corpus.files
        decoder = Decoder(self.corpus.errors)
        try:
            yield from join_lines(cut_lines(decoder.decode_blocks(read_blocks(file), file.name)))
        except InputError as error:  # without the option that other commands have
            raise InputError(str(error).removesuffix(", or read it with --errors replace")) from error

    def at(self, row: Row) -> str:
        """What messages call this line."""
        return f"{self.corpus.name}, line {row.line}"


def read_tagged(source: str | Path, *, column: str | int | None = None, errors: Errors = "strict") -> list[Tagged]:
    """The sentences of a file (`-` is standard input) with the tags of one column.

    CoNLL columns are parted by tabs or, in a line without tabs, by blanks; a blank line ends a sentence; the word
    is in the first column and the tag in the last one, or in the `column` of that number, from 1. CoNLL-U is known
    by its suffix, or by ten columns of which the first holds a word's number: there the word is FORM and `column`
    is `upos` (unless told otherwise), `xpos` or a number.
    """
    sentences: list[Tagged] = []
    for file in open_files(source, errors):
        if file.is_json:
            raise InputError(f"{file.corpus.name} is JSON, and tags are read from columns; write a word a line")
        place: int | None = None
        begun = len(sentences)
        for rows in read_rows(file, "mend it, all lines need the same columns", may_be_longer=column is not None):
            if place is None:
                first = rows[0]
                place = find_tag(file, first, column)
            words = tuple(row.cells[file.word] for row in rows)
            sentences.append(Tagged(words, tuple(_check_tag(file, row, place) for row in rows)))
        _warn_of_header(file, first, sentences[begun:])
    return sentences


def _warn_of_header(file: File, first: Row, sentences: list[Tagged]) -> None:
    """Tell of a first line that seems to name columns: its word does, and no other word has its tag."""
    if first.line == 1 and not file.is_conllu and first.cells[0].lower() in HEADERS:
        tags = [tag for sentence in sentences for tag in sentence.tags]
        if len(tags) > 1 and tags[0] not in tags[1:]:
            warnings.warn(f"{file.at(first)} looks like a header; remove it", ChainruleWarning, stacklevel=3)


def open_files(source: str | Path | Corpus, errors: Errors) -> Iterator[File]:
    """Each file behind `source`, and how it is written, by suffix or look."""
    corpus = source if isinstance(source, Corpus) else Corpus.of(source, errors=errors, expects_lines=False)
    for found in corpus.files:
        file = File(replace(corpus, files=(found,)))
        stem = stem_of(file.corpus)
        if stem.endswith(".parquet"):
            raise InputError(f"{file.corpus.name} is Parquet, which is not read here; write a word a line")
        first = next((line for line in file.lines() if line.strip(BLANKS) and not line.startswith("#")), "")
        is_json = stem.endswith(JSON_SUFFIXES) or (
            first.lstrip(BLANKS).startswith("{") and parse_object(first) is not None
        )
        is_conllu = not is_json and (stem.endswith(".conllu") or looks_like_conllu(first))
        yield replace(file, is_conllu=is_conllu, is_json=is_json)


def stem_of(corpus: Corpus) -> str:
    """The name of its one file, in small letters, without the suffix of a packing."""
    name = corpus.files[0].name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def looks_like_conllu(first: str) -> bool:
    """Whether the first line that is no comment has ten columns, parted by tabs, and a number in the first."""
    cells = first.split("\t")
    number = cells[0]
    return len(cells) == CONLLU_COLUMNS and bool(_WORD.fullmatch(number) or _NO_WORD.fullmatch(number))


def parse_object(line: str) -> dict[str, object] | None:
    """The JSON object of a line; None: it holds none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_rows(file: File, remedy: str, may_be_longer: bool = False) -> Iterator[list[Row]]:
    """The sentences of a file, none of them empty, at least one; `remedy` is for lines of uneven length."""
    rows = _read_conllu(file) if file.is_conllu else _read_columns(file, remedy, may_be_longer)
    is_empty = True
    for is_sentence, sentence in groupby(rows, key=lambda row: row is not None):
        if is_sentence:
            is_empty = False
            yield [row for row in sentence if row is not None]
    if is_empty:
        refuse_empty(file)


def _read_columns(file: File, remedy: str, may_be_longer: bool) -> Iterator[Row | None]:
    """The rows of CoNLL columns; None where a sentence ends."""
    first: Row | None = None
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip(BLANKS) or line.startswith(DOCUMENT):
            yield None
            continue
        row = Row(number, cut_columns(line))
        found = len(row.cells)
        first = first or row
        width = len(first.cells)
        if found < width or (found > width and not may_be_longer):
            _refuse_comment(file, row if row.cells[0].startswith("#") else first)
            raise InputError(f"{file.at(row)} has {_count(found)} but the first line has {width}; {remedy}")
        yield _check_word(file, row)


def _refuse_comment(file: File, row: Row) -> None:
    """Refuse this row of odd length if it looks like a comment."""
    if row.cells[0].startswith("#"):
        raise InputError(
            f"{file.at(row)} looks like a comment, {' '.join(row.cells)[:40]!r}; "
            "comments are of CoNLL-U; remove the line"
        )


def cut_columns(line: str) -> list[str]:
    """The columns of a line; between tabs there may be nothing, and blanks inside a word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]


def _read_conllu(file: File) -> Iterator[Row | None]:
    """The words of CoNLL-U; None where a sentence ends."""
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip(BLANKS):
            yield None
        elif not line.startswith("#"):
            row = Row(number, line.split("\t"))
            if len(row.cells) != CONLLU_COLUMNS:
                raise InputError(
                    f"{file.at(row)} has {_count(len(row.cells))} parted by tabs but CoNLL-U has {CONLLU_COLUMNS}; "
                    "mend the line, or name the file otherwise if it is no CoNLL-U"
                )
            if _WORD.fullmatch(row.cells[0]):
                yield _check_word(file, row)
            elif not _NO_WORD.fullmatch(row.cells[0]):
                raise InputError(
                    f"{file.at(row)} begins with {row.cells[0]!r}, which numbers no word; write 1, 1-2 or 1.1"
                )


def _check_word(file: File, row: Row) -> Row:
    if not row.cells[file.word]:
        raise InputError(f"{file.at(row)} has no word in column {file.word + 1}; write it, or drop the line")
    return row


def find_tag(file: File, first: Row, column: str | int | None) -> int:
    """Where the tag stands, from 0."""
    width = len(first.cells)
    usual = CONLLU_NAMES["upos"] if file.is_conllu else width
    number = usual if column is None else number_of(file, column)
    if not 1 <= number <= width:
        raise InputError(
            f"{file.at(first)} has {_count(width)}, so there is no column {number}; choose one from 1 to {width}"
        )
    if file.is_conllu and number == 1:
        raise InputError(
            f"{file.at(first)} has the numbers of words in column 1 and so no tag there; name a column with tags"
        )
    if number - 1 == file.word:
        what = "has one column" if width == 1 else f"has its words in column {number}"
        raise InputError(f"{file.at(first)} {what} and so no tag there; name a file and a column with tags")
    return number - 1


def number_of(file: File, column: str | int) -> int:
    """The number of a column that is given by number or name."""
    if isinstance(column, int):
        return column
    if re.fullmatch("[0-9]+", column):
        return int(column)
    if column.lower() not in CONLLU_NAMES:
        raise ConfigError(f"column is {column!r}; choose upos or xpos (of CoNLL-U), or a number from 1")
    if not file.is_conllu:
        raise ConfigError(f"column is {column!r} but {file.corpus.name} is no CoNLL-U; give a number from 1")
    return CONLLU_NAMES[column.lower()]


def _check_tag(file: File, row: Row, place: int) -> str:
    tag = row.cells[place]
    word = row.cells[file.word]
    if not tag or tag == MISSING:
        raise InputError(
            f"{file.at(row)}: {word!r} has no tag in column {place + 1} ({tag!r}); write it or name another column"
        )
    if " " in tag and not file.is_conllu:
        raise InputError(
            f"{file.at(row)}: the tag {tag!r} of {word!r} holds a blank; part columns by tabs or blanks, not both"
        )
    return tag


def _count(columns: int) -> str:
    return "one column" if columns == 1 else f"{columns} columns"


def refuse_empty(file: File) -> NoReturn:
    """Say that a file has no words."""
    raise InputError(f"{file.corpus.name} holds no sentence; give a file with at least one word in it")
