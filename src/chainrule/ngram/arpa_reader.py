r"""Read ARPA files of any maker: KenLM, SRILM, MITLM, chainrule.

Lives here: the file's grammar and its errors, each with its line; the ids its words get; the contexts a pruned
file leaves out. Not here: the format's constants and the writer (arpa.py), unpacking (text/compression.py).
Memory follows what the file lists, never what its header claims.
"""

import codecs
import re
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.lm import Floats, Ids, Mask
from chainrule.ngram.arpa import LOG10_ZERO, UNKNOWNS
from chainrule.ngram.config import MAX_ORDER
from chainrule.ngram.tables import BackoffLevel, BackoffTables, find, take
from chainrule.progress import Progress, silent
from chainrule.text.compression import read_blocks
from chainrule.text.files import TextFile, find_files
from chainrule.tokenizers.config import BOS, EOS

LONGEST_LINE: Final = 1 << 20
"""Bytes."""

ROUNDING: Final = 1e-6
"""How far above 0 a log10 probability may stand for a 1 that was rounded."""

_CLAIM: Final = re.compile(rb"ngram[ \t]+([0-9]{1,9})[ \t]*=[ \t]*([0-9]{1,18})")
_PROGRESS_STEP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Arpa:
    """Ids: 0 the unknown word, then `words`, then `<s>` and `</s>`."""

    words: list[str]
    tables: BackoffTables
    has_unk: bool  # False: the unknown word has probability 0
    unk: str  # how the file spells the unknown word


@dataclass(frozen=True, slots=True)
class _Section:
    """The n-grams of one order, as listed; natural logarithms."""

    line: Ids  # (M,)
    ids: Ids  # (M, n)
    log_prob: Floats  # (M,)
    log_backoff: Floats  # (M,)

    def __len__(self) -> int:
        return len(self.line)


@dataclass(frozen=True, slots=True)
class _Claim:
    """How many n-grams of an order the header promises, and where."""

    count: int
    line: int


class _Lines:
    """The lines of a file without the blanks around them, and the number of the last one read."""

    def __init__(self, file: TextFile) -> None:
        self.name = file.name
        self.number = 0
        self._lines = self._split(read_blocks(file))

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def error(self, what: str, number: int | None = None) -> InputError:
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


def read(path: Path, progress: Progress = silent) -> Arpa:
    """Read a file, plain or packed; natural logarithms from here on.

    A log10 of −99 or less is that of 0, and `<s>` is never predicted, whatever the file says. A context that
    is not listed itself gets the probability that backing off gives and the weight 1.
    """
    files = find_files(path)
    if len(files) != 1:
        raise InputError(f"{path} holds {len(files)} files; name one ARPA file")
    lines = _Lines(files[0])
    names, sections = _read_sections(lines, progress)
    words, unk, id_of = _lay_out(names)
    sections = [replace(section, ids=id_of[section.ids]) for section in sections]
    if EOS not in names:
        warnings.warn(
            f"{lines.name} has no {EOS}, so that no line can end: every line is impossible",
            ChainruleWarning,
            stacklevel=2,
        )
    progress("building tables", 0, None)
    tables = _build(lines, sections, V=len(words) + 3, bos=len(words) + 1)
    return Arpa(words, tables, unk in names, unk)


def _read_sections(lines: _Lines, progress: Progress) -> tuple[list[str], list[_Section]]:
    """The words in file order, and what each order lists; ids count the words from 0."""
    claims, mark = _read_header(lines)
    index: dict[bytes, int] = {}
    sections: list[_Section] = []
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


def _read_header(lines: _Lines) -> tuple[list[_Claim], bytes]:
    """What each order claims to list, and the mark of the first section."""
    if not any(line == b"\\data\\" for line in lines):
        what = "is empty" if lines.number == 0 else f"has no \\data\\ in its {lines.number} lines"
        raise InputError(f"{lines.name} {what}; it is not an ARPA file")
    claims: list[_Claim] = []
    for line in lines:
        if line.startswith(b"\\"):
            if not claims:
                raise lines.error("the header counts no n-grams; expected 'ngram 1=COUNT'")
            return claims, line
        if line:
            claims.append(_Claim(_read_claim(lines, line, len(claims) + 1), lines.number))
    raise lines.error("the file ends in its header, without \\end\\; it was cut short")


def _read_claim(lines: _Lines, line: bytes, n: int) -> int:
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
    lines: _Lines, n: int, number_of: Callable[[bytes], int], claim: _Claim, progress: Progress
) -> tuple[_Section, bytes]:
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
    section = _checked(lines, _Section(*found))
    _check_count(lines, section, n, claim)
    progress(f"reading {n}-grams", len(section), claim.count)
    return section, line


def _number(field: bytes) -> float:
    if b"_" in field:  # digits may be grouped so in Python, not here
        raise ValueError
    return float(field)


def _explain(lines: _Lines, fields: list[bytes], n: int) -> InputError:
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


def _checked(lines: _Lines, section: _Section) -> _Section:
    """The section in natural logarithms."""
    log_p, weight = section.log_prob, section.log_backoff
    _refuse(lines, section, ~(log_p <= ROUNDING), "the log-probability is not a number of 0 or less")
    _refuse(lines, section, ~(weight < -LOG10_ZERO), "the back-off weight is not a finite number below 99")
    return replace(section, log_prob=_natural(np.minimum(log_p, 0)), log_backoff=_natural(weight))


def _natural(log10: Floats) -> Floats:
    return np.where(log10 <= LOG10_ZERO, -np.inf, np.maximum(log10, LOG10_ZERO) * np.log(10))


def _refuse(lines: _Lines, section: _Section, is_wrong: Mask, what: str) -> None:
    if is_wrong.any():
        raise lines.error(what, int(section.line[is_wrong.argmax()]))


def _check_count(lines: _Lines, section: _Section, n: int, claim: _Claim) -> None:
    promise = f"line {claim.line} counts {claim.count} {n}-grams"
    if len(section) > claim.count:
        raise lines.error(f"{promise}, but here is one more", int(section.line[claim.count]))
    if len(section) < claim.count:
        raise lines.error(f"{promise}, but {len(section)} were listed by here; was the file cut short?")


def _lay_out(names: list[str]) -> tuple[list[str], str, Ids]:
    """The ordinary words, the unknown word's name, and the id of each of `names`."""
    unk = next((name for name in UNKNOWNS if name in names), UNKNOWNS[0])
    words = [name for name in names if name not in (unk, BOS, EOS)]
    ids = {name: i for i, name in enumerate([unk, *words, BOS, EOS])}
    return words, unk, np.array([ids[name] for name in names], dtype=np.int32)


def _build(lines: _Lines, sections: list[_Section], V: int, bos: int) -> BackoffTables:
    """Order by order: each n-gram's row among its kind, then what longer n-grams need and nobody listed."""
    levels = [_unigrams(lines, sections[0], V, bos)]
    waiting = [(section, section.ids[:, 0]) for section in sections[1:]]  # with the row of the first words
    while waiting:
        (section, context), *waiting = waiting
        n, word = len(levels) + 1, section.ids[:, -1]
        key = context.astype(np.int64) * V + word
        listed = _sorted_once(lines, section, key)
        lacking = [s.ids[find(listed, rows, s.ids[:, n - 1], V) < 0, :n] for s, rows in waiting]
        added = np.unique(np.concatenate([section.ids[:0], *lacking]), axis=0)  # (A, n)
        key = np.concatenate([key, _rows(levels, added[:, :-1]).astype(np.int64) * V + added[:, -1]])
        log_prob = np.concatenate([section.log_prob, _backed_off(levels, added)])
        log_prob[key % V == bos] = -np.inf
        log_backoff = np.concatenate([section.log_backoff, np.zeros(len(added))])
        level = _level(key, log_prob, log_backoff)
        waiting = [(s, level.find(rows, s.ids[:, n - 1], V)) for s, rows in waiting]
        levels.append(level)
    return BackoffTables(tuple(levels))


def _unigrams(lines: _Lines, section: _Section, V: int, bos: int) -> BackoffLevel:
    word = section.ids[:, 0]
    _sorted_once(lines, section, word)
    log_prob, log_backoff = np.full(V, -np.inf), np.zeros(V)
    log_prob[word], log_backoff[word] = section.log_prob, section.log_backoff
    log_prob[bos] = -np.inf
    return _level(np.arange(V), log_prob, log_backoff)


def _level(key: Ids, log_prob: Floats, log_backoff: Floats) -> BackoffLevel:
    by_key = np.argsort(key)
    single = (log_prob[by_key].astype(np.float32), log_backoff[by_key].astype(np.float32))
    return BackoffLevel(key[by_key], *single)


def _sorted_once(lines: _Lines, section: _Section, key: Ids) -> Ids:
    """The keys in order, refused where one comes twice."""
    by_key = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[by_key[1:]] == key[by_key[:-1]])
    if len(again):
        first, second = section.line[by_key[again[0] : again[0] + 2]]
        raise lines.error(f"the same n-gram as in line {first}", int(second))
    return key[by_key]


def _rows(levels: list[BackoffLevel], ids: Ids) -> Ids:
    """(A, m) m-grams -> (A,) their rows, −1 where not listed."""
    row = ids[:, 0]
    for level, word in zip(levels[1:], ids.T[1:], strict=False):
        row = level.find(row, word, len(levels[0]))
    return row


def _backed_off(levels: list[BackoffLevel], ids: Ids) -> Floats:
    """(A, n) n-grams of the next order -> (A,) log p of the last word, from the orders there are."""
    word, n = ids[:, -1], ids.shape[1]
    log_p = levels[0].log_prob[word].astype(np.float64)
    for m in range(1, n):
        context = _rows(levels, ids[:, n - 1 - m : n - 1])
        log_p += take(levels[m - 1].log_backoff, context, np.zeros(len(ids)))
        if m < n - 1:
            found = levels[m].find(context, word, len(levels[0]))
            log_p = take(levels[m].log_prob, found, log_p)
    return np.minimum(log_p, 0)
