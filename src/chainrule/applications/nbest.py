"""Read n-best lists and reference transcripts: tab-separated tables with a header."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chainrule.errors import ConfigError, InputError
from chainrule.lm import Floats, Ids
from chainrule.text.corpus import Corpus

UTTERANCE: Final = ("utt", "utterance", "utterance_id", "utt_id", "id", "key", "segment")
HYPOTHESIS: Final = ("hypothesis", "hyp", "candidate", "text", "sentence", "transcript")
REFERENCE: Final = ("reference", "ref", "truth", "text", "sentence", "transcript")
RANK: Final = "rank"
"""Default column names; the first one present is used."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns to read; None: the default names and, for scores, every other numeric column."""

    utterance: str | None = None
    hypothesis: str | None = None
    text: str | None = None  # text scored by the models, if it differs from the hypothesis
    scores: tuple[str, ...] | None = None  # names or unique prefixes of names


@dataclass(frozen=True, slots=True)
class NBest:
    """R hypotheses of U utterances, grouped by utterance and sorted by rank."""

    name: str
    utterances: tuple[str, ...]  # (U,) ids
    starts: Ids  # (U + 1,) utterance u has rows starts[u] to starts[u + 1] − 1
    hypotheses: tuple[str, ...]  # (R,) compared with the reference
    texts: tuple[str, ...]  # (R,) scored by the models
    scores: dict[str, Floats]  # (R,) by column
    head: tuple[str, str]  # names of the utterance and hypothesis columns

    @property
    def words(self) -> Ids:
        """(R,) number of words of each hypothesis."""
        return np.array([len(hypothesis.split()) for hypothesis in self.hypotheses])


@dataclass(frozen=True, slots=True)
class Table:
    """A tab-separated table with a header."""

    name: str
    head: list[str]
    rows: list[list[str]]
    lines: list[int]  # line number of each row, from 1

    def find(self, requested: str | None, defaults: Sequence[str], role: str) -> int:
        """Index of a column by its name, or by the first default name present."""
        for name in defaults if requested is None else (requested,):
            if name in self.head:
                return self.head.index(name)
        columns = ", ".join(self.head)
        if requested is not None:
            raise ConfigError(f"{self.name} has no column '{requested}' for the {role}; its columns are {columns}")
        raise InputError(
            f"{self.name}, line 1: no column for the {role} (expected {', '.join(defaults)}, found {columns}); "
            "rename a column, or specify the column"
        )

    def column(self, index: int) -> list[str]:
        """Cells of one column."""
        return [row[index] for row in self.rows]

    def numbers(self, index: int) -> Floats:
        """Cells of one column as finite numbers."""
        values = np.empty(len(self.rows))
        for i, row in enumerate(self.rows):
            value = _number(row[index])
            if value is None:
                raise InputError(
                    f"{self.name}, line {self.lines[i]}: {self.head[index]} is {row[index]!r}; "
                    "a score is a finite number: correct the cell, or specify the scores to use (--scores)"
                )
            values[i] = value
        return values


def read_nbest(source: str | Path, columns: Columns | None = None) -> NBest:
    """Read n-best lists from a file (`-`: stdin), ordered by the `rank` column or by position in the file."""
    columns = Columns() if columns is None else columns
    table = read_table(source)
    utterance = table.find(columns.utterance, UTTERANCE, "utterance")
    hypothesis = table.find(columns.hypothesis, HYPOTHESIS, "hypothesis")
    text = hypothesis if columns.text is None else table.find(columns.text, (), "text")
    scores = _score_columns(table, columns.scores, {utterance, hypothesis, text})
    ids = _utterances(table, utterance)
    utterance_index = {id_: u for u, id_ in enumerate(dict.fromkeys(ids))}
    owner = np.array([utterance_index[id_] for id_ in ids])
    rank = table.numbers(table.head.index(RANK)) if RANK in table.head else np.zeros(len(ids))
    order = np.lexsort((rank, owner))  # stable: rows of equal rank keep their order
    hypotheses, texts = table.column(hypothesis), table.column(text)
    return NBest(
        name=table.name,
        utterances=tuple(utterance_index),
        starts=np.concatenate([[0], np.cumsum(np.bincount(owner))]),
        hypotheses=tuple(hypotheses[row] for row in order),
        texts=tuple(texts[row] for row in order),
        scores={table.head[index]: table.numbers(index)[order] for index in scores},
        head=(table.head[utterance], table.head[hypothesis]),
    )


def read_references(source: str | Path) -> dict[str, str]:
    """Read reference transcripts by utterance id."""
    table = read_table(source)
    ids = _utterances(table, table.find(None, UTTERANCE, "utterance"))
    texts = table.column(table.find(None, REFERENCE, "reference"))
    references: dict[str, str] = {}
    for line, id_, text in zip(table.lines, ids, texts, strict=True):
        if id_ in references:
            raise InputError(f"{table.name}, line {line}: a second reference of {id_}; keep one")
        references[id_] = text
    return references


def read_table(source: str | Path) -> Table:
    """Read a tab-separated table with a header; blank lines are skipped."""
    corpus = Corpus.of(source, expects_lines=False)
    head: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    for number, line in enumerate(corpus, start=1):
        if not line.strip():
            continue
        cells = [cell.strip(" ") for cell in line.split("\t")]
        if not head:
            head = cells
            _check_head(head, f"{corpus.name}, line {number}")
        elif len(cells) != len(head):
            raise InputError(
                f"{corpus.name}, line {number} has {len(cells)} cells but the header has {len(head)}; "
                "separate them by single tabs"
            )
        else:
            rows.append(cells)
            lines.append(number)
    if not rows:
        raise InputError(f"{corpus.name} contains no rows; give a header and at least one line below it")
    return Table(corpus.name, head, rows, lines)


def _check_head(head: list[str], where: str) -> None:
    twice = sorted({name for name in head if head.count(name) > 1})
    if twice:
        raise InputError(f"{where} contains '{twice[0]}' twice; give each column a unique name")
    if len(head) < 2:
        raise InputError(f"{where} contains one column, {head[0][:40]!r}; separate the column names by tabs")


def _utterances(table: Table, index: int) -> list[str]:
    ids = table.column(index)
    for line, id_ in zip(table.lines, ids, strict=True):
        if not id_:
            raise InputError(f"{table.name}, line {line} has no utterance id; write one")
    return ids


def _score_columns(table: Table, requested: tuple[str, ...] | None, excluded: set[int]) -> list[int]:
    """Indices of the score columns."""
    if requested is not None:
        indices = [_find_by_prefix(table, name) for name in requested]
        for index in indices:
            if indices.count(index) > 1:
                raise ConfigError(f"scores contains the column '{table.head[index]}' twice; give it once")
        return indices
    others = [index for index, name in enumerate(table.head) if index not in excluded and name != RANK]
    return [index for index in others if _is_mostly_numbers(table.column(index))]


def _is_mostly_numbers(cells: list[str]) -> bool:
    """Whether at least half of the cells are numbers; the rest are then reported as errors."""
    return 2 * sum(_float(cell) is not None for cell in cells) >= len(cells)


def _find_by_prefix(table: Table, prefix: str) -> int:
    """Index of the column with this name or unique prefix."""
    if prefix in table.head:
        return table.head.index(prefix)
    matches = [index for index, name in enumerate(table.head) if prefix and name.startswith(prefix)]
    if len(matches) != 1:
        problem = "no column" if not matches else "several columns"
        raise ConfigError(
            f"{table.name} has {problem} of the name '{prefix}' for a score; "
            f"its columns are {', '.join(table.head)}"
        )
    return matches[0]


def _number(cell: str) -> float | None:
    """Parse a finite number; None if it is not one."""
    value = _float(cell)
    return value if value is not None and math.isfinite(value) else None


def _float(cell: str) -> float | None:
    """Parse a number, including NaN and infinity; None if it is not one."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
