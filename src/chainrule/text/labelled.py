"""Read labelled texts from tables, JSON Lines and lines that begin with a label; stratified splits."""

import difflib
import itertools
import json
import math
import numbers
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule.config import check_seed
from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.readers import (
    CONVERT,
    JSON_LINES,
    TEXT,
    Decoder,
    TextFile,
    check_text,
    find_file,
    parse_object,
    parse_records,
    read_lines,
    uncompressed_name,
)

LABEL: Final = "label"
"""Default column of labels."""
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


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts and their labels, in file order."""

    texts: Sequence[str]
    labels: Sequence[str]
    name: str = "the texts given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", check_texts(self.texts, "text", f"{self.name}: "))
        object.__setattr__(self, "labels", check_texts(self.labels, "label", f"{self.name}: "))
        texts, labels = len(self.texts), len(self.labels)
        if texts != labels:
            raise InputError(f"{self.name}: there are {texts} texts but {labels} labels; give one label per text")

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.texts)


def check_texts(items: Iterable[str], what: str = "text", where: str = "") -> tuple[str, ...]:
    """Convert to a tuple of strings; raise InputError, naming the items `what`, for anything else."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InputError(f"{where}{items!r:.40} is not a list of {what}s; give a list of str, such as [{what}]")
    texts = tuple(items)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"{where}{what} {number} is {text!r:.40}, not a str; correct or drop it")
    return texts


def read_labelled(file: str | Path, *, column: str = TEXT, label: str = LABEL) -> LabelledTexts:
    """Read the examples of one file: `label<TAB>text`, JSON Lines, or `label<SPACE>text`.

    In a table the first tab separates label and text; trailing tabs are empty columns and are dropped. JSON Lines
    are recognized by their suffix (.jsonl, .ndjson, .json) or by a first line that is a JSON object; `column` and
    `label` name the fields, and labels that are numbers or booleans are written as in JSON. A table may have a
    header with both names; other names than the default require one. White space around a label is removed. A
    warning is issued if the first line of a table without these names looks like a header.
    """
    source = find_file(file, "give one file, so that lines have numbers")
    if _is_json_lines(source):
        examples = list(_read_records(source, column, label))
    else:
        examples = split_labels(list(_read_lines(source)), source.name, column, label)
    if not examples:
        raise InputError(f"{source.name} contains no examples; give a file with at least one, as {FORMS}")
    labels, texts = zip(*examples, strict=True)
    return LabelledTexts(texts, labels, source.name.encode(errors="replace").decode())


def read_texts(file: str | Path, *, column: str = TEXT, labels: Collection[str] = ()) -> list[str]:
    """Read unlabelled texts: the lines of a plain text, including empty ones, or a column of JSON Lines.

    A `column` other than `text` may also be a column of a table with a header, and is an error elsewhere. If the
    first or last column of a table contains `labels`, the other columns are read, with a warning.
    """
    source = find_file(file, "give one file, so that lines have numbers")
    if _is_json_lines(source):
        if not _is_named_json(source):
            warn(f"{source.name} is read as JSON Lines, and {column!r} as the column of its texts")
        return [_find_text(record, column, where) for record, where in _parse(source)]
    lines = list(_read_lines(source))
    if column != TEXT:
        return read_column(lines, source.name, column)
    return drop_labels(lines, labels, source.name) or lines


def read_text_batches(file: str | Path, *, column: str = TEXT, labels: Collection[str] = ()) -> Iterator[list[str]]:
    """Read unlabelled texts in batches: a file as one batch, standard input as it becomes available.

    The format of standard input (JSON Lines, a table with labels) is detected from its first lines.
    """
    if str(file) != "-" or column != TEXT:
        yield read_texts(file, column=column, labels=labels)
        return
    corpus = Corpus.of(file, reads_once=True, expects_lines=False, has_errors_option=False)
    is_json = is_table = None
    done = 0
    for lines in read_batches(corpus):
        if is_json is None and (first := next((line for line in lines if line.strip()), "")):
            is_json = _is_object(first)
            if is_json:
                warn(f"{corpus.name} is read as JSON Lines, and {column!r} as the column of its texts")
        if is_json:
            records = parse_records(lines, corpus.name, done)
            yield [_find_text(record, column, where) for record, where in records]
        else:
            texts = drop_labels(lines, labels, corpus.name) if is_table is not False else []
            is_table = bool(texts) if is_table is None and is_json is not None else is_table
            yield texts or lines
        done += len(lines)


def split(labelled: LabelledTexts, sizes: float | Sequence[float], seed: int = 0) -> tuple[LabelledTexts, ...]:
    """Split the examples at random, stratified by label.

    `sizes` are fractions that sum to 1, or numbers of examples whose sum may be smaller than the total; a single
    size gives two parts, that size and the rest. Each part keeps the order of the file. A part with s of the N
    examples gets about n s / N of the n examples of a label. A label with a single example goes to the part that
    contains the midpoint of the sequence, that is, to the first part if this takes more than half.
    """
    check_seed(seed)
    order = _interleave(labelled.labels, np.random.default_rng(seed))
    edges = [0, *itertools.accumulate(_count_examples(sizes, labelled))]
    parts = [sorted(order[first:last]) for first, last in itertools.pairwise(edges)]
    return tuple(
        LabelledTexts(
            tuple(labelled.texts[i] for i in part), tuple(labelled.labels[i] for i in part), labelled.name
        )
        for part in parts
    )


def _is_json_lines(file: TextFile) -> bool:
    """Whether a file has a JSON suffix, or its first line that is not blank is a JSON object."""
    if _is_named_json(file):
        return True
    return _is_object(next((line for line in _read_lines(file) if line.strip()), ""))


def _is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    return line.lstrip().startswith("{") and parse_object(line) is not None


def _is_named_json(file: TextFile) -> bool:
    return uncompressed_name(file).endswith((*JSON_LINES, ".json"))


def _read_lines(file: TextFile) -> Iterator[str]:
    return read_lines(file, Decoder(remedy=CONVERT))


def _read_records(file: TextFile, text: str, label: str) -> Iterator[tuple[str, str]]:
    for record, where in _parse(file):
        value = _find_text(record, text, where)
        if not value.strip():
            raise InputError(f"{where}: {text!r} is an empty text; correct or drop the record")
        yield _find_label(record, label, where), value


def _parse(file: TextFile) -> Iterator[tuple[dict[str, Any], str]]:
    return parse_records(_read_lines(file), file.name)


def _find(record: dict[str, Any], column: str, where: str) -> Any:
    if column not in record:
        near = difflib.get_close_matches(column, record, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of these: {', '.join(record) or '(none)'}"
        raise InputError(f"{where} has no column {column!r}; {hint}")
    return record[column]


def _find_text(record: dict[str, Any], column: str, where: str) -> str:
    return Decoder(remedy=CONVERT).check(check_text(_find(record, column, where), column, where), where)


def _find_label(record: dict[str, Any], column: str, where: str) -> str:
    value = _find(record, column, where)
    is_number = isinstance(value, int | float) and math.isfinite(value)  # bool is a subclass of int
    if not isinstance(value, str) and not is_number:
        shown = json.dumps(value)[:40]
        raise InputError(f"{where}: {column!r} is {shown}, not a label; give a text, a number, true or false")
    label = Decoder(remedy=CONVERT).check(value, where).strip() if isinstance(value, str) else json.dumps(value)
    if not label:
        raise InputError(f"{where}: {column!r} is an empty label; correct or drop the record")
    return label


def _interleave(labels: Sequence[str], rng: np.random.Generator) -> list[int]:
    """Order the examples so that every contiguous range has about the overall proportions of the labels.

    The k-th of a label's n examples, in random order, has the sort key (k + 1/2) / n; ties are broken at random.
    """
    groups: dict[str, list[int]] = {}
    for example in rng.permutation(len(labels)).tolist():
        groups.setdefault(labels[example], []).append(example)
    keyed = [((k + 0.5) / len(group), example) for group in groups.values() for k, example in enumerate(group)]
    return [keyed[i][1] for i in sorted(rng.permutation(len(keyed)).tolist(), key=lambda i: keyed[i][0])]


def _count_examples(sizes: float | Sequence[float], labelled: LabelledTexts) -> list[int]:
    """Return the number of examples in each part."""
    total = len(labelled)
    if isinstance(sizes, Sequence):
        shares = list(sizes)
    else:
        shares = [sizes, (total if isinstance(sizes, numbers.Integral) else 1) - sizes]
    if shares and all(isinstance(share, numbers.Integral) for share in shares):
        counts = [int(share) for share in shares]
        if min(counts) < 1 or sum(counts) > total:
            raise UsageError(f"{total} examples cannot be split into {counts}; choose 1 or more for each part")
        return counts
    if not shares or min(shares) <= 0 or not math.isclose(sum(shares), 1):
        raise UsageError(f"the sizes are {shares}; choose fractions above 0 that sum to 1, or whole numbers")
    edges = [round(total * share) for share in itertools.accumulate(shares)]
    counts = [last - first for first, last in itertools.pairwise([0, *edges])]
    if min(counts) < 1:
        raise InputError(f"{labelled.name} has {total} examples, too few for parts of {shares}; add examples")
    return counts
