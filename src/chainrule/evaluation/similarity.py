"""Whether word vectors find alike what people find alike: rank correlation with judged pairs of words.

Lives here: files of judged pairs, Spearman's ρ, its interval, and its value over the rare words.
Not here: the vectors, of which only a look-up is asked; analogies (analogies.py).
"""

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats
from chainrule.text.corpus import Corpus
from chainrule.text.utf8 import OPTION

Lookup = Callable[[str], Floats | None]
"""The vector (D,) of a word, None where there is none."""

LONGEST_CELL: Final = 1 << 17  # characters
NORMAL_97_5: Final = 1.959963984540054  # Φ⁻¹(0.975)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of words and how alike people judged each, on any scale that rises with likeness."""

    name: str
    firsts: tuple[str, ...]
    seconds: tuple[str, ...]
    scores: Floats  # (n,)

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.firsts)

    def select(self, rows: list[int]) -> "Pairs":
        """The pairs of these rows, in this order."""
        firsts, seconds = (tuple(side[row] for row in rows) for side in (self.firsts, self.seconds))
        return Pairs(self.name, firsts, seconds, self.scores[rows])


@dataclass(frozen=True, slots=True)
class Judged:
    """Spearman's ρ with its 95 % interval, NaN where it is not defined, and the pairs that it is of."""

    rho: float
    low: float
    high: float
    found: int  # pairs both of whose words have a vector
    of: int

    @property
    def coverage(self) -> float:
        """Which part of the pairs could be judged."""
        return self.found / self.of if self.of else 0.0


def read_lines(corpus: Corpus) -> Iterator[str]:
    """The lines of a file that is read by no `--errors` option."""
    try:
        yield from corpus
    except InputError as error:
        raise InputError(str(error).removesuffix(OPTION)) from error


def read_pairs(file: str | Path) -> Pairs:
    """The pairs of a file: two words and a number a line, parted by tabs, commas, semicolons or blanks.

    The number is in the third column, or where this holds none in the first that does, the same in all lines (as in
    SimLex-999, with a part of speech before it). Lines that begin with `#`, blank lines and one header line are
    passed over.
    """
    corpus = Corpus.of(file, expects_lines=False)
    if len(corpus.files) != 1:
        raise UsageError(f"{file} stands for {len(corpus.files)} files; name one file of pairs")
    lines = [
        _cut(line, f"{corpus.name}, line {number}")
        for number, line in enumerate(read_lines(corpus), start=1)
        if line.strip() and not line.startswith("#")
    ]
    data = lines[1:] if _is_header(lines) else lines
    column = _score_column(data[0]) if data else 2
    rows = [_parse(line, column) for line in data]
    if not rows:
        raise InputError(
            f"{corpus.name} holds no pairs; give lines of two words and a number, such as 'cat<TAB>tiger<TAB>7.35'"
        )
    firsts, seconds, scores = zip(*rows, strict=True)
    return Pairs(corpus.name, firsts, seconds, np.array(scores))


@dataclass(frozen=True, slots=True)
class _Line:
    """A line cut into its columns, three or more."""

    where: str
    fields: list[str]

    @property
    def first_number(self) -> int | None:
        """The first column behind the two words that holds a number."""
        return next((i for i, field in enumerate(self.fields) if i > 1 and _number(field) is not None), None)


def _cut(line: str, where: str) -> _Line:
    """The columns of a line, without the quotes that tables have around them."""
    separator = "\t" if "\t" in line else max(",;", key=line.count)
    if separator == "\t":
        fields = line.strip().split(separator)
    elif separator not in line:
        fields = line.split()
    else:
        csv.field_size_limit(LONGEST_CELL)  # the limit is one for all readers of the process
        try:
            fields = next(csv.reader([line.strip()], delimiter=separator, skipinitialspace=True))
        except csv.Error as error:
            raise InputError(f"{where} is no line of a table ({error}); mend or drop it") from None
    fields = [field.strip() for field in fields]
    if len(fields) < 3:
        what = "expected two words and a number, parted by tabs, commas, semicolons or blanks"
        raise InputError(f"{where}: {len(fields)} column{'' if len(fields) == 1 else 's'}; {what}")
    return _Line(where, fields)


def _is_header(lines: list[_Line]) -> bool:
    """Whether the first line names the columns: it has no number, or none where the second line has its first."""
    if not lines:
        return False
    number = lines[0].first_number
    return number is None or (number > 2 and len(lines) > 1 and lines[1].first_number == 2)


def _score_column(line: _Line) -> int:
    """The column of the scores, by the first line behind the header."""
    found = line.first_number or 2
    if found > 2 and _number(line.fields[0]) is not None:
        what = f"the line begins with the number {line.fields[0]}, and two words must come first"
        raise InputError(f"{line.where}: {what}; drop the column of numbers")
    return found


def _parse(line: _Line, column: int) -> tuple[str, str, float]:
    """The pair of a line with the score in this column."""
    first, second, *_ = line.fields
    if not first or not second:
        raise InputError(f"{line.where}: a word is empty; expected two words and a number")
    field = line.fields[column] if column < len(line.fields) else line.fields[2]
    score = _number(field)
    if score is None:
        raise InputError(f"{line.where}: {field!r} is not a number; expected two words and how alike they are")
    if not math.isfinite(score):
        raise InputError(f"{line.where}: {score} is not finite; mend or drop the line")
    return first, second, score


def _number(field: str) -> float | None:
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None


def judge(lookup: Lookup, pairs: Pairs) -> Judged:
    """How well the cosines of vectors order the pairs; those with an unknown word are not judged.

    A word is as like itself as can be, whatever its vector.
    """
    cosines: list[float] = []
    known: list[int] = []
    for row, (first, second) in enumerate(zip(pairs.firsts, pairs.seconds, strict=True)):
        u, v = lookup(first), lookup(second)
        if u is not None and v is not None:
            cosines.append(1.0 if first == second else _cosine(u, v))
            known.append(row)
    rho = spearman(np.array(cosines), pairs.scores[known])
    return Judged(rho, *interval(rho, len(known)), len(known), len(pairs))


def rarest(pairs: Pairs, count: Callable[[str], int | None]) -> Pairs:
    """The third of the pairs whose rarer word is least frequent, by its count in the training text.

    Pairs with a word that has no count (None) are left out first.
    """
    counted: list[tuple[int, int]] = []
    for row, words in enumerate(zip(pairs.firsts, pairs.seconds, strict=True)):
        counts = [found for word in words if (found := count(word)) is not None]
        if len(counts) == 2:
            counted.append((min(counts), row))
    kept = sorted(counted)[: math.ceil(len(counted) / 3)]
    return pairs.select(sorted(row for _, row in kept))


def spearman(a: Floats, b: Floats) -> float:
    """Pearson's correlation of the ranks, equal values sharing the mean of theirs; NaN where one side is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    if len(a) != len(b):
        raise UsageError(f"{len(a)} values against {len(b)}; a rank correlation is of pairs")
    if len(a) < 2:
        return math.nan
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


def interval(r: float, n: int) -> tuple[float, float]:
    """95 % confidence interval of Spearman's ρ from n pairs: Fisher's z with s.e. √((1 + r²/2)/(n − 3)).

    Bonett & Wright (2000). NaN where r is, of three pairs or fewer, which tell nothing, and where r is 1 or −1: z
    is then infinite and says nothing of how far the truth may lie.
    """
    if math.isnan(r) or n <= 3 or abs(r) >= 1:
        return math.nan, math.nan
    reach = NORMAL_97_5 * math.sqrt((1 + r * r / 2) / (n - 3))
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)


def _ranks(values: Floats) -> Floats:
    """(n,) ranks from 1, the mean of them for equal values."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(times)  # the rank of the last of each value
    return np.asarray((last - (times - 1) / 2)[place])


def _cosine(u: Floats, v: Floats) -> float:
    u, v = u.astype(np.float64), v.astype(np.float64)
    scale = math.sqrt(float(u @ u) * float(v @ v))
    return float(u @ v) / scale if scale > 0 else 0.0
