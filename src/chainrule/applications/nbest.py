"""Lists of hypotheses for each utterance, and what was truly said: tables with a header, columns found by name.

Lives here: reading and checking them. Not here: the models' scores and the choice (rerank.py), the weights
(weights.py).
"""

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
"""What the columns are usually called; the first of these names that is there is taken."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns to read; None: the usual names, and for scores every other column of numbers."""

    utterance: str | None = None
    hypothesis: str | None = None
    text: str | None = None  # what the models read, where it is written otherwise than the hypothesis
    scores: tuple[str, ...] | None = None  # names, or beginnings of names


@dataclass(frozen=True, slots=True)
class NBest:
    """U utterances with R hypotheses in all, those of one utterance together and in their own order."""

    name: str
    utterances: tuple[str, ...]  # (U,) their ids
    starts: Ids  # (U + 1,) utterance u has the rows starts[u] to starts[u + 1]
    hypotheses: tuple[str, ...]  # (R,) what is chosen, and compared with the reference
    texts: tuple[str, ...]  # (R,) what the models read
    scores: dict[str, Floats]  # (R,) by column
    head: tuple[str, str]  # what the columns of utterances and hypotheses are called

    @property
    def words(self) -> Ids:
        """(R,) how many words each hypothesis has."""
        return np.array([len(hypothesis.split()) for hypothesis in self.hypotheses])


@dataclass(frozen=True, slots=True)
class Table:
    """A file of cells parted by tabs."""

    name: str
    head: list[str]
    rows: list[list[str]]
    lines: list[int]  # where each row stands, from 1

    def find(self, wanted: str | None, usual: Sequence[str], what: str) -> int:
        """The place of a column by its name, or by one of the usual ones."""
        for name in usual if wanted is None else (wanted,):
            if name in self.head:
                return self.head.index(name)
        columns = ", ".join(self.head)
        if wanted is not None:
            raise ConfigError(f"{self.name} has no column '{wanted}' for the {what}; its columns are {columns}")
        raise InputError(
            f"{self.name}, line 1 names no column for the {what} ({', '.join(usual)}) but {columns}; "
            "give it such a header, or name the column"
        )

    def column(self, place: int) -> list[str]:
        """The cells of one column."""
        return [row[place] for row in self.rows]

    def numbers(self, place: int) -> Floats:
        """The cells of one column as numbers; all must be finite ones."""
        values = np.empty(len(self.rows))
        for i, row in enumerate(self.rows):
            value = _number(row[place])
            if value is None:
                raise InputError(
                    f"{self.name}, line {self.lines[i]}: {self.head[place]} is {row[place]!r}; "
                    "a score is a finite number: mend the cell, or name the scores to use (--scores)"
                )
            values[i] = value
        return values


def read_nbest(source: str | Path, columns: Columns | None = None) -> NBest:
    """The lists of a file (`-` is standard input); a column called rank gives the order, else it is the file's."""
    columns = Columns() if columns is None else columns
    table = read_table(source)
    utterance = table.find(columns.utterance, UTTERANCE, "utterance")
    hypothesis = table.find(columns.hypothesis, HYPOTHESIS, "hypothesis")
    text = hypothesis if columns.text is None else table.find(columns.text, (), "text")
    scores = _score_columns(table, columns.scores, {utterance, hypothesis, text})
    ids = _utterances(table, utterance)
    known = {id_: u for u, id_ in enumerate(dict.fromkeys(ids))}
    owner = np.array([known[id_] for id_ in ids])
    rank = table.numbers(table.head.index(RANK)) if RANK in table.head else np.zeros(len(ids))
    order = np.lexsort((rank, owner))  # stable: rows of the same rank as they stand
    hypotheses, texts = table.column(hypothesis), table.column(text)
    return NBest(
        name=table.name,
        utterances=tuple(known),
        starts=np.concatenate([[0], np.cumsum(np.bincount(owner))]),
        hypotheses=tuple(hypotheses[row] for row in order),
        texts=tuple(texts[row] for row in order),
        scores={table.head[place]: table.numbers(place)[order] for place in scores},
        head=(table.head[utterance], table.head[hypothesis]),
    )


def read_references(source: str | Path) -> dict[str, str]:
    """What was said, by utterance: a table with a header."""
    table = read_table(source)
    ids = _utterances(table, table.find(None, UTTERANCE, "utterance"))
    texts = table.column(table.find(None, REFERENCE, "reference"))
    found: dict[str, str] = {}
    for line, id_, text in zip(table.lines, ids, texts, strict=True):
        if id_ in found:
            raise InputError(f"{table.name}, line {line}: a second reference of {id_}; keep one")
        found[id_] = text
    return found


def read_table(source: str | Path) -> Table:
    """A file of cells parted by tabs, the first line their names; blank lines are passed over."""
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
                "part them by single tabs"
            )
        else:
            rows.append(cells)
            lines.append(number)
    if not rows:
        raise InputError(f"{corpus.name} holds no rows; give a header and at least one line below it")
    return Table(corpus.name, head, rows, lines)


def _check_head(head: list[str], where: str) -> None:
    twice = sorted({name for name in head if head.count(name) > 1})
    if twice:
        raise InputError(f"{where} names '{twice[0]}' twice; call the columns by names of their own")
    if len(head) < 2:
        raise InputError(f"{where} holds one column, {head[0][:40]!r}; part columns by tabs, and name them there")


def _utterances(table: Table, place: int) -> list[str]:
    ids = table.column(place)
    for line, id_ in zip(table.lines, ids, strict=True):
        if not id_:
            raise InputError(f"{table.name}, line {line} has no utterance id; write one")
    return ids


def _score_columns(table: Table, wanted: tuple[str, ...] | None, taken: set[int]) -> list[int]:
    """The places of the scores."""
    if wanted is not None:
        places = [_by_beginning(table, name) for name in wanted]
        for place in places:
            if places.count(place) > 1:
                raise ConfigError(f"scores name the column '{table.head[place]}' twice; name it once")
        return places
    others = [place for place, name in enumerate(table.head) if place not in taken and name != RANK]
    return [place for place in others if _is_mostly_numbers(table.column(place))]


def _is_mostly_numbers(cells: list[str]) -> bool:
    """Whether at least half of the cells are numbers, be they finite or not; the others are then mistakes."""
    return 2 * sum(_float(cell) is not None for cell in cells) >= len(cells)


def _by_beginning(table: Table, wanted: str) -> int:
    """The column of this name, or the only one whose name begins so."""
    if wanted in table.head:
        return table.head.index(wanted)
    found = [place for place, name in enumerate(table.head) if wanted and name.startswith(wanted)]
    if len(found) != 1:
        what = "no column" if not found else "several columns"
        raise ConfigError(
            f"{table.name} has {what} of the name '{wanted}' for a score; its columns are {', '.join(table.head)}"
        )
    return found[0]


def _number(cell: str) -> float | None:
    """A finite number; None: it is none."""
    value = _float(cell)
    return value if value is not None and math.isfinite(value) else None


def _float(cell: str) -> float | None:
    """A number, NaN and infinity among them; None: it is none."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
