"""Read files to be tagged (columns, plain lines, JSON Lines) and write them back with predicted tags."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from chainrule.errors import ChainruleWarning, InputError
from chainrule.text.columns import (
    CONLLU_NAMES,
    DOCUMENT_BOUNDARY,
    MISSING,
    ColumnFile,
    Row,
    column_number,
    find_tag_column,
    looks_like_conllu,
    open_files,
    parse_object,
    raise_empty,
    read_rows,
    split_columns,
    uncompressed_name,
)
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.files import spool
from chainrule.text.lines import BLANKS, cut_lines, join_lines
from chainrule.text.utf8 import OPTION, Errors

MISC: Final = 9
"""Index of the last column of CoNLL-U: other annotations, as Name=value."""
UPOS: Final = frozenset({"NOUN", "VERB", "ADJ", "ADV", "PRON", "DET", "ADP", "PROPN", "PUNCT"})
"""Frequent UPOS tags: a tagger trained on UPOS knows some of them."""

_NOT_IN_COLUMN: Final = re.compile("[\t\r\n\ud800-\udfff]")  # characters not allowed in a column


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


def read_words(
    source: str | Path, *, plain: bool | None = None, errors: Errors = "strict"
) -> list[tuple[str, ...]]:
    """Read the sentences of a file (`-` is standard input) without tags; formats as in `read_tagging_inputs`."""
    return [words for sheet in read_tagging_inputs(source, plain=plain, errors=errors) for words in sheet.sentences]


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
    - JSON Lines, recognised by suffix or first line, with a list `words` in each object.

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
    corpus = Corpus.of(source, reads_once=True)
    if plain is False or not _begins_with_words(corpus, plain):
        copied = replace(corpus, files=tuple(spool(file.stream) for file in corpus.files if file.stream))
        yield read_tagging_inputs(copied, plain=plain, column=column, is_known=is_known)
        return
    file, has_words, has_warned = ColumnFile(corpus), False, plain is not None
    try:
        for lines in read_batches(corpus):
            if not has_warned:
                _warn_of_columns(lines, corpus.name)
                has_warned = True
            sentences = _split_lines(lines)
            has_words = has_words or any(sentences)
            written, rows = _write_rows(sentences)
            first = next((row for sentence in rows for row in sentence), Row(1, [""]))
            yield [
                TaggingInput(written, rows, file.word_column, _output_column(file, first, column), is_conllu=False)
            ]
    except InputError as error:  # this command has no --errors option
        raise InputError(str(error).removesuffix(OPTION)) from error
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
    return not file.is_conllu and (is_stdin or uncompressed_name(file.corpus).endswith(".txt"))


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
