"""Evaluate word vectors on human similarity scores and on analogy questions (Google's `questions-words.txt`)."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chainrule.embeddings.vectors import EPSILON, AnalogyMethod, check_analogy_method
from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats, Ids, Mask
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import open_file

Lookup = Callable[[str], Floats | None]
"""Returns the vector (D,) of a word, or None."""
RowLookup = Callable[[str], int | None]
"""Returns the row of a word in the matrix of vectors, or None."""
Question = tuple[str, str, str, str]

MAX_CELL_LENGTH: Final = 1 << 17  # characters
NORMAL_97_5: Final = 1.959963984540054  # Φ⁻¹(0.975)
MAX_BATCH_BYTES: Final = 1 << 26  # memory of one batch of questions


@dataclass(frozen=True, slots=True)
class Pairs:
    """Word pairs with human similarity scores, on any increasing scale."""

    name: str
    firsts: tuple[str, ...]
    seconds: tuple[str, ...]
    scores: Floats  # (n,)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.firsts)

    def select(self, rows: list[int]) -> "Pairs":
        """Return the pairs of these rows, in this order."""
        firsts, seconds = (tuple(side[row] for row in rows) for side in (self.firsts, self.seconds))
        return Pairs(self.name, firsts, seconds, self.scores[rows])


@dataclass(frozen=True, slots=True)
class SimilarityResult:
    """Spearman's ρ with its 95 % confidence interval (NaN if undefined) and the number of pairs."""

    rho: float
    low: float
    high: float
    covered: int  # pairs whose words both have a vector
    total: int

    @property
    def coverage(self) -> float:
        """Fraction of the pairs that are covered."""
        return self.covered / self.total if self.total else 0.0


def read_pairs(file: str | Path) -> Pairs:
    """Read word pairs: two words and a score per line, separated by tabs, commas, semicolons or blanks.

    The score is in the third column, or in the first later column that contains a number (as in SimLex-999, where a
    part of speech precedes it); it is the same column in all lines. Lines that start with `#`, blank lines and a
    header line are skipped.
    """
    corpus = open_file(file, "give one file of pairs")
    lines = [
        _split_line(line, f"{corpus.name}, line {number}")
        for number, line in enumerate(corpus, start=1)
        if line.strip() and not line.startswith("#")
    ]
    data = lines[1:] if _is_header(lines) else lines
    column = _score_column(data[0]) if data else 2
    rows = [_parse(line, column) for line in data]
    if not rows:
        raise InputError(
            f"{corpus.name} contains no pairs; give lines of two words and a number, "
            "such as 'cat<TAB>tiger<TAB>7.35'"
        )
    firsts, seconds, scores = zip(*rows, strict=True)
    return Pairs(corpus.name, firsts, seconds, np.array(scores))


@dataclass(frozen=True, slots=True)
class _Line:
    """Columns of a line, at least three."""

    where: str
    fields: list[str]

    @property
    def first_number(self) -> int | None:
        """Index of the first column after the two words that contains a number."""
        return next((i for i, field in enumerate(self.fields) if i > 1 and _number(field) is not None), None)


def _split_line(line: str, where: str) -> _Line:
    """Split a line into unquoted columns."""
    separator = "\t" if "\t" in line else max(",;", key=line.count)
    if separator == "\t":
        fields = line.strip().split(separator)
    elif separator not in line:
        fields = line.split()
    else:
        csv.field_size_limit(MAX_CELL_LENGTH)  # a process-wide setting
        try:
            fields = next(csv.reader([line.strip()], delimiter=separator, skipinitialspace=True))
        except csv.Error as error:
            raise InputError(f"{where} is not a valid table row ({error}); correct or remove it") from None
    fields = [field.strip() for field in fields]
    if len(fields) < 3:
        what = "expected two words and a number, separated by tabs, commas, semicolons or blanks"
        raise InputError(f"{where}: {len(fields)} column{'' if len(fields) == 1 else 's'}; {what}")
    return _Line(where, fields)


def _is_header(lines: list[_Line]) -> bool:
    """Return whether the first line is a header: it has no number, or none in the second line's score column."""
    if not lines:
        return False
    number = lines[0].first_number
    return number is None or (number > 2 and len(lines) > 1 and lines[1].first_number == 2)


def _score_column(line: _Line) -> int:
    """Return the score column, determined from the first data line."""
    column = line.first_number or 2
    if column > 2 and _number(line.fields[0]) is not None:
        what = f"the line begins with the number {line.fields[0]}, but two words must come first"
        raise InputError(f"{line.where}: {what}; drop the column of numbers")
    return column


def _parse(line: _Line, column: int) -> tuple[str, str, float]:
    """Parse a line into a word pair and its score, which is in the column with index `column`."""
    first, second, *_ = line.fields
    if not first or not second:
        raise InputError(f"{line.where}: a word is empty; expected two words and a number")
    field = line.fields[column] if column < len(line.fields) else line.fields[2]
    score = _number(field)
    if score is None:
        raise InputError(f"{line.where}: {field!r} is not a number; expected two words and their similarity")
    if not math.isfinite(score):
        raise InputError(f"{line.where}: {score} is not finite; correct or remove the line")
    return first, second, score


def _number(field: str) -> float | None:
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None


def evaluate_similarity(lookup: Lookup, pairs: Pairs) -> SimilarityResult:
    """Correlate the cosines of word vectors with the scores; pairs with an unknown word are skipped.

    The cosine of a word with itself is 1, even for a zero vector.
    """
    cosines: list[float] = []
    known: list[int] = []
    for row, (first, second) in enumerate(zip(pairs.firsts, pairs.seconds, strict=True)):
        u, v = lookup(first), lookup(second)
        if u is not None and v is not None:
            cosines.append(1.0 if first == second else _cosine(u, v))
            known.append(row)
    rho = spearman(np.array(cosines), pairs.scores[known])
    return SimilarityResult(rho, *confidence_interval(rho, len(known)), len(known), len(pairs))


def rarest_third(pairs: Pairs, count: Callable[[str], int | None]) -> Pairs:
    """Return the third of the pairs whose rarer word is least frequent in the training text.

    Pairs with a word without a count (None) are removed first.
    """
    counted: list[tuple[int, int]] = []
    for row, words in enumerate(zip(pairs.firsts, pairs.seconds, strict=True)):
        counts = [n for word in words if (n := count(word)) is not None]
        if len(counts) == 2:
            counted.append((min(counts), row))
    lowest = sorted(counted)[: math.ceil(len(counted) / 3)]
    return pairs.select(sorted(row for _, row in lowest))


def spearman(a: Floats, b: Floats) -> float:
    """Return Spearman's rank correlation, with mean ranks for ties; NaN if a side is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    if len(a) != len(b):
        raise UsageError(
            f"there are {len(a)} and {len(b)} values; a rank correlation needs the same number of both"
        )
    if len(a) < 2:
        return math.nan
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


def confidence_interval(r: float, n: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of Spearman's ρ of n pairs (Bonett & Wright 2000).

    Fisher's z with standard error √((1 + r²/2)/(n − 3)). NaN if r is NaN, if n ≤ 3, or if |r| = 1, where z is
    infinite.
    """
    if math.isnan(r) or n <= 3 or abs(r) >= 1:
        return math.nan, math.nan
    margin = NORMAL_97_5 * math.sqrt((1 + r * r / 2) / (n - 3))
    return math.tanh(math.atanh(r) - margin), math.tanh(math.atanh(r) + margin)


def _ranks(values: Floats) -> Floats:
    """Return ranks from 1, (n,), with mean ranks for ties."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # highest rank of each distinct value
    return np.asarray((last - (counts - 1) / 2)[inverse])


def _cosine(u: Floats, v: Floats) -> float:
    u, v = u.astype(np.float64), v.astype(np.float64)
    scale = math.sqrt(float(u @ u) * float(v @ v))
    return float(u @ v) / scale if scale > 0 else 0.0


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
    """Read the sections of a file: a line `: name` starts a section, and a line of four words is a question."""
    corpus = open_file(file, "give one file of questions")
    groups: list[tuple[str, list[Question]]] = []
    for number, line in enumerate(corpus, start=1):
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
            f"{corpus.name} contains no questions; give lines of four words, such as 'man king woman queen'"
        )
    return sections


def solve(
    row: RowLookup,
    unit: Floats,
    sections: Sequence[Section],
    method: AnalogyMethod = "add",
    progress: Progress | bool = silent,
) -> list[SectionResult]:
    """Answer every question whose words are all known.

    `row` maps a word to its row in `unit` (V, D), the vectors normalized to length 1. The answer is the word other
    than a, b and c with the highest score; a tie counts as wrong.
    `add`: cos(x, b) − cos(x, a) + cos(x, c)  (3CosAdd, Mikolov et al. 2013).
    `mul`: cos(x, b)·cos(x, c) / (cos(x, a) + ε), cosines mapped to [0, 1]  (3CosMul, Levy & Goldberg 2014).
    """
    progress = as_progress(progress)
    check_analogy_method(method)
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


def is_correct(unit: Floats, rows: Ids, method: AnalogyMethod = "add") -> Mask:
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
