"""Read tagged sentences from CoNLL columns and CoNLL-U files, optionally compressed."""

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

DOCUMENT_BOUNDARY: Final = "-DOCSTART-"
"""First word of a document boundary line, which contains no word."""
MISSING: Final = "_"
"""Placeholder of a missing tag."""
CONLLU_COLUMNS: Final = 10
CONLLU_NAMES: Final = {"upos": 4, "xpos": 5}
"""Columns of CoNLL-U that can be selected by name, counted from 1."""
JSON_SUFFIXES: Final = (".json", ".jsonl", ".ndjson")
HEADERS: Final = frozenset({"word", "words", "token", "tokens", "form", "forms", "text", "id", "sentence"})
"""Usual names of the first column in a header line."""

_WORD: Final = re.compile(r"[0-9]+")  # CoNLL-U id of a word
_NO_WORD: Final = re.compile(r"[0-9]+[-.][0-9]+")  # id of a multiword token, 1-2, or an empty node, 8.1


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """One sentence: words, and one tag per word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.tags):
            raise InputError(f"{len(self.words)} words have {len(self.tags)} tags; give each word one tag")


@dataclass(frozen=True, slots=True)
class Row:
    """A line that contains a word."""

    line: int  # from 1
    cells: list[str]


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """One file of columns and its format."""

    corpus: Corpus
    is_conllu: bool = False
    is_json: bool = False

    @property
    def word_column(self) -> int:
        """Index of the word column."""
        return 1 if self.is_conllu else 0

    def lines(self) -> Iterator[str]:
        """Yield the raw lines, whatever the suffix of the file."""
        (file,) = self.corpus.files
        decoder = Decoder(self.corpus.errors)
        try:
            yield from join_lines(cut_lines(decoder.decode_blocks(read_blocks(file), file.name)))
        except InputError as error:  # this command has no --errors option
            raise InputError(str(error).removesuffix(", or read it with --errors replace")) from error

    def at(self, row: Row) -> str:
        """Return the location of a row for error messages."""
        return f"{self.corpus.name}, line {row.line}"


def read_tagged(
    source: str | Path, *, column: str | int | None = None, errors: Errors = "strict"
) -> list[TaggedSentence]:
    """Read the sentences of a file (`-` is standard input) with the tags of one column.

    CoNLL columns are separated by tabs or, in a line without tabs, by blanks; a blank line ends a sentence; the
    word is in the first column and the tag in the last, or in `column`, counted from 1. CoNLL-U is recognised by
    its suffix, or by ten columns of which the first is a word id; the word is FORM, and `column` is `upos`
    (default), `xpos` or a number.
    """
    sentences: list[TaggedSentence] = []
    for file in open_files(source, errors):
        if file.is_json:
            raise InputError(f"{file.corpus.name} is JSON, and tags are read from columns; write a word a line")
        tag_column: int | None = None
        start = len(sentences)
        for rows in read_rows(
            file, "correct it, all lines need the same columns", may_be_longer=column is not None
        ):
            if tag_column is None:
                first = rows[0]
                tag_column = find_tag_column(file, first, column)
            words = tuple(row.cells[file.word_column] for row in rows)
            sentences.append(TaggedSentence(words, tuple(_check_tag(file, row, tag_column) for row in rows)))
        _warn_of_header(file, first, sentences[start:])
    return sentences


def _warn_of_header(file: ColumnFile, first: Row, sentences: list[TaggedSentence]) -> None:
    """Warn if the first line looks like a header: its word is a column name and its tag occurs only once."""
    if first.line == 1 and not file.is_conllu and first.cells[0].lower() in HEADERS:
        tags = [tag for sentence in sentences for tag in sentence.tags]
        if len(tags) > 1 and tags[0] not in tags[1:]:
            warnings.warn(f"{file.at(first)} looks like a header; remove it", ChainruleWarning, stacklevel=3)


def open_files(source: str | Path | Corpus, errors: Errors) -> Iterator[ColumnFile]:
    """Yield the files of `source` with their formats, detected by suffix or first line."""
    corpus = source if isinstance(source, Corpus) else Corpus.of(source, errors=errors, expects_lines=False)
    for text_file in corpus.files:
        file = ColumnFile(replace(corpus, files=(text_file,)))
        stem = uncompressed_name(file.corpus)
        if stem.endswith(".parquet"):
            raise InputError(f"{file.corpus.name} is Parquet, which is not read here; write a word a line")
        first = next((line for line in file.lines() if line.strip(BLANKS) and not line.startswith("#")), "")
        is_json = stem.endswith(JSON_SUFFIXES) or (
            first.lstrip(BLANKS).startswith("{") and parse_object(first) is not None
        )
        is_conllu = not is_json and (stem.endswith(".conllu") or looks_like_conllu(first))
        yield replace(file, is_conllu=is_conllu, is_json=is_json)


def uncompressed_name(corpus: Corpus) -> str:
    """Return the lower-cased name of the only file, without the suffix of a compression format."""
    name = corpus.files[0].name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def looks_like_conllu(first: str) -> bool:
    """Whether the first line that is not a comment has ten tab-separated columns and a word id in the first."""
    cells = first.split("\t")
    number = cells[0]
    return len(cells) == CONLLU_COLUMNS and bool(_WORD.fullmatch(number) or _NO_WORD.fullmatch(number))


def parse_object(line: str) -> dict[str, object] | None:
    """Parse a line as a JSON object; None if it is not one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_rows(file: ColumnFile, remedy: str, may_be_longer: bool = False) -> Iterator[list[Row]]:
    """Yield the non-empty sentences of a file; raise if there are none. `remedy` is for lines of uneven length."""
    rows = _read_conllu(file) if file.is_conllu else _read_columns(file, remedy, may_be_longer)
    is_empty = True
    for is_sentence, sentence in groupby(rows, key=lambda row: row is not None):
        if is_sentence:
            is_empty = False
            yield [row for row in sentence if row is not None]
    if is_empty:
        raise_empty(file)


def _read_columns(file: ColumnFile, remedy: str, may_be_longer: bool) -> Iterator[Row | None]:
    """Yield the rows of CoNLL columns, and None at the end of a sentence."""
    first: Row | None = None
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip(BLANKS) or line.startswith(DOCUMENT_BOUNDARY):
            yield None
            continue
        row = Row(number, split_columns(line))
        columns = len(row.cells)
        first = first or row
        width = len(first.cells)
        if columns < width or (columns > width and not may_be_longer):
            _refuse_comment(file, row if row.cells[0].startswith("#") else first)
            raise InputError(f"{file.at(row)} has {_count(columns)} but the first line has {width}; {remedy}")
        yield _check_word(file, row)


def _refuse_comment(file: ColumnFile, row: Row) -> None:
    """Raise a specific error if a row with the wrong number of columns looks like a comment."""
    if row.cells[0].startswith("#"):
        raise InputError(
            f"{file.at(row)} looks like a comment, {' '.join(row.cells)[:40]!r}; "
            "only CoNLL-U has comments; remove the line"
        )


def split_columns(line: str) -> list[str]:
    """Split a line at tabs, or at blanks if it has no tab; tab-separated cells may be empty or contain blanks."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]


def _read_conllu(file: ColumnFile) -> Iterator[Row | None]:
    """Yield the rows of CoNLL-U words, and None at the end of a sentence."""
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip(BLANKS):
            yield None
        elif not line.startswith("#"):
            row = Row(number, line.split("\t"))
            if len(row.cells) != CONLLU_COLUMNS:
                raise InputError(
                    f"{file.at(row)} has {_count(len(row.cells))} separated by tabs but CoNLL-U has "
                    f"{CONLLU_COLUMNS}; correct the line, or rename the file if it is not CoNLL-U"
                )
            if _WORD.fullmatch(row.cells[0]):
                yield _check_word(file, row)
            elif not _NO_WORD.fullmatch(row.cells[0]):
                raise InputError(
                    f"{file.at(row)} begins with {row.cells[0]!r}, which is not a word id; write 1, 1-2 or 1.1"
                )


def _check_word(file: ColumnFile, row: Row) -> Row:
    if not row.cells[file.word_column]:
        raise InputError(f"{file.at(row)} has no word in column {file.word_column + 1}; write it, or drop the line")
    return row


def find_tag_column(file: ColumnFile, first: Row, column: str | int | None) -> int:
    """Return the index of the tag column."""
    width = len(first.cells)
    usual = CONLLU_NAMES["upos"] if file.is_conllu else width
    number = usual if column is None else column_number(file, column)
    if not 1 <= number <= width:
        raise InputError(
            f"{file.at(first)} has {_count(width)}, so there is no column {number}; choose one from 1 to {width}"
        )
    if file.is_conllu and number == 1:
        raise InputError(f"{file.at(first)} has word ids in column 1, not tags; name a column with tags")
    if number - 1 == file.word_column:
        what = "has one column" if width == 1 else f"has words in column {number}"
        raise InputError(f"{file.at(first)} {what} and no tags; name a file and a column with tags")
    return number - 1


def column_number(file: ColumnFile, column: str | int) -> int:
    """Return the number of a column from its number or name."""
    if isinstance(column, int):
        return column
    if re.fullmatch("[0-9]+", column):
        return int(column)
    if column.lower() not in CONLLU_NAMES:
        raise ConfigError(f"column is {column!r}; choose upos or xpos (of CoNLL-U), or a number from 1")
    if not file.is_conllu:
        raise ConfigError(f"column is {column!r} but {file.corpus.name} is not CoNLL-U; give a number from 1")
    return CONLLU_NAMES[column.lower()]


def _check_tag(file: ColumnFile, row: Row, tag_column: int) -> str:
    tag = row.cells[tag_column]
    word = row.cells[file.word_column]
    if not tag or tag == MISSING:
        raise InputError(
            f"{file.at(row)}: {word!r} has no tag in column {tag_column + 1} ({tag!r}); "
            "write it or name another column"
        )
    if " " in tag and not file.is_conllu:
        raise InputError(
            f"{file.at(row)}: the tag {tag!r} of {word!r} contains a blank; "
            "separate columns by tabs or by blanks, not both"
        )
    return tag


def _count(columns: int) -> str:
    return "one column" if columns == 1 else f"{columns} columns"


def raise_empty(file: ColumnFile) -> NoReturn:
    """Raise InputError for a file without words."""
    raise InputError(f"{file.corpus.name} holds no sentence; give a file with at least one word in it")
