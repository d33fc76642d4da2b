"""Label and text of the lines of a file: tables with a header or without, and lines that begin with their label.

Lives here: lines in memory. Not here: reading them, JSON Lines, and what comes of the examples (labelled.py).
"""

import re
import warnings
from collections.abc import Collection, Sequence
from typing import Final

from chainrule.errors import ChainruleWarning, InputError, UsageError

TEXT: Final = "text"
LABEL: Final = "label"
"""What the columns are called unless told otherwise."""
MOST_LABELS: Final = 20  # different first words can be labels where no tab parts label and text
LINES_PER_LABEL: Final = 10  # there must be for each of them, unless they are numbers
KNOWN_SHARE: Final = 0.9  # of a table's lines must have a known label for it to be read as texts with labels
COLUMN_NAMES: Final = re.compile(  # what the columns of tables are usually called
    r"labels?|class|category|target|tag|topic|type|sentiment|intent|rating|stars|score|polarity|y|v[12]|id|texts?|"
    r"sentence|message|review|content|body|document|title|tweet|comment|sms|utterance|query"
)

FORMS: Final = f"label<TAB>text, JSON Lines, or, without tabs, label<SPACE>text of ≤ {MOST_LABELS} recurring labels"


def part_lines(lines: list[str], name: str, column: str = TEXT, label: str = LABEL) -> list[tuple[str, str]]:
    """Label and text of each line, parted at the first tab, or at the first blank where there is no tab at all.

    Where the first line holds both names, they stand in the columns of these names.
    """
    if is_header(lines, (column, label)):
        return _named(lines, name, column, label)
    if (column, label) != (TEXT, LABEL):
        raise UsageError(
            f"{name}: its first line does not name the columns {label!r} and {column!r}, parted by a tab; "
            "add such a line, or leave out label and column: then the label stands first"
        )
    return _parted(lines, name)


def read_column(lines: list[str], name: str, column: str) -> list[str]:
    """The cells of the column that the first line calls so; a line with fewer cells is an empty text."""
    if not is_header(lines, (column,)):
        raise UsageError(
            f"{name}: its first line does not name a column {column!r}; leave out column to read lines"
        )
    names = _cells(lines[0])
    at = names.index(column)
    return [_cell(line.rstrip("\t").split("\t"), at, at == len(names) - 1) for line in lines[1:]]


def is_header(lines: Sequence[str], names: Collection[str]) -> bool:
    """Whether the first line, which does not come again, has cells with all these names."""
    return bool(lines) and set(names) <= set(_cells(lines[0])) and lines.count(lines[0]) == 1


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.rstrip("\t").split("\t")]


def _cell(cells: Sequence[str], at: int, is_last: bool) -> str:
    """One cell, empty where the line has none there; the last column takes the rest of the line."""
    return "\t".join(cells[at:] if is_last else cells[at : at + 1])


def _named(lines: list[str], name: str, column: str, label: str) -> list[tuple[str, str]]:
    """Label and text of each line below a header."""
    names = _cells(lines[0])
    examples = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.rstrip("\t").split("\t")
        if len(cells) > len(names) and names[-1] != column:
            raise InputError(
                f"{name}, line {number} has {len(cells)} columns but the header has {len(names)}; "
                "take the tabs out of the text, or put its column last"
            )
        found = [_cell(cells, names.index(one), names[-1] == one) for one in (label, column)]
        for one, cell in zip((label, column), found, strict=True):
            if not cell.strip():
                raise InputError(
                    f"{name}, line {number} has nothing in the column {one!r}; add it or drop the line"
                )
        examples.append((found[0].strip(), found[1]))
    return examples


def _parted(lines: list[str], name: str) -> list[tuple[str, str]]:
    is_table = any("\t" in line for line in lines)
    if lines and not is_table and not _are_labels([line.partition(" ")[0] for line in lines]):
        raise InputError(f"{name} has no labels that can be told from its text; these forms are read: {FORMS}")
    mark = "\t" if is_table else " "
    examples = []
    for number, line in enumerate(lines, start=1):
        label, found, text = line.partition(mark)
        where, form = f"{name}, line {number}", "label, tab, text" if is_table else "label, blank, text"
        if is_table and not found:
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
    """The texts of a table whose first or last column holds labels, blank lines as empty texts; else nothing."""
    rows = [line for line in lines if line.strip()]
    if not rows or not labels or any("\t" not in row.rstrip("\t") for row in rows):
        return []
    for place in ("first", "last"):
        examples = [_part(row, place == "first") for row in rows]
        has_header = _looks_like_header(examples[0]) and examples[0][0] not in labels
        found = [label in labels for label, _ in examples[has_header:]]
        if found and sum(found) >= KNOWN_SHARE * len(found):
            message = f"{name} has labels in its {place} column: only the other columns are read as text"
            warn(message + ", the header left out" * has_header)
            texts = (text for _, text in examples[has_header:])
            kept = lines[lines.index(rows[0]) + 1 :] if has_header else lines
            return [next(texts) if line.strip() else "" for line in kept]
    return []


def _part(row: str, is_first: bool) -> tuple[str, str]:
    """Label and text of a line whose label is its first column, or its last."""
    first, _, last = row.rstrip("\t").partition("\t") if is_first else row.rstrip("\t").rpartition("\t")
    return (first.strip(), last) if is_first else (last.strip(), first)


def _looks_like_header(example: tuple[str, str]) -> bool:
    """Whether the cells of a line are single words, at least one of them a usual name of a column."""
    words = [cell.strip().lower() for cell in "\t".join(example).split("\t")]
    return all(re.fullmatch(r"[a-z_][\w.-]*", word) for word in words) and any(map(COLUMN_NAMES.fullmatch, words))


def warn(message: str) -> None:
    """Say it where the reader of the file was called."""
    warnings.warn(message, ChainruleWarning, stacklevel=3)


def _are_labels(words: Sequence[str]) -> bool:
    """Whether the first words of the lines can be labels: few, and numbers or met again and again."""
    distinct = set(words) - {""}  # a line without a label is refused later, by its number
    if not 0 < len(distinct) <= MOST_LABELS:
        return False
    if all(re.fullmatch(r"[+-]?\d+", word) for word in distinct):
        return True
    # Two labels are believed on less: a file of four lines may well be an example of the form.
    needed = 2 if len(distinct) <= 2 else LINES_PER_LABEL
    return len(words) >= needed * len(distinct)
