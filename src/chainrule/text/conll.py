"""Read tagged sentences and files to be tagged, from CoNLL columns and CoNLL-U; write predicted tags into them."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, NoReturn

from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.lines import BLANKS, cut_lines, join_lines
from chainrule.text.readers import (
    CONVERT,
    JSON_LINES,
    Decoder,
    Errors,
    parse_object,
    read_lines,
    spool,
    uncompressed_name,
)

DOCUMENT_BOUNDARY: Final = "-DOCSTART-"
"""First word of a document boundary line, which contains no word."""
MISSING: Final = "_"
"""Placeholder of a missing tag."""
CONLLU_COLUMNS: Final = 10
CONLLU_NAMES: Final = {"upos": 4, "xpos": 5}
"""Columns of CoNLL-U that can be selected by name, counted from 1."""
HEADERS: Final = frozenset({"word", "words", "token", "tokens", "form", "forms", "text", "id", "sentence"})
"""Usual names of the first column in a header line."""
MISC: Final = 9
"""Index of the last column of CoNLL-U: other annotations, as Name=value."""
UPOS: Final = frozenset({"NOUN", "VERB", "ADJ", "ADV", "PRON", "DET", "ADP", "PROPN", "PUNCT"})
"""Frequent UPOS tags: a tagger trained on UPOS knows some of them."""

_WORD: Final = re.compile(r"[0-9]+")  # CoNLL-U id of a word
_NO_WORD: Final = re.compile(r"[0-9]+[-.][0-9]+")  # id of a multiword token, 1-2, or an empty node, 8.1
_NOT_IN_COLUMN: Final = re.compile("[\t\r\n\ud800-\udfff]")  # characters not allowed in a column


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
        decoder = Decoder(self.corpus.errors, remedy=CONVERT)  # no command that reads columns has --errors
        yield from read_lines(file, decoder)

    def at(self, row: Row) -> str:
        """Return the location of a row for error messages."""
        return f"{self.corpus.name}, line {row.line}"


def read_tagged(
    source: str | Path, *, column: str | int | None = None, errors: Errors = "strict"
) -> list[TaggedSentence]:
    """Read the sentences of a file (`-` is standard input) with the tags of one column.

    CoNLL columns are separated by tabs or, in a line without tabs, by blanks; a blank line ends a sentence; the
    word is in the first column and the tag in the last, or in `column`, counted from 1. CoNLL-U is recognized by
    its suffix, or by ten columns of which the first is a word id; the word is FORM, and `column` is `upos`
    (default), `xpos` or a number.
    """
    sentences: list[TaggedSentence] = []
    for file in open_files(source, errors):
        if file.is_json:
            raise InputError(
                f"{file.corpus.name} is JSON, but tagged text is read from columns; write one word per line"
            )
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
        stem = uncompressed_name(file.corpus.files[0])
        if stem.endswith(".parquet"):
            raise InputError(
                f"{file.corpus.name} is Parquet, which is not supported for tagged text; write one word per line"
            )
        first = next((line for line in file.lines() if line.strip(BLANKS) and not line.startswith("#")), "")
        is_json = stem.endswith((*JSON_LINES, ".json")) or (
            first.lstrip(BLANKS).startswith("{") and parse_object(first) is not None
        )
        is_conllu = not is_json and (stem.endswith(".conllu") or looks_like_conllu(first))
        yield replace(file, is_conllu=is_conllu, is_json=is_json)


def looks_like_conllu(first: str) -> bool:
    """Whether the first line that is not a comment has ten tab-separated columns and a word id in the first."""
    cells = first.split("\t")
    number = cells[0]
    return len(cells) == CONLLU_COLUMNS and bool(_WORD.fullmatch(number) or _NO_WORD.fullmatch(number))


def read_rows(file: ColumnFile, remedy: str, may_be_longer: bool = False) -> Iterator[list[Row]]:
    """Yield the non-empty sentences of a file; raise if there are none.

    `remedy` is the advice in the error for lines of uneven length.
    """
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
        raise InputError(f"{file.at(first)} has word ids in column 1, not tags; specify a column with tags")
    if number - 1 == file.word_column:
        what = "has one column" if width == 1 else f"has words in column {number}"
        raise InputError(f"{file.at(first)} {what} and no tags; give a file with tags, or specify their column")
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
            "write it or specify another column"
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
    raise InputError(f"{file.corpus.name} contains no sentence; give a file with at least one word in it")


@dataclass(frozen=True, slots=True)
class TaggingInput:
    """A file to be tagged: its lines, and the rows of each sentence."""

    lines: list[str]
    rows: list[list[Row]]
    word_column: int  # index of the word column
    tag_column: int  # index of the column for predicted tags
    is_conllu: bool
    is_in_misc: bool = False  # write tags to MISC of CoNLL-U, as Tag=…

    @property
    def sentences(self) -> list[tuple[str, ...]]:
        """Words of each sentence."""
        return [tuple(row.cells[self.word_column] for row in rows) for rows in self.rows]

    def with_tags(
        self, tags: Sequence[Sequence[str]], probabilities: Sequence[Sequence[float]] | None = None
    ) -> list[str]:
        """Return the lines with predicted tags; probabilities go to a new last column, or to MISC of CoNLL-U."""
        lines = self.lines.copy()
        for i, rows in enumerate(self.rows):
            for t, row in enumerate(rows):
                tag = _add_to_misc(row, "Tag", tags[i][t]) if self.is_in_misc else tags[i][t]
                cells = [*row.cells[: self.tag_column], tag, *row.cells[self.tag_column + 1 :]]
                if probabilities is not None and self.is_conllu:
                    cells[MISC] = _add_to_misc(Row(row.line, cells), "Probability", f"{probabilities[i][t]:.4f}")
                elif probabilities is not None:
                    cells.append(f"{probabilities[i][t]:.4f}")
                uses_blanks = len(row.cells) > 1 and "\t" not in lines[row.line - 1]
                lines[row.line - 1] = (" " if uses_blanks else "\t").join(cells)
        return lines


def read_tagging_inputs(
    source: str | Path | Corpus,
    *,
    plain: bool | None = None,
    column: str | int | None = None,
    is_known: Callable[[set[str]], bool] | None = None,
    errors: Errors = "strict",
) -> list[TaggingInput]:
    """Read the files to be tagged in `source` (`-` is standard input).

    Formats:
    - Columns as in `read_tagged`, of which only the first is required. Tags are written to `column`, or to a new
      column (MISC of CoNLL-U) if that column is missing or `is_known` returns False for its values.
    - With `plain`, one sentence per line, words separated by blanks; blank lines are empty sentences. By default,
      standard input and `.txt` files are plain unless they look like CoNLL-U.
    - JSON Lines, recognized by suffix or first line, with a list `words` in each object.

    Plain text and JSON Lines are converted to one column.
    """
    sheets: list[TaggingInput] = []
    remedy = "correct it, or read lines of words as plain text (--plain)"
    for file in open_files(source, errors):
        if file.is_json:
            lines, rows = _write_rows(_read_json(file))
        elif plain if plain is not None else _is_plain(source, file):
            if plain is None:
                _warn_of_columns(file.lines(), file.corpus.name)
            file = ColumnFile(file.corpus)
            lines, rows = _write_rows(_read_plain(file))
        else:
            lines, rows = list(file.lines()), list(read_rows(file, remedy))
        first = next((row for sentence in rows for row in sentence), Row(1, [""]))
        sheet = TaggingInput(lines, rows, file.word_column, _output_column(file, first, column), file.is_conllu)
        sheets.append(sheet if is_known is None else _move_tags(sheet, file, is_known))
    return sheets


def read_tagging_input_batches(
    source: str | Path,
    *,
    plain: bool | None = None,
    column: str | int | None = None,
    is_known: Callable[[set[str]], bool] | None = None,
) -> Iterator[list[TaggingInput]]:
    """Read the files to be tagged in batches: all files at once, plain standard input as it becomes available."""
    if str(source) != "-":
        yield read_tagging_inputs(source, plain=plain, column=column, is_known=is_known)
        return
    corpus = Corpus.of(source, reads_once=True, has_errors_option=False)
    if plain is False or not _begins_with_words(corpus, plain):
        copied = replace(corpus, files=tuple(spool(file.stream) for file in corpus.files if file.stream))
        yield read_tagging_inputs(copied, plain=plain, column=column, is_known=is_known)
        return
    file, has_words, has_warned = ColumnFile(corpus), False, plain is not None
    for lines in read_batches(corpus):
        if not has_warned:
            _warn_of_columns(lines, corpus.name)
            has_warned = True
        sentences = _split_lines(lines)
        has_words = has_words or any(sentences)
        written, rows = _write_rows(sentences)
        first = next((row for sentence in rows for row in sentence), Row(1, [""]))
        yield [TaggingInput(written, rows, file.word_column, _output_column(file, first, column), is_conllu=False)]
    if not has_words:
        raise_empty(file)


def _begins_with_words(corpus: Corpus, plain: bool | None) -> bool:
    """Whether standard input is plain text, judged by its first line."""
    (file,) = corpus.files
    assert file.stream is not None
    head = file.stream.peek_line().decode("utf-8", "replace")
    lines = [line for line in join_lines(cut_lines([head])) if line.strip(BLANKS)]
    if not lines or lines[0].startswith("#"):
        return False
    return parse_object(lines[0]) is None and (plain is not None or not looks_like_conllu(lines[0]))


def _is_plain(source: str | Path | Corpus, file: ColumnFile) -> bool:
    """Whether a file is plain text by default."""
    is_stdin = isinstance(source, Corpus) or str(source) == "-"
    return not file.is_conllu and (is_stdin or uncompressed_name(file.corpus.files[0]).endswith(".txt"))


def _warn_of_columns(text: Iterable[str], name: str) -> None:
    """Warn if plain lines look like columns: equal width, in blocks separated by blank lines or all with tabs."""
    lines = [line.strip(BLANKS) for line in text if not line.startswith(DOCUMENT_BOUNDARY)]
    words = [line for line in lines if line]
    widths = {len(split_columns(line)) for line in words}
    is_in_blocks = "" in lines[: len(lines) - 1] or all("\t" in line for line in words)
    has_block = any(first and second for first, second in pairwise(lines))
    if len(widths) == 1 and widths != {1} and has_block and is_in_blocks:
        message = f"{name} looks like columns and is read as lines of words"
        warnings.warn(f"{message}; --columns reads columns, --plain silences this", ChainruleWarning, stacklevel=3)


def _read_plain(file: ColumnFile) -> list[list[str]]:
    sentences = _split_lines(file.lines())
    return sentences if any(sentences) else raise_empty(file)


def _split_lines(lines: Iterable[str]) -> list[list[str]]:
    # Only space and tab are blanks: a no-break space may occur inside a word.
    stripped = (line.strip(BLANKS) for line in lines)
    return [re.split(f"[{BLANKS}]+", line) if line else [] for line in stripped]


def _read_json(file: ColumnFile) -> list[list[str]]:
    sentences, has_warned = [], False
    for number, line in enumerate(file.lines(), start=1):
        if line.strip(BLANKS):
            words = (parse_object(line) or {}).get("words")
            if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() for word in words):
                raise InputError(
                    f"{file.corpus.name}, line {number} is not a JSON object with a list of words; "
                    'write {"words": ["a", "word"]}'
                )
            _check_blanks(file, number, words, has_warned)
            has_warned = has_warned or any(" " in word for word in words)
            sentences.append(words)
    return sentences or raise_empty(file)


def _check_blanks(file: ColumnFile, number: int, words: list[str], has_warned: bool) -> None:
    """Raise for words that cannot be written to a column; warn once about words that contain blanks."""
    at = f"{file.corpus.name}, line {number}"
    unfit = next(filter(_NOT_IN_COLUMN.search, words), None)
    if unfit is not None:
        raise InputError(f"{at}: the word {unfit!r:.60} contains a tab, a line break or a lone surrogate; split it")
    blank = next((word for word in words if " " in word), None)
    if blank is not None and not has_warned:
        message = f"{at}: the word {blank!r:.60} contains a blank and gets one tag; list several words separately"
        warnings.warn(message, ChainruleWarning, stacklevel=4)


def _write_rows(sentences: list[list[str]]) -> tuple[list[str], list[list[Row]]]:
    """Write sentences as lines of one column with blank lines between; return the lines and their rows."""
    lines: list[str] = []
    rows: list[list[Row]] = []
    for i, words in enumerate(sentences):
        lines += [""] if i else []
        rows.append([Row(number, [word]) for number, word in enumerate(words, start=len(lines) + 1)])
        lines += words
    return lines, rows


def _output_column(file: ColumnFile, first: Row, column: str | int | None) -> int:
    """Return the index of the column for predicted tags: the tag column, or a new one after the last."""
    width = len(first.cells)
    if not file.is_conllu:
        column = None if str(column).lower() in CONLLU_NAMES else column  # only CoNLL-U has column names
        if width == 1 if column is None else column_number(file, column) > width:
            return width
    return find_tag_column(file, first, column)


def _move_tags(sheet: TaggingInput, file: ColumnFile, is_known: Callable[[set[str]], bool]) -> TaggingInput:
    """Move predicted tags to another column if the values of the tag column are not tags of the model."""
    cells = {
        row.cells[sheet.tag_column] for rows in sheet.rows for row in rows if sheet.tag_column < len(row.cells)
    }
    values = {cell for cell in cells if any(map(str.isalnum, cell))}  # ignore placeholders: _, - and ?
    if sheet.is_conllu and sheet.tag_column == CONLLU_NAMES["upos"] - 1:
        values = values or set(UPOS)
    if not values or is_known(values):
        return sheet
    width = max(len(row.cells) for rows in sheet.rows for row in rows)
    where = "go to MISC, as Tag=…" if sheet.is_conllu else f"are added as column {width + 1}"
    message = f"{file.corpus.name}: column {sheet.tag_column + 1} has none of the model's tags ({min(values):.20})"
    remedy = f"the predicted tags {where}; --column {sheet.tag_column + 1} overwrites that column"
    warnings.warn(f"{message}; {remedy}", ChainruleWarning, stacklevel=3)
    return replace(sheet, tag_column=MISC if sheet.is_conllu else width, is_in_misc=sheet.is_conllu)


def _add_to_misc(row: Row, name: str, value: str) -> str:
    """Return the MISC cell with an annotation added."""
    others = "" if row.cells[MISC] == MISSING else f"{row.cells[MISC]}|"
    return f"{others}{name}={value}"
