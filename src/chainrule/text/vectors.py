"""Word vectors in word2vec's text format and GloVe's: `word v1 … vW` a line, `COUNT WIDTH` first or not at all.

Lives here: reading them, and first embeddings made of them. Not here: writing (vector_file.py).
Memory follows the vectors that are kept, never what the header claims.
"""

import codecs
import math
import re
import warnings
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.lm import Floats
from chainrule.text.compression import read_blocks
from chainrule.text.files import TextFile, find_files

LONGEST_LINE: Final = 1 << 20
"""Bytes; enough for 50,000 numbers of 20 characters."""

_HEADER: Final = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Vectors:
    """Words, each once, and a row of numbers for each."""

    words: tuple[str, ...]
    matrix: Floats  # (N, W)  float32


class _Entry(NamedTuple):
    line: int
    word: bytes
    values: bytes  # W numbers with one blank between them, not yet read


@dataclass(frozen=True, slots=True)
class _Header:
    line: int
    count: int
    width: int


def read_vectors(file: str | Path | TextFile, words: Collection[str] | None = None) -> Vectors:
    """The vectors of a file, plain or packed, in its order; with `words` those of these words alone.

    Of lines that are not kept only the number of values is checked. For `initial` the lower-cased words are
    wanted as well. Of a word that comes again the first vector is kept.
    """
    source = _find_file(file)
    wanted = None if words is None else {word.encode(errors="surrogatepass") for word in words}
    rows: dict[str, int] = {}
    numbers = array("f")
    seen = repeated = 0
    for entry in _read_entries(source):
        seen += 1
        if wanted is not None and entry.word not in wanted:
            continue
        if (word := _decode(entry, source.name)) in rows:
            repeated += 1
            continue
        rows[word] = len(rows)
        numbers.extend(_read_numbers(entry, source.name))
    if not rows:
        none = f"none of the {len(wanted or ())} words asked for" if seen else "no vectors"
        raise InputError(f"{source.name} holds {none}; give a file of lines 'word v1 … vW', spelled like the text")
    if repeated:
        message = f"{source.name}: {repeated} lines give a word again; the first vector of each was kept"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    return Vectors(tuple(rows), np.frombuffer(numbers, dtype=np.float32).reshape(len(rows), -1))


def initial(vectors: Vectors, names: Sequence[str], rng: np.random.Generator) -> tuple[Floats, float]:
    """(V, W) first embeddings of the tokens named, and which part of them have a vector.

    A name is looked up as it stands, then lower-cased; a row for none of these is drawn from the normal
    distribution around 0 with the standard deviation of all the given numbers.
    """
    row_of = {word: row for row, word in enumerate(vectors.words)}
    rows = np.array([row_of.get(name, row_of.get(name.lower(), -1)) for name in names], dtype=np.int64)  # (V,)
    is_found = rows >= 0
    deviation = float(vectors.matrix.std(dtype=np.float64))
    made = np.empty((len(rows), vectors.matrix.shape[1]), dtype=np.float32)
    made[is_found] = vectors.matrix[rows[is_found]]
    made[~is_found] = rng.normal(0.0, deviation, made[~is_found].shape)
    return made, float(is_found.mean()) if len(rows) else 0.0


def _find_file(file: str | Path | TextFile) -> TextFile:
    if isinstance(file, TextFile):
        return file
    found = find_files(file)
    if len(found) != 1:
        raise UsageError(f"{file} names {len(found)} files; vectors are read from one, so name that one")
    return found[0]


def _read_entries(source: TextFile) -> Iterator[_Entry]:
    """Every line with a vector; all are of one width, and as many as the header says where there is one."""
    header: _Header | None = None
    width, number, entries = 0, 0, 0
    for number, line in enumerate(_read_lines(source), start=1):
        if not line:
            continue
        if not entries and header is None and (claim := _HEADER.fullmatch(line)):
            header = _Header(number, int(claim[1]), int(claim[2]))
            width = header.width
            continue
        word, values = _parts(line, width)
        found = values.count(b" ") + 1 if values else 0
        width = found if not entries and header is None else width
        if not word or found != width or not found:
            raise _error(source.name, number, _explain(word, found, width, header))
        entries += 1
        if header is not None and entries > header.count:
            raise _error(source.name, number, f"line {header.line} counts {header.count} words; here is one more")
        yield _Entry(number, word, values)
    if header is not None and entries < header.count:
        what = f"line {header.line} counts {header.count} words, but the file ends after {entries}; fetch it again"
        raise _error(source.name, number, what)


def _parts(line: bytes, width: int) -> tuple[bytes, bytes]:
    """The word and its values; where the width is known a word may hold blanks, as some of GloVe's do."""
    if width and line.count(b" ") > width:
        word, *values = line.rsplit(b" ", width)
        if not any(map(_is_number, word.split(b" ")[1:])):
            return word, b" ".join(values)
    word, _, rest = line.partition(b" ")
    return word, rest


def _explain(word: bytes, found: int, width: int, header: _Header | None) -> str:
    """What is wrong with a line that is no word with `width` values."""
    if not word:
        return "begins with a blank; a word must come first, and one blank between all"
    if not found:
        return "holds a word without values; expected 'word v1 … vW' with one blank between all"
    origin = "the first vector has" if header is None else f"line {header.line} says"
    return f"{found} values after {_show(word)} where {origin} {width}"


def _read_lines(source: TextFile) -> Iterator[bytes]:
    """Lines as bytes, without the blanks and the break at their end."""
    blocks = read_blocks(source)
    rest, number = next(blocks, b"").removeprefix(codecs.BOM_UTF8), 0
    for block in chain([b""], blocks):
        *ended, rest = (rest + block).split(b"\n")
        number += len(ended)
        if len(rest) > LONGEST_LINE:
            raise _error(source.name, number + 1, f"longer than {LONGEST_LINE} bytes; this is no file of vectors")
        yield from (line.rstrip(b" \r") for line in ended)
    if rest:
        yield rest.rstrip(b" \r")


def _decode(entry: _Entry, name: str) -> str:
    try:
        return entry.word.decode()
    except UnicodeDecodeError as error:
        what = f"{_show(entry.word)} is not UTF-8 ({error.reason}); convert the file to UTF-8, or drop the line"
        raise _error(name, entry.line, what) from None


def _read_numbers(entry: _Entry, name: str) -> "array[float]":
    """The W values of a line in single precision."""
    fields = entry.values.split(b" ")
    try:
        if b"_" in entry.values:  # digits may be grouped so in Python, not here
            raise ValueError
        numbers = array("f", map(float, fields))
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        what = f"{_show(wrong)} is not a number; values are numbers with one blank between them"
        raise _error(name, entry.line, what) from None
    if not math.isfinite(sum(numbers)):  # W numbers below 1e39 cannot sum to infinity in double precision
        raise _error(name, entry.line, f"the vector of {_show(entry.word)} is not finite; mend or drop the line")
    return numbers


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _error(name: str, line: int, what: str) -> InputError:
    return InputError(f"{name}, line {line}: {what}")


def _show(found: bytes) -> str:
    text = found.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
