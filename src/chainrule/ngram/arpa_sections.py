r"""The grammar of an ARPA file: bytes -> lines -> what each order lists, every error with its line.

Not here: what the entries mean together (arpa_reader.py). Memory follows what the file lists, never what its
header claims.
"""

import codecs
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Floats, Ids, Mask
from chainrule.ngram.arpa import LOG10_ZERO
from chainrule.ngram.config import MAX_ORDER
from chainrule.progress import Progress
from chainrule.text.compression import read_blocks
from chainrule.text.files import TextFile

LONGEST_LINE: Final = 1 << 20
"""Bytes."""

ROUNDING: Final = 1e-6
"""How far above 0 a log10 probability may stand for a 1 that was rounded."""

_CLAIM: Final = re.compile(rb"ngram[ \t]+([0-9]{1,9})[ \t]*=[ \t]*([0-9]{1,18})")
_PROGRESS_STEP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Section:
    """The n-grams of one order, as listed; natural logarithms."""

    line: Ids  # (M,)
    ids: Ids  # (M, n)
    log_prob: Floats  # (M,)
    log_backoff: Floats  # (M,)

    def __len__(self) -> int:
        return len(self.line)


@dataclass(frozen=True, slots=True)
class Claim:
    """How many n-grams of an order the header promises, and where."""

    count: int
    line: int


class Lines:
    """The lines of a file without the blanks around them, and the number of the last one read."""

    def __init__(self, file: TextFile) -> None:
        self.name = file.name
        self.number = 0
        self._lines = self._split(read_blocks(file))

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def error(self, what: str, number: int | None = None) -> InputError:
        """What is wrong, and in which line: the last one read unless another is named."""
        return InputError(f"{self.name}, line {self.number if number is None else number}: {what}")

    def _split(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        rest = b""
        for block in blocks:
            *ended, rest = (rest + block).split(b"\n")
            for line in ended:
                yield self._next(line)
            if len(rest) > LONGEST_LINE:
                self.number += 1
                raise self.error(f"longer than {LONGEST_LINE} bytes; this is not an ARPA file")
        if rest:
            yield self._next(rest)

    def _next(self, line: bytes) -> bytes:
        self.number += 1
        if b"\0" in line:
            raise self.error("holds a NUL byte; an ARPA file is UTF-8 text")
        return line.strip(b" \t\r") if self.number > 1 else line.removeprefix(codecs.BOM_UTF8).strip(b" \t\r")


def read_sections(lines: Lines, progress: Progress) -> tuple[list[str], list[Section]]:
    """The words in file order, and what each order lists; ids count the words from 0."""
    claims, mark = _read_header(lines)
    index: dict[bytes, int] = {}
    sections: list[Section] = []
    for n, claim in enumerate(claims, start=1):
        if mark != b"\\%d-grams:" % n:
            raise lines.error(f"expected \\{n}-grams: but found {_show(mark)}")
        number_of = index.__getitem__ if n > 1 else _numbering(index)
        section, mark = _read_entries(lines, n, number_of, claim, progress)
        if n == len(claims):
            _refuse(lines, section, section.log_backoff != 0, "a back-off weight in the highest order")
        sections.append(section)
    if mark != b"\\end\\":
        raise lines.error(f"expected \\end\\ but found {_show(mark)}")
    if not index:
        raise lines.error("the file lists no words")
    return [word.decode() for word in index], sections


def _read_header(lines: Lines) -> tuple[list[Claim], bytes]:
    """What each order claims to list, and the mark of the first section."""
    if not any(line == b"\\data\\" for line in lines):
        what = "is empty" if lines.number == 0 else f"has no \\data\\ in its {lines.number} lines"
        raise InputError(f"{lines.name} {what}; it is not an ARPA file")
    claims: list[Claim] = []
    for line in lines:
        if line.startswith(b"\\"):
            if not claims:
                raise lines.error("the header counts no n-grams; expected 'ngram 1=COUNT'")
            return claims, line
        if line:
            claims.append(Claim(_read_claim(lines, line, len(claims) + 1), lines.number))
    raise lines.error("the file ends in its header, without \\end\\; it was cut short")


def _read_claim(lines: Lines, line: bytes, n: int) -> int:
    found = _CLAIM.fullmatch(line)
    if found is None:
        raise lines.error(f"{_show(line)} is not a count; expected 'ngram {n}=COUNT'")
    if int(found[1]) != n:
        raise lines.error(f"counts order {int(found[1])} where order {n} comes next")
    if n > MAX_ORDER:
        raise lines.error(f"order {n} is above {MAX_ORDER}, the highest there is")
    return int(found[2])


def _numbering(index: dict[bytes, int]) -> Callable[[bytes], int]:
    """Numbers words as they come; a word that is not UTF-8 is a ValueError."""

    def number_of(word: bytes) -> int:
        word.decode()
        return index.setdefault(word, len(index))

    return number_of


def _read_entries(
    lines: Lines, n: int, number_of: Callable[[bytes], int], claim: Claim, progress: Progress
) -> tuple[Section, bytes]:
    """The entries of order n, and the mark that follows them."""
    at, ids, log_prob, log_backoff = array("q"), array("i"), array("d"), array("d")
    for line in lines:
        if line.startswith(b"\\"):
            break
        if not line:
            continue
        fields = line.replace(b"\t", b" ").split(b" ")
        if b"" in fields:
            fields = [field for field in fields if field]
        try:
            at.append(lines.number)
            ids.extend(map(number_of, fields[1 : n + 1]))
            log_prob.append(_number(fields[0]))
            log_backoff.append(0.0 if len(fields) == n + 1 else _number(fields[n + 1]))
        except (KeyError, ValueError, IndexError):
            raise _explain(lines, fields, n) from None
        if len(fields) > n + 2:
            raise _explain(lines, fields, n)
        if len(at) % _PROGRESS_STEP == 0:
            progress(f"reading {n}-grams", len(at), claim.count)
    else:
        raise lines.error(f"the file ends in its {n}-grams, without \\end\\; it was cut short")
    found = (np.array(at), np.array(ids).reshape(-1, n), np.array(log_prob), np.array(log_backoff))
    section = _checked(lines, Section(*found))
    _check_count(lines, section, n, claim)
    progress(f"reading {n}-grams", len(section), claim.count)
    return section, line


def _number(field: bytes) -> float:
    if b"_" in field:  # digits may be grouped so in Python, not here
        raise ValueError
    return float(field)


def _explain(lines: Lines, fields: list[bytes], n: int) -> InputError:
    """What is wrong with an entry that could not be read."""
    if not n + 1 <= len(fields) <= n + 2:
        return lines.error(
            f"{len(fields)} fields; an entry here has a log-probability, {n} words and at most a back-off weight"
        )
    for field in (fields[0], *fields[n + 1 :]):
        try:
            _number(field)
        except ValueError:
            return lines.error(f"{_show(field)} is not a number")
    try:
        b" ".join(fields).decode()
    except UnicodeDecodeError as error:
        return lines.error(f"not UTF-8 ({error.reason}); convert the file to UTF-8")
    return lines.error(f"a word of {_show(b' '.join(fields[1 : n + 1]))} is not among the 1-grams")


def _show(found: bytes) -> str:
    text = found.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _checked(lines: Lines, section: Section) -> Section:
    """The section in natural logarithms."""
    log_p, weight = section.log_prob, section.log_backoff
    _refuse(lines, section, ~(log_p <= ROUNDING), "the log-probability is not a number of 0 or less")
    _refuse(lines, section, ~(weight < -LOG10_ZERO), "the back-off weight is not a finite number below 99")
    return replace(section, log_prob=_natural(np.minimum(log_p, 0)), log_backoff=_natural(weight))


def _natural(log10: Floats) -> Floats:
    return np.where(log10 <= LOG10_ZERO, -np.inf, np.maximum(log10, LOG10_ZERO) * np.log(10))


def _refuse(lines: Lines, section: Section, is_wrong: Mask, what: str) -> None:
    if is_wrong.any():
        raise lines.error(what, int(section.line[is_wrong.argmax()]))


def _check_count(lines: Lines, section: Section, n: int, claim: Claim) -> None:
    promise = f"line {claim.line} counts {claim.count} {n}-grams"
    if len(section) > claim.count:
        raise lines.error(f"{promise}, but here is one more", int(section.line[claim.count]))
    if len(section) < claim.count:
        raise lines.error(f"{promise}, but {len(section)} were listed by here; was the file cut short?")
