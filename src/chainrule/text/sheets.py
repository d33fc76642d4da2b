"""Files that are to be tagged -> their words, and back with tags: columns, lines of words, JSON Lines.

Lives here: which lines hold words, and where their tags go. Not here: what columns mean (columns.py).
"""

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
    DOCUMENT,
    MISSING,
    File,
    Row,
    cut_columns,
    find_tag,
    looks_like_conllu,
    number_of,
    open_files,
    parse_object,
    read_rows,
    refuse_empty,
    stem_of,
)
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.files import spool
from chainrule.text.lines import BLANKS, cut_lines, join_lines
from chainrule.text.utf8 import OPTION, Errors

MISC: Final = 9
"""The last column of CoNLL-U, from 0: whatever else is said of a word, as Name=value."""
UPOS: Final = frozenset({"NOUN", "VERB", "ADJ", "ADV", "PRON", "DET", "ADP", "PROPN", "PUNCT"})
"""Some of these are met wherever the column UPOS of CoNLL-U was learnt."""

_UNFIT: Final = re.compile("[\t\r\n\ud800-\udfff]")  # cannot stand in a column


@dataclass(frozen=True, slots=True)
class Sheet:
    """A file that is to be tagged: its lines, and those of them that hold the words of each sentence."""

    lines: list[str]
    rows: list[list[Row]]
    word: int  # where the word stands, from 0
    place: int  # where its tag is to stand
    is_conllu: bool
    is_in_misc: bool = False  # the tag is to stand in MISC of CoNLL-U, as Tag=…

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
                tag = _in_misc(row, "Tag", tags[i][t]) if self.is_in_misc else tags[i][t]
                cells = [*row.cells[: self.place], tag, *row.cells[self.place + 1 :]]
                if probabilities is not None and self.is_conllu:
                    cells[MISC] = _in_misc(Row(row.line, cells), "Probability", f"{probabilities[i][t]:.4f}")
                elif probabilities is not None:
                    cells.append(f"{probabilities[i][t]:.4f}")
                is_blank_parted = len(row.cells) > 1 and "\t" not in lines[row.line - 1]
                lines[row.line - 1] = (" " if is_blank_parted else "\t").join(cells)
        return lines


def read_words(
    source: str | Path, *, plain: bool | None = None, errors: Errors = "strict"
) -> list[tuple[str, ...]]:
    """The sentences of a file (`-` is standard input) without tags, as `read_sheets` finds them."""
    return [words for sheet in read_sheets(source, plain=plain, errors=errors) for words in sheet.sentences]


def read_sheets(
    source: str | Path | Corpus,
    *,
    plain: bool | None = None,
    column: str | int | None = None,
    is_known: Callable[[set[str]], bool] | None = None,
    errors: Errors = "strict",
) -> list[Sheet]:
    """The files behind `source` (`-` is standard input), to be tagged.

    Columns as of `read_tagged`, of which the first alone is needed: tags go to `column`, or behind the others where
    there is no such column or `is_known` denies what it holds (then of CoNLL-U to MISC). Or, with `plain`, lines of
    words parted by blanks, each a sentence, also a blank one; where it is not given, standard input and files with
    the suffix `.txt` are plain unless they look like CoNLL-U. Or JSON Lines, known by suffix or look, with a list
    of `words` in each. The words of these two become lines of one column.
    """
    sheets: list[Sheet] = []
    remedy = "mend it, or read lines of words as plain text (--plain)"
    for file in open_files(source, errors):
        if file.is_json:
            lines, rows = _write_rows(_read_json(file))
        elif plain if plain is not None else _is_plain(source, file):
            if plain is None:
                _warn_of_columns(file.lines(), file.corpus.name)
            file = File(file.corpus)
            lines, rows = _write_rows(_read_plain(file))
        else:
            lines, rows = list(file.lines()), list(read_rows(file, remedy))
        first = next((row for sentence in rows for row in sentence), Row(1, [""]))
        sheet = Sheet(lines, rows, file.word, _find_place(file, first, column), file.is_conllu)
        sheets.append(sheet if is_known is None else _beside(sheet, file, is_known))
    return sheets


def read_sheet_batches(
    source: str | Path,
    *,
    plain: bool | None = None,
    column: str | int | None = None,
    is_known: Callable[[set[str]], bool] | None = None,
) -> Iterator[list[Sheet]]:
    """The same in lists: all files at once, and lines of words on standard input as they come."""
    if str(source) != "-":
        yield read_sheets(source, plain=plain, column=column, is_known=is_known)
        return
    corpus = Corpus.of(source, reads_once=True)
    if plain is False or not _begins_with_words(corpus, plain):
        copied = replace(corpus, files=tuple(spool(file.stream) for file in corpus.files if file.stream))
        yield read_sheets(copied, plain=plain, column=column, is_known=is_known)
        return
    file, has_words, is_told = File(corpus), False, plain is not None
    try:
        for lines in read_batches(corpus):
            if not is_told:
                _warn_of_columns(lines, corpus.name)
                is_told = True
            sentences = _cut_words(lines)
            has_words = has_words or any(sentences)
            written, rows = _write_rows(sentences)
            first = next((row for sentence in rows for row in sentence), Row(1, [""]))
            yield [Sheet(written, rows, file.word, _find_place(file, first, column), is_conllu=False)]
    except InputError as error:  # without the option that other commands have
        raise InputError(str(error).removesuffix(OPTION)) from error
    if not has_words:
        refuse_empty(file)


def _begins_with_words(corpus: Corpus, plain: bool | None) -> bool:
    """Whether standard input begins with a line of words, as far as its first lines tell."""
    (file,) = corpus.files
    assert file.stream is not None
    head = file.stream.peek_line().decode("utf-8", "replace")
    lines = [line for line in join_lines(cut_lines([head])) if line.strip(BLANKS)]
    if not lines or lines[0].startswith("#"):
        return False
    return parse_object(lines[0]) is None and (plain is not None or not looks_like_conllu(lines[0]))


def _is_plain(source: str | Path | Corpus, file: File) -> bool:
    """Whether lines of words are expected here."""
    is_stdin = isinstance(source, Corpus) or str(source) == "-"
    return not file.is_conllu and (is_stdin or stem_of(file.corpus).endswith(".txt"))


def _warn_of_columns(text: Iterable[str], name: str) -> None:
    """Tell of lines that seem to be columns: of one length, in blocks, blank lines between or tabs in all."""
    lines = [line.strip(BLANKS) for line in text if not line.startswith(DOCUMENT)]
    words = [line for line in lines if line]
    widths = {len(cut_columns(line)) for line in words}
    is_in_blocks = "" in lines[: len(lines) - 1] or all("\t" in line for line in words)
    has_block = any(first and second for first, second in pairwise(lines))
    if len(widths) == 1 and widths != {1} and has_block and is_in_blocks:
        message = f"{name} looks like columns and is read as lines of words"
        warnings.warn(f"{message}; --columns reads it so, --plain silences this", ChainruleWarning, stacklevel=3)


def _read_plain(file: File) -> list[list[str]]:
    sentences = _cut_words(file.lines())
    return sentences if any(sentences) else refuse_empty(file)


def _cut_words(lines: Iterable[str]) -> list[list[str]]:
    # A blank is a space or a tab and nothing else: a no-break space may stand inside a word.
    stripped = (line.strip(BLANKS) for line in lines)
    return [re.split(f"[{BLANKS}]+", line) if line else [] for line in stripped]


def _read_json(file: File) -> list[list[str]]:
    sentences, is_told = [], False
    for number, line in enumerate(file.lines(), start=1):
        if line.strip(BLANKS):
            words = (parse_object(line) or {}).get("words")
            if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() for word in words):
                raise InputError(
                    f"{file.corpus.name}, line {number} is no JSON object with a list of words; "
                    'write {"words": ["a", "word"]}'
                )
            _check_blanks(file, number, words, is_told)
            is_told = is_told or any(" " in word for word in words)
            sentences.append(words)
    return sentences or refuse_empty(file)


def _check_blanks(file: File, number: int, words: list[str], is_told: bool) -> None:
    """Refuse words that cannot stand in a column, and tell once of those that may be several."""
    at = f"{file.corpus.name}, line {number}"
    unfit = next(filter(_UNFIT.search, words), None)
    if unfit is not None:
        raise InputError(
            f"{at}: the word {unfit!r:.60} holds a tab, a line break or half a character; write it apart"
        )
    blank = next((word for word in words if " " in word), None)
    if blank is not None and not is_told:
        message = f"{at}: the word {blank!r:.60} holds a blank and gets one tag; give several words one by one"
        warnings.warn(message, ChainruleWarning, stacklevel=4)


def _write_rows(sentences: list[list[str]]) -> tuple[list[str], list[list[Row]]]:
    """Lines of one column, a blank one between sentences, and the rows of each sentence."""
    lines: list[str] = []
    rows: list[list[Row]] = []
    for i, words in enumerate(sentences):
        lines += [""] if i else []
        rows.append([Row(number, [word]) for number, word in enumerate(words, start=len(lines) + 1)])
        lines += words
    return lines, rows


def _find_place(file: File, first: Row, column: str | int | None) -> int:
    """Where a tag that is found is to stand, from 0: in the column of tags, or behind the others."""
    width = len(first.cells)
    if not file.is_conllu:
        column = None if str(column).lower() in CONLLU_NAMES else column  # means nothing in other files
        if width == 1 if column is None else number_of(file, column) > width:
            return width
    return find_tag(file, first, column)


def _beside(sheet: Sheet, file: File, is_known: Callable[[set[str]], bool]) -> Sheet:
    """The sheet with its tags beside the column where they would stand, if that holds other things than tags."""
    cells = {row.cells[sheet.place] for rows in sheet.rows for row in rows if sheet.place < len(row.cells)}
    values = {cell for cell in cells if any(map(str.isalnum, cell))}  # _, - and ? say nothing
    if sheet.is_conllu and sheet.place == CONLLU_NAMES["upos"] - 1:
        values = values or set(UPOS)
    if not values or is_known(values):
        return sheet
    width = max(len(row.cells) for rows in sheet.rows for row in rows)
    where = "go to MISC, as Tag=…" if sheet.is_conllu else f"are added as column {width + 1}"
    message = f"{file.corpus.name}: column {sheet.place + 1} holds none of the model's tags ({min(values):.20})"
    remedy = f"the tags found {where}; --column {sheet.place + 1} writes them there"
    warnings.warn(f"{message}; {remedy}", ChainruleWarning, stacklevel=3)
    return replace(sheet, place=MISC if sheet.is_conllu else width, is_in_misc=sheet.is_conllu)


def _in_misc(row: Row, name: str, value: str) -> str:
    """What MISC holds with this added."""
    others = "" if row.cells[MISC] == MISSING else f"{row.cells[MISC]}|"
    return f"{others}{name}={value}"
