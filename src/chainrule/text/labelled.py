"""Texts with a label each: tables, JSON Lines, and lines that begin with their label.

Lives here: telling the forms apart, finding label and text in a record, dealing the examples into parts.
Not here: label and text of a line (tables.py), bytes and lines (utf8.py, lines.py), pairs of texts (pairs.py), what
a classifier makes of the labels.
"""

import difflib
import itertools
import json
import math
import numbers
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.text.compression import SUFFIXES, read_blocks
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.files import TextFile, find_files
from chainrule.text.lines import cut_lines, join_lines
from chainrule.text.tables import FORMS, LABEL, TEXT, drop_labels, part_lines, read_column, warn
from chainrule.text.utf8 import CONVERT, OPTION, Decoder


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts and the label of each, in the order of the file."""

    texts: Sequence[str]
    labels: Sequence[str]
    name: str = "the texts given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", as_texts(self.texts, "text", f"{self.name}: "))
        object.__setattr__(self, "labels", as_texts(self.labels, "label", f"{self.name}: "))
        texts, labels = len(self.texts), len(self.labels)
        if texts != labels:
            raise InputError(f"{self.name}: there are {texts} texts but {labels} labels; give one label a text")

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.texts)


def as_texts(given: Iterable[str], what: str = "text", where: str = "") -> tuple[str, ...]:
    """The same as a tuple; what is no list of texts is refused, and called `what` then."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{where}{given!r:.40} is no list of {what}s; give a list of str, such as [{what}]")
    found = tuple(given)
    for place, one in enumerate(found, start=1):
        if not isinstance(one, str):
            raise InputError(f"{where}{what} {place} is {one!r:.40}, not a str; mend or drop it")
    return found


def read_labelled(file: str | Path, *, column: str = TEXT, label: str = LABEL) -> Labelled:
    """The examples of one file: `label<TAB>text`, JSON Lines, or `label<SPACE>text`.

    In a table the first tab parts label and text; tabs at the end of a line are empty columns and no part of the
    text. JSON Lines go by their name (.jsonl, .ndjson, .json) or by a first line that is a JSON object; there
    `column` names the text and `label` the label, and a label that is a number or a truth value is written as JSON
    writes it. So they do in a table whose first line holds both names; a file without such a line is refused where
    they are not the usual ones. White space around a label does not count. Another first line that looks like a
    header is warned of.
    """
    source = _find_file(file)
    if _is_json_lines(source):
        examples = list(_read_records(source, column, label))
    else:
        examples = part_lines(list(_read_lines(source)), source.name, column, label)
    if not examples:
        raise InputError(f"{source.name} holds no examples; give a file with at least one, as {FORMS}")
    labels, texts = zip(*examples, strict=True)
    return Labelled(texts, labels, source.name.encode(errors="replace").decode())


def read_texts(file: str | Path, *, column: str = TEXT, labels: Collection[str] = ()) -> list[str]:
    """Texts without labels: the lines of a plain text, empty ones too, or a column of JSON Lines.

    A `column` other than `text` is also found in a table whose first line holds that name, and refused elsewhere.
    A table whose first or last column holds `labels` is read as its other columns, with a warning.
    """
    source = _find_file(file)
    if _is_json_lines(source):
        if not _is_named_json(source):
            warn(f"{source.name} is read as JSON Lines, and {column!r} as the column of its texts")
        return [_find_text(record, column, where) for record, where in _parse(source)]
    lines = list(_read_lines(source))
    if column != TEXT:
        return read_column(lines, source.name, column)
    return drop_labels(lines, labels, source.name) or lines


def read_text_batches(file: str | Path, *, column: str = TEXT, labels: Collection[str] = ()) -> Iterator[list[str]]:
    """The same in lists: all texts of a file at once, those of standard input as they come.

    What standard input is (JSON Lines, a table with labels) is told by the lines that come first.
    """
    if str(file) != "-" or column != TEXT:
        yield read_texts(file, column=column, labels=labels)
        return
    corpus = Corpus.of(file, reads_once=True, expects_lines=False)
    is_json = is_table = None
    done = 0
    try:
        for lines in read_batches(corpus):
            if is_json is None and (first := next((line for line in lines if line.strip()), "")):
                is_json = _is_object(first)
                if is_json:
                    warn(f"{corpus.name} is read as JSON Lines, and {column!r} as the column of its texts")
            if is_json:
                records = _parse_lines(lines, corpus.name, done)
                yield [_find_text(record, column, where) for record, where in records]
            else:
                texts = drop_labels(lines, labels, corpus.name) if is_table is not False else []
                is_table = bool(texts) if is_table is None and is_json is not None else is_table
                yield texts or lines
            done += len(lines)
    except InputError as error:  # without the option that other commands have
        raise InputError(str(error).removesuffix(OPTION)) from error


def split(labelled: Labelled, sizes: float | Sequence[float], seed: int = 0) -> tuple[Labelled, ...]:
    """Deal the examples at random, every label in about the same proportion in all parts.

    `sizes` are fractions that sum to 1, or whole numbers of examples, of which some may be left over; a single
    one makes two parts, that and the rest. Each part keeps the order of the file. Of a label with n of
    N examples and a part of s, about n s / N go there; a label with one example goes to the part in the middle of
    the row, which is the first wherever that takes more than half.
    """
    if seed < 0:
        raise UsageError(f"seed is {seed}; choose 0 or more")
    row = _interleave(labelled.labels, np.random.default_rng(seed))
    edges = [0, *itertools.accumulate(_count_examples(sizes, labelled))]
    parts = [sorted(row[first:last]) for first, last in itertools.pairwise(edges)]
    return tuple(
        Labelled(tuple(labelled.texts[i] for i in part), tuple(labelled.labels[i] for i in part), labelled.name)
        for part in parts
    )


def _find_file(file: str | Path) -> TextFile:
    found = find_files(file)
    if len(found) != 1:
        raise UsageError(f"{file} stands for {len(found)} files; name one file, so that lines have numbers")
    return found[0]


def _is_json_lines(file: TextFile) -> bool:
    """Whether it is called so, or its first line that is not blank is a JSON object."""
    if _is_named_json(file):
        return True
    return _is_object(next((line for line in _read_lines(file) if line.strip()), ""))


def _is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_named_json(file: TextFile) -> bool:
    name = file.path.name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith((".jsonl", ".ndjson", ".json"))


def _read_lines(file: TextFile) -> Iterator[str]:
    return join_lines(cut_lines(Decoder(remedy=CONVERT).decode_blocks(read_blocks(file), file.name)))


def _read_records(file: TextFile, text: str, label: str) -> Iterator[tuple[str, str]]:
    for record, where in _parse(file):
        found = _find_text(record, text, where)
        if not found.strip():
            raise InputError(f"{where}: {text!r} is an empty text; mend or drop the record")
        yield _find_label(record, label, where), found


def _parse(file: TextFile) -> Iterator[tuple[dict[str, Any], str]]:
    """The records of JSON Lines and where each stands; blank lines are passed over."""
    return _parse_lines(_read_lines(file), file.name)


def _parse_lines(lines: Iterable[str], name: str, done: int = 0) -> Iterator[tuple[dict[str, Any], str]]:
    """The same of lines before which the file called `name` has `done` others."""
    for number, line in enumerate(lines, start=done + 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON ({error}); each line must be one JSON object") from None
        if not isinstance(record, dict):
            raise InputError(f"{where} is not a JSON object; each line must be one")
        yield record, where


def _find(record: dict[str, Any], column: str, where: str) -> Any:
    if column not in record:
        near = difflib.get_close_matches(column, record, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"name one of these: {', '.join(record) or '(none)'}"
        raise InputError(f"{where} has no column {column!r}; {hint}")
    return record[column]


def _find_text(record: dict[str, Any], column: str, where: str) -> str:
    text = _find(record, column, where)
    if not isinstance(text, str):
        raise InputError(f"{where}: {column!r} is {json.dumps(text)[:40]}, not a text; mend or drop the record")
    return Decoder(remedy=CONVERT).check(text, where)


def _find_label(record: dict[str, Any], column: str, where: str) -> str:
    value = _find(record, column, where)
    is_number = isinstance(value, int | float) and math.isfinite(value)  # a truth value is an int, too
    if not isinstance(value, str) and not is_number:
        shown = json.dumps(value)[:40]
        raise InputError(f"{where}: {column!r} is {shown}, not a label; give a text, a number, true or false")
    label = Decoder(remedy=CONVERT).check(value, where).strip() if isinstance(value, str) else json.dumps(value)
    if not label:
        raise InputError(f"{where}: {column!r} is an empty label; mend or drop the record")
    return label


def _interleave(labels: Sequence[str], rng: np.random.Generator) -> list[int]:
    """All examples in one row in which every stretch holds the labels in about their proportion.

    The k-th of a label's n examples, in random order, stands at (k + 1/2) / n; equals in random order.
    """
    groups: dict[str, list[int]] = {}
    for example in rng.permutation(len(labels)).tolist():
        groups.setdefault(labels[example], []).append(example)
    places = [((k + 0.5) / len(group), example) for group in groups.values() for k, example in enumerate(group)]
    return [places[i][1] for i in sorted(rng.permutation(len(places)).tolist(), key=lambda i: places[i][0])]


def _count_examples(sizes: float | Sequence[float], labelled: Labelled) -> list[int]:
    """How many examples each part takes."""
    total = len(labelled)
    if isinstance(sizes, Sequence):
        shares = list(sizes)
    else:
        shares = [sizes, (total if isinstance(sizes, numbers.Integral) else 1) - sizes]
    if shares and all(isinstance(share, numbers.Integral) for share in shares):
        counts = [int(share) for share in shares]
        if min(counts) < 1 or sum(counts) > total:
            raise UsageError(f"{total} examples cannot be parted as {counts}; choose 1 or more for each part")
        return counts
    if not shares or min(shares) <= 0 or not math.isclose(sum(shares), 1):
        raise UsageError(f"the sizes are {shares}; choose fractions above 0 that sum to 1, or whole numbers")
    edges = [round(total * share) for share in itertools.accumulate(shares)]
    counts = [last - first for first, last in itertools.pairwise([0, *edges])]
    if min(counts) < 1:
        raise InputError(f"{labelled.name} has {total} examples, too few for parts of {shares}; add examples")
    return counts
