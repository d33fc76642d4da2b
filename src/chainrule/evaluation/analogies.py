"""Analogies: a is to b as c is to what? Questions in the form of Google's `questions-words.txt`.

Lives here: reading the questions and answering all of them by matrix products, in bounded memory.
Not here: the vectors, of which a look-up and rows are asked; one question at a time (embeddings/vectors.py).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.similarity import read_lines
from chainrule.lm import Floats, Ids, Mask
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus

BYTES: Final = 1 << 26  # of what is computed for questions at a time; one question's own where that is more
EPSILON: Final = 0.001  # of 3CosMul, as its authors chose it

Question = tuple[str, str, str, str]

Row = Callable[[str], int | None]
"""The row of a word in the matrix of vectors, None where it has none."""


@dataclass(frozen=True, slots=True)
class Section:
    """Questions of one kind."""

    name: str
    questions: tuple[Question, ...]

    @property
    def is_syntactic(self) -> bool:
        """Whether they ask about forms of words, as the sections named `gram…` do, and not about the world."""
        return self.name.startswith("gram")


@dataclass(frozen=True, slots=True)
class Solved:
    """How many questions of a section were answered rightly."""

    section: str
    right: int
    asked: int  # questions all of whose words have a vector
    of: int

    @property
    def accuracy(self) -> float:
        """Which part of the questions asked was answered rightly; NaN where none was."""
        return self.right / self.asked if self.asked else math.nan


def read_questions(file: str | Path) -> list[Section]:
    """The sections of a file: `: name` begins one, four words a line are a question of it."""
    corpus = Corpus.of(file, expects_lines=False)
    if len(corpus.files) != 1:
        raise UsageError(f"{file} stands for {len(corpus.files)} files; name one file of questions")
    found: list[tuple[str, list[Question]]] = []
    for number, line in enumerate(read_lines(corpus), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if line.startswith(":"):
            found.append((line[1:].strip(), []))
            continue
        if len(words) != 4:
            what = f"{len(words)} words; a question has four, and a section begins with ': name'"
            raise InputError(f"{corpus.name}, line {number}: {what}")
        if not found:
            found.append(("questions", []))
        found[-1][1].append((words[0], words[1], words[2], words[3]))
    sections = [Section(name, tuple(questions)) for name, questions in found if questions]
    if not sections:
        raise InputError(
            f"{corpus.name} holds no questions; give lines of four words, such as 'man king woman queen'"
        )
    return sections


def solve(
    row: Row,
    unit: Floats,
    sections: Sequence[Section],
    method: Literal["add", "mul"] = "add",
    progress: Progress | bool = silent,
) -> list[Solved]:
    """Answer every question whose words are all known, with `unit` (V, D) the vectors at length 1.

    `row` is the look-up of the vectors: the number of a word, or None.
    The answer is the word other than the three with the highest score; where two words share it there is none.
    `add`: cos(x, b) − cos(x, a) + cos(x, c)  (3CosAdd, Mikolov et al. 2013).
    `mul`: cos(x, b)·cos(x, c) / (cos(x, a) + ε), cosines moved to [0, 1]  (3CosMul, Levy & Goldberg 2014).
    """
    progress = as_progress(progress)
    if method not in ("add", "mul"):
        raise UsageError(f"method is '{method}'; choose add or mul")
    total = sum(len(section.questions) for section in sections)
    solved: list[Solved] = []
    done = 0
    for section in sections:
        found = [[row(word) for word in question] for question in section.questions]
        known = [rows for rows in found if None not in rows]
        asked = np.array(known, dtype=np.int64).reshape(-1, 4)  # (n, 4)
        right = 0
        for batch in _batches(asked, unit):
            progress("analogies", done, total)
            right += int(is_right(unit, batch, method).sum())
        done += len(found)
        solved.append(Solved(section.name, right, len(asked), len(found)))
    return solved


def total(name: str, parts: Sequence[Solved]) -> Solved:
    """Several sections as one."""
    return Solved(
        name, sum(part.right for part in parts), sum(part.asked for part in parts), sum(part.of for part in parts)
    )


def summary(sections: Sequence[Section], solved: Sequence[Solved]) -> dict[str, Solved]:
    """All questions as "semantic", "syntactic" and "all"."""
    halves = {
        name: [part for section, part in zip(sections, solved, strict=True) if section.is_syntactic == is_syntactic]
        for name, is_syntactic in (("semantic", False), ("syntactic", True))
    }
    return {name: total(name, parts) for name, parts in halves.items()} | {"all": total("all", solved)}


def _batches(rows: Ids, unit: Floats) -> Iterator[Ids]:
    """So many questions at a time that their two rows of scores, four vectors and four numbers fit in BYTES."""
    vocab_size, width = unit.shape
    size = max(1, BYTES // (unit.itemsize * (2 * vocab_size + 4 * width) + 8 * 4))
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def is_right(unit: Floats, rows: Ids, method: Literal["add", "mul"] = "add") -> Mask:
    """(n,) which of these questions, (n, 4) rows of `unit`, are answered rightly; all at once."""
    a, b, c, d = rows.T
    if method == "add":
        scores = (unit[b] - unit[a] + unit[c]) @ unit.T  # (n, V)
    else:
        scores = _shifted(unit, b)
        scores *= _shifted(unit, c)
        divisor = _shifted(unit, a)
        divisor += EPSILON
        scores /= divisor
    n = np.arange(len(rows))
    reached = scores[n, d]
    for given in (a, b, c, d):
        scores[n, given] = -np.inf
    is_given = (d == a) | (d == b) | (d == c)
    return np.asarray((reached > scores.max(axis=1)) & ~is_given)


def _shifted(unit: Floats, rows: Ids) -> Floats:
    """(n, V) cosines with these words, moved from [−1, 1] to [0, 1]."""
    cosines = unit[rows] @ unit.T
    cosines += 1
    cosines /= 2
    return np.asarray(cosines)
