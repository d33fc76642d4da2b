"""Split lines into label and text: tables with or without a header, and lines that begin with a label."""

import re
import warnings
from collections.abc import Collection, Sequence
from typing import Final

from chainrule.errors import ChainruleWarning, InputError, UsageError

TEXT: Final = "text"
LABEL: Final = "label"
"""Default column names."""
MOST_LABELS: Final = 20  # most distinct first words that are accepted as labels without a tab
LINES_PER_LABEL: Final = 10  # fewest lines per such label, unless the labels are numbers
KNOWN_SHARE: Final = 0.9  # share of lines with a known label above which a column is taken for labels
COLUMN_NAMES: Final = re.compile(  # usual names of columns
    r"labels?|class|category|target|tag|topic|type|sentiment|intent|rating|stars|score|polarity|y|v[12]|id|texts?|"
    r"sentence|message|review|content|body|document|title|tweet|comment|sms|utterance|query"
)

FORMS: Final = f"label<TAB>text, JSON Lines, or, without tabs, label<SPACE>text of ≤ {MOST_LABELS} recurring labels"


def split_labels(lines: list[str], name: str, column: str = TEXT, label: str = LABEL) -> list[tuple[str, str]]:
    """Split each line into label and text at the first tab, or at the first blank if the file has no tabs.

    If the first line is a header with both names, the columns of these names are read.
    """
    if is_header(lines, (column, label)):
        return _read_named(lines, name, column, label)
    if (column, label) != (TEXT, LABEL):
        raise UsageError(
            f"{name}: its first line does not name the columns {label!r} and {column!r}, separated by a tab; "
            "add such a line, or leave out label and column: then the label is the first column"
        )
    return _read_unnamed(lines, name)


def read_column(lines: list[str], name: str, column: str) -> list[str]:
    """Return the cells of the column with this name in the header; a missing cell is an empty text."""
    if not is_header(lines, (column,)):
        raise UsageError(
            f"{name}: its first line does not name a column {column!r}; leave out column to read lines"
        )
    names = _cells(lines[0])
    at = names.index(column)
    return [_cell(line.rstrip("\t").split("\t"), at, at == len(names) - 1) for line in lines[1:]]


def is_header(lines: Sequence[str], names: Collection[str]) -> bool:
    """Whether the first line has cells with all these names and is not repeated."""
    return bool(lines) and set(names) <= set(_cells(lines[0])) and lines.count(lines[0]) == 1


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.rstrip("\t").split("\t")]


def _cell(cells: Sequence[str], at: int, is_last: bool) -> str:
    """Return one cell, empty if missing; the last column takes the rest of the line."""
    return "\t".join(cells[at:] if is_last else cells[at : at + 1])


def _read_named(lines: list[str], name: str, column: str, label: str) -> list[tuple[str, str]]:
    """Return label and text of each line below a header."""
    names = _cells(lines[0])
    examples = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.rstrip("\t").split("\t")
        if len(cells) > len(names) and names[-1] != column:
            raise InputError(
                f"{name}, line {number} has {len(cells)} columns but the header has {len(names)}; "
                "take the tabs out of the text, or put its column last"
            )
        values = [_cell(cells, names.index(key), names[-1] == key) for key in (label, column)]
        for key, value in zip((label, column), values, strict=True):
            if not value.strip():
                raise InputError(
                    f"{name}, line {number} has nothing in the column {key!r}; add it or drop the line"
                )
        examples.append((values[0].strip(), values[1]))
    return examples


def _read_unnamed(lines: list[str], name: str) -> list[tuple[str, str]]:
    """Return label and text of each line of a file without a header."""
    is_table = any("\t" in line for line in lines)
    if lines and not is_table and not _are_labels([line.partition(" ")[0] for line in lines]):
        raise InputError(f"{name}: labels cannot be distinguished from text; these forms are read: {FORMS}")
    delimiter = "\t" if is_table else " "
    examples = []
    for number, line in enumerate(lines, start=1):
        label, separator, text = line.partition(delimiter)
        where, form = f"{name}, line {number}", "label, tab, text" if is_table else "label, blank, text"
        if is_table and not separator:
            raise InputError(f"{where} has no label (there is no tab); each line must be {form}")
        if not label.strip():
            raise InputError(f"{where} has an empty label; each line must be {form}")
        text = text.rstrip("\t")
        if not text.strip():
            raise InputError(f"{where} has the label {label.strip()!r} but no text; add it or drop the line")
        examples.append((label.strip(), text))
    if examples and _looks_like_header(examples[0]) and all(label != examples[0][0] for label, _ in examples[1:]):
        shown = " and ".join(map(repr, examples[0]))
        warn(f"{name}, line 1 looks like a header ({shown}) and is read as an example; delete it if it is one")
    return examples


def drop_labels(lines: list[str], labels: Collection[str], name: str) -> list[str]:
    """Return the texts of a table whose first or last column contains labels; an empty list for other files.

    Blank lines are empty texts.
    """
    rows = [line for line in lines if line.strip()]
    if not rows or not labels or any("\t" not in row.rstrip("\t") for row in rows):
        return []
    for position in ("first", "last"):
        examples = [_split_label(row, position == "first") for row in rows]
        has_header = _looks_like_header(examples[0]) and examples[0][0] not in labels
        is_known = [label in labels for label, _ in examples[has_header:]]
        if is_known and sum(is_known) >= KNOWN_SHARE * len(is_known):
            message = f"{name} has labels in its {position} column: only the other columns are read as text"
            warn(message + ", the header left out" * has_header)
            texts = (text for _, text in examples[has_header:])
            body = lines[lines.index(rows[0]) + 1 :] if has_header else lines
            return [next(texts) if line.strip() else "" for line in body]
    return []


def _split_label(row: str, is_first: bool) -> tuple[str, str]:
    """Split a line into label and text; the label is the first or the last column."""
    first, _, last = row.rstrip("\t").partition("\t") if is_first else row.rstrip("\t").rpartition("\t")
    return (first.strip(), last) if is_first else (last.strip(), first)


def _looks_like_header(example: tuple[str, str]) -> bool:
    """Whether the cells of a line are single words, at least one of them a usual column name."""
    words = [cell.strip().lower() for cell in "\t".join(example).split("\t")]
    return all(re.fullmatch(r"[a-z_][\w.-]*", word) for word in words) and any(map(COLUMN_NAMES.fullmatch, words))


def warn(message: str) -> None:
    """Issue a warning at the caller of the reader."""
    warnings.warn(message, ChainruleWarning, stacklevel=3)


def _are_labels(words: Sequence[str]) -> bool:
    """Whether the first words of the lines can be labels: few, and numbers or frequent."""
    distinct = set(words) - {""}  # the error for a line without a label is raised later, with its number
    if not 0 < len(distinct) <= MOST_LABELS:
        return False
    if all(re.fullmatch(r"[+-]?\d+", word) for word in distinct):
        return True
    # Two labels need fewer lines: a file of four lines may well be a small example.
    needed = 2 if len(distinct) <= 2 else LINES_PER_LABEL
    return len(words) >= needed * len(distinct)
