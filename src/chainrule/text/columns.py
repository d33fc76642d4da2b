"""Columns of tagged words -> sentences, and back with other tags: CoNLL columns and CoNLL-U, packed or not.

Lives here: what the lines of such files mean, and the refusal of those that mean nothing. Not here: finding,
unpacking and decoding the file (corpus.py), what tags say of spans (evaluation/spans.py).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final, NoReturn

from chainrule.errors import ConfigError, InputError
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

_WORD: Final = re.compile(r"[0-9]+")  # the id of a word
_NO_WORD: Final = re.compile(r"[0-9]+[-.][0-9]+")  # of a multiword token, 1-2, or an empty node, 8.1
_UNFIT: Final = re.compile("[\t\r\n\ud800-\udfff]")  # cannot stand in a column


@dataclass(frozen=True, slots=True)
class Tagged:
    """One sentence: its words and as many tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.tags):
            raise InputError(f"{len(self.words)} words have {len(self.tags)} tags; give each word one tag")


@dataclass(frozen=True, slots=True)
class _Row:
    """A line that holds a word."""

    line: int  # from 1
    cells: list[str]


@dataclass(frozen=True, slots=True)
class _File:
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

    def at(self, row: _Row) -> str:
        """What messages call this line."""
        return f"{self.corpus.name}, line {row.line}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A file that is to be tagged: its lines, and those of them that hold the words of each sentence."""

    lines: list[str]
    rows: list[list[_Row]]
    word: int  # where the word stands, from 0
    place: int  # where its tag is to stand
    is_conllu: bool

    @property
    def sentences(self) -> list[tuple[str, ...]]:
        """The words of each sentence."""
        return [tuple(row.cells[self.word] for row in rows) for rows in self.rows]

    def with_tags(
        self, tags: Sequence[Sequence[str]], probabilities: Sequence[Sequence[float]] | None = None
    ) -> list[str]:
        """The same lines with these tags; probabilities stand in a last column, those of CoNLL-U in its MISC."""
        lines = self.lines.copy()
        for i, rows in enumerate(self.rows):
            for t, row in enumerate(rows):
                cells = [*row.cells[: self.place], tags[i][t], *row.cells[self.place + 1 :]]
                if probabilities is not None and self.is_conllu:
                    others = "" if cells[-1] == MISSING else f"{cells[-1]}|"
                    cells[-1] = f"{others}Probability={probabilities[i][t]:.4f}"
                elif probabilities is not None:
                    cells.append(f"{probabilities[i][t]:.4f}")
                is_blank_parted = len(row.cells) > 1 and "\t" not in lines[row.line - 1]
                lines[row.line - 1] = (" " if is_blank_parted else "\t").join(cells)
        return lines


def read_tagged(source: str | Path, *, column: str | int | None = None, errors: Errors = "strict") -> list[Tagged]:
    """The sentences of a file (`-` is standard input) with the tags of one column.

    CoNLL columns are parted by tabs or, in a line without tabs, by blanks; a blank line ends a sentence; the word
    is in the first column and the tag in the last one, or in the `column` of that number, from 1. CoNLL-U is known
    by its suffix, or by ten columns of which the first holds a word's number: there the word is FORM and `column`
    is `upos` (unless told otherwise), `xpos` or a number.
    """
    sentences: list[Tagged] = []
    for file in _open(source, errors):
        if file.is_json:
            raise InputError(f"{file.corpus.name} is JSON, and tags are read from columns; write a word a line")
        place: int | None = None
        for rows in _read_rows(file, "mend it, all lines need the same columns", may_be_longer=column is not None):
            if place is None:
                place = _find_tag(file, rows[0], column)
            words = tuple(row.cells[file.word] for row in rows)
            sentences.append(Tagged(words, tuple(_check_tag(file, row, place) for row in rows)))
    return sentences


def read_words(
    source: str | Path, *, plain: bool | None = None, errors: Errors = "strict"
) -> list[tuple[str, ...]]:
    """The sentences of a file (`-` is standard input) without tags, as `read_sheets` finds them."""
    return [words for sheet in read_sheets(source, plain=plain, errors=errors) for words in sheet.sentences]


def read_sheets(
    source: str | Path,
    *,
    plain: bool | None = None,
    column: str | int | None = None,
    errors: Errors = "strict",
) -> list[Sheet]:
    """The files behind `source` (`-` is standard input), to be tagged.

    Columns as above, of which the first alone is needed: tags go to `column`, behind the others where there is no
    such column. Or, with `plain`, lines of words parted by blanks, blank lines left out; where it is not given,
    standard input and files with the suffix `.txt` are plain. Or JSON Lines, known by suffix or look, with a list
    of `words` in each. The words of these two become lines of one column.
    """
    sheets: list[Sheet] = []
    remedy = "mend it, or read lines of words as plain text"
    for file in _open(source, errors):
        if file.is_json:
            lines, rows = _write_rows(_read_json(file))
        elif plain if plain is not None else str(source) == "-" or _stem(file.corpus).endswith(".txt"):
            file = _File(file.corpus)
            lines, rows = _write_rows(_read_plain(file))
        else:
            lines, rows = list(file.lines()), list(_read_rows(file, remedy))
        first = next((row for sentence in rows for row in sentence), _Row(1, [""]))
        sheets.append(Sheet(lines, rows, file.word, _find_place(file, first, column), file.is_conllu))
    return sheets


def _open(source: str | Path, errors: Errors) -> Iterator[_File]:
    corpus = Corpus.of(source, errors=errors)
    for found in corpus.files:
        file = _File(replace(corpus, files=(found,)))
        stem = _stem(file.corpus)
        if stem.endswith(".parquet"):
            raise InputError(f"{file.corpus.name} is Parquet, which is not read here; write a word a line")
        first = next((line for line in file.lines() if line.strip(BLANKS) and not line.startswith("#")), "")
        is_json = stem.endswith(JSON_SUFFIXES) or (
            first.lstrip(BLANKS).startswith("{") and _parse(first) is not None
        )
        is_conllu = not is_json and (stem.endswith(".conllu") or _looks_like_conllu(first))
        yield replace(file, is_conllu=is_conllu, is_json=is_json)


def _stem(corpus: Corpus) -> str:
    """The name of its one file, in small letters, without the suffix of a packing."""
    name = corpus.files[0].name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _looks_like_conllu(first: str) -> bool:
    """Whether the first line that is no comment has ten columns, parted by tabs, and a number in the first."""
    cells = first.split("\t")
    number = cells[0]
    return len(cells) == CONLLU_COLUMNS and bool(_WORD.fullmatch(number) or _NO_WORD.fullmatch(number))


def _read_plain(file: _File) -> list[list[str]]:
    # A blank is a space or a tab and nothing else: a no-break space may stand inside a word.
    lines = (line.strip(BLANKS) for line in file.lines())
    return [re.split(f"[{BLANKS}]+", line) for line in lines if line] or _refuse_empty(file)


def _read_json(file: _File) -> list[list[str]]:
    sentences = []
    for number, line in enumerate(file.lines(), start=1):
        if line.strip(BLANKS):
            words = (_parse(line) or {}).get("words")
            if not isinstance(words, list) or not all(
                isinstance(word, str) and word.strip() and not _UNFIT.search(word) for word in words
            ):
                raise InputError(
                    f"{file.corpus.name}, line {number} is no JSON object with a list of words; "
                    'write {"words": ["a", "word"]}'
                )
            sentences.append(words)
    return sentences or _refuse_empty(file)


def _parse(line: str) -> dict[str, object] | None:
    """The JSON object of a line; None: it holds none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _write_rows(sentences: list[list[str]]) -> tuple[list[str], list[list[_Row]]]:
    """Lines of one column, a blank one between sentences, and the rows of each sentence."""
    lines: list[str] = []
    rows: list[list[_Row]] = []
    for words in sentences:
        lines += [""] if lines else []
        rows.append([_Row(number, [word]) for number, word in enumerate(words, start=len(lines) + 1)])
        lines += words
    return lines, rows


def _read_rows(file: _File, remedy: str, may_be_longer: bool = False) -> Iterator[list[_Row]]:
    """The sentences of a file, none of them empty, at least one; `remedy` is for lines of uneven length."""
    rows = _read_conllu(file) if file.is_conllu else _read_columns(file, remedy, may_be_longer)
    is_empty = True
    for is_sentence, sentence in groupby(rows, key=lambda row: row is not None):
        if is_sentence:
            is_empty = False
            yield [row for row in sentence if row is not None]
    if is_empty:
        _refuse_empty(file)


def _read_columns(file: _File, remedy: str, may_be_longer: bool) -> Iterator[_Row | None]:
    """The rows of CoNLL columns; None where a sentence ends."""
    width: int | None = None
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip(BLANKS) or line.startswith(DOCUMENT):
            yield None
            continue
        row = _Row(number, _cut(line))
        found = len(row.cells)
        width = width or found
        if found < width or (found > width and not may_be_longer):
            raise InputError(f"{file.at(row)} has {_count(found)} but the first line has {width}; {remedy}")
        yield _check_word(file, row)


def _cut(line: str) -> list[str]:
    """The columns of a line; between tabs there may be nothing, and blanks inside a word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]


def _read_conllu(file: _File) -> Iterator[_Row | None]:
    """The words of CoNLL-U; None where a sentence ends."""
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip(BLANKS):
            yield None
        elif not line.startswith("#"):
            row = _Row(number, line.split("\t"))
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


def _check_word(file: _File, row: _Row) -> _Row:
    if not row.cells[file.word]:
        raise InputError(f"{file.at(row)} has no word in column {file.word + 1}; write it, or drop the line")
    return row


def _find_tag(file: _File, first: _Row, column: str | int | None) -> int:
    """Where the tag stands, from 0."""
    width = len(first.cells)
    usual = CONLLU_NAMES["upos"] if file.is_conllu else width
    number = usual if column is None else _number(file, column)
    if not 1 <= number <= width:
        raise InputError(
            f"{file.at(first)} has {_count(width)}, so there is no column {number}; choose one from 1 to {width}"
        )
    if number - 1 == file.word:
        what = "has one column" if width == 1 else f"has its words in column {number}"
        raise InputError(f"{file.at(first)} {what} and so no tag there; name a file and a column with tags")
    return number - 1


def _find_place(file: _File, first: _Row, column: str | int | None) -> int:
    """Where a tag that is found is to stand, from 0: in the column of tags, or behind the others."""
    width = len(first.cells)
    if not file.is_conllu:
        column = None if str(column).lower() in CONLLU_NAMES else column  # means nothing in other files
        if width == 1 if column is None else _number(file, column) > width:
            return width
    return _find_tag(file, first, column)


def _number(file: _File, column: str | int) -> int:
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


def _check_tag(file: _File, row: _Row, place: int) -> str:
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


def _refuse_empty(file: _File) -> NoReturn:
    raise InputError(f"{file.corpus.name} holds no sentence; give a file with at least one word in it")
