"""Evaluate word vectors on analogy questions in the format of Google's `questions-words.txt`."""

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

MAX_BATCH_BYTES: Final = 1 << 26  # memory of one batch of questions
EPSILON: Final = 0.001  # of 3CosMul, the authors' value

Question = tuple[str, str, str, str]

RowLookup = Callable[[str], int | None]
"""Returns the row of a word in the matrix of vectors, or None."""


@dataclass(frozen=True, slots=True)
class Section:
    """Named group of questions."""

    name: str
    questions: tuple[Question, ...]

    @property
    def is_syntactic(self) -> bool:
        """Whether the questions are about word forms (sections named `gram…`) rather than meaning."""
        return self.name.startswith("gram")


@dataclass(frozen=True, slots=True)
class SectionResult:
    """Analogy results of one section."""

    section: str
    correct: int
    attempted: int  # questions whose four words all have a vector
    total: int

    @property
    def accuracy(self) -> float:
        """Fraction of attempted questions answered correctly; NaN if none was attempted."""
        return self.correct / self.attempted if self.attempted else math.nan


def read_questions(file: str | Path) -> list[Section]:
    """Read the sections of a file: `: name` starts a section, each line of four words is a question."""
    corpus = Corpus.of(file, expects_lines=False)
    if len(corpus.files) != 1:
        raise UsageError(f"{file} stands for {len(corpus.files)} files; name one file of questions")
    groups: list[tuple[str, list[Question]]] = []
    for number, line in enumerate(read_lines(corpus), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if line.startswith(":"):
            groups.append((line[1:].strip(), []))
            continue
        if len(words) != 4:
            what = f"{len(words)} words; a question has four, and a section begins with ': name'"
            raise InputError(f"{corpus.name}, line {number}: {what}")
        if not groups:
            groups.append(("questions", []))
        groups[-1][1].append((words[0], words[1], words[2], words[3]))
    sections = [Section(name, tuple(questions)) for name, questions in groups if questions]
    if not sections:
        raise InputError(
            f"{corpus.name} holds no questions; give lines of four words, such as 'man king woman queen'"
        )
    return sections


def solve(
    row: RowLookup,
    unit: Floats,
    sections: Sequence[Section],
    method: Literal["add", "mul"] = "add",
    progress: Progress | bool = silent,
) -> list[SectionResult]:
    """Answer every question whose words are all known.

    `row` maps a word to its row in `unit` (V, D), the vectors normalised to length 1. The answer is the word other
    than a, b and c with the highest score; a tie counts as wrong.
    `add`: cos(x, b) − cos(x, a) + cos(x, c)  (3CosAdd, Mikolov et al. 2013).
    `mul`: cos(x, b)·cos(x, c) / (cos(x, a) + ε), cosines mapped to [0, 1]  (3CosMul, Levy & Goldberg 2014).
    """
    progress = as_progress(progress)
    if method not in ("add", "mul"):
        raise UsageError(f"method is '{method}'; choose add or mul")
    total = sum(len(section.questions) for section in sections)
    results: list[SectionResult] = []
    done = 0
    for section in sections:
        rows = [[row(word) for word in question] for question in section.questions]
        known = [question for question in rows if None not in question]
        attempted = np.array(known, dtype=np.int64).reshape(-1, 4)  # (n, 4)
        correct = 0
        for batch in _batches(attempted, unit):
            progress("analogies", done, total)
            correct += int(is_correct(unit, batch, method).sum())
        done += len(rows)
        results.append(SectionResult(section.name, correct, len(attempted), len(rows)))
    return results


def merge_results(name: str, parts: Sequence[SectionResult]) -> SectionResult:
    """Sum the results of several sections."""
    correct, attempted = sum(part.correct for part in parts), sum(part.attempted for part in parts)
    return SectionResult(name, correct, attempted, sum(part.total for part in parts))


def summarize(sections: Sequence[Section], solved: Sequence[SectionResult]) -> dict[str, SectionResult]:
    """Return the results of "semantic", "syntactic" and "all" questions."""
    halves = {
        name: [part for section, part in zip(sections, solved, strict=True) if section.is_syntactic == is_syntactic]
        for name, is_syntactic in (("semantic", False), ("syntactic", True))
    }
    return {name: merge_results(name, parts) for name, parts in halves.items()} | {
        "all": merge_results("all", solved)
    }


def _batches(rows: Ids, unit: Floats) -> Iterator[Ids]:
    """Yield batches of questions whose scores (two rows of V), four vectors and four ids fit in MAX_BATCH_BYTES."""
    vocab_size, width = unit.shape
    size = max(1, MAX_BATCH_BYTES // (unit.itemsize * (2 * vocab_size + 4 * width) + 8 * 4))
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def is_correct(unit: Floats, rows: Ids, method: Literal["add", "mul"] = "add") -> Mask:
    """Return which questions, given as (n, 4) rows of `unit`, are answered correctly, (n,)."""
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
    expected_score = scores[n, d]
    for word in (a, b, c, d):
        scores[n, word] = -np.inf
    is_excluded = (d == a) | (d == b) | (d == c)
    return np.asarray((expected_score > scores.max(axis=1)) & ~is_excluded)


def _shifted(unit: Floats, rows: Ids) -> Floats:
    """Return the cosines with these words, (n, V), mapped from [−1, 1] to [0, 1]."""
    cosines = unit[rows] @ unit.T
    cosines += 1
    cosines /= 2
    return np.asarray(cosines)
