"""Read word vectors in the word2vec and GloVe text formats: lines `word v1 … vW`, optional header `COUNT WIDTH`.

Memory is proportional to the vectors kept, whatever the header claims.
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
    """Distinct words and their vectors."""

    words: tuple[str, ...]
    matrix: Floats  # (N, W)  float32


class _Entry(NamedTuple):
    line: int
    word: bytes
    values: bytes  # W numbers separated by one blank, not yet parsed


@dataclass(frozen=True, slots=True)
class _Header:
    line: int
    count: int
    width: int


def read_vectors(file: str | Path | TextFile, words: Collection[str] | None = None) -> Vectors:
    """Read the vectors of a file, optionally compressed, in file order; with `words` only those of these words.

    Lines of other words are only checked for the number of values. For `initial_embeddings`, pass the lower-cased
    words as well. Of duplicate words the first vector is kept.
    """
    source = _find_file(file)
    selected = None if words is None else {word.encode(errors="surrogatepass") for word in words}
    rows: dict[str, int] = {}
    numbers = array("f")
    lines = repeated = 0
    for entry in _read_entries(source):
        lines += 1
        if selected is not None and entry.word not in selected:
            continue
        if (word := _decode(entry, source.name)) in rows:
            repeated += 1
            continue
        rows[word] = len(rows)
        numbers.extend(_read_numbers(entry, source.name))
    if not rows:
        none = f"none of the {len(selected or ())} requested words" if lines else "no vectors"
        raise InputError(f"{source.name} holds {none}; give a file of lines 'word v1 … vW', spelled like the text")
    if repeated:
        message = f"{source.name}: {repeated} lines repeat a word; the first vector of each was kept"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    return Vectors(tuple(rows), np.frombuffer(numbers, dtype=np.float32).reshape(len(rows), -1))


def initial_embeddings(vectors: Vectors, names: Sequence[str], rng: np.random.Generator) -> tuple[Floats, float]:
    """Return (V, W) initial embeddings of the tokens `names`, and the share of them that have a vector.

    A token is looked up as it is, then lower-cased; the row of a missing token is sampled from a normal
    distribution with mean 0 and the standard deviation of all vectors.
    """
    row_of = {word: row for row, word in enumerate(vectors.words)}
    rows = np.array([row_of.get(name, row_of.get(name.lower(), -1)) for name in names], dtype=np.int64)  # (V,)
    is_found = rows >= 0
    deviation = float(vectors.matrix.std(dtype=np.float64))
    embeddings = np.empty((len(rows), vectors.matrix.shape[1]), dtype=np.float32)
    embeddings[is_found] = vectors.matrix[rows[is_found]]
    embeddings[~is_found] = rng.normal(0.0, deviation, embeddings[~is_found].shape)
    return embeddings, float(is_found.mean()) if len(rows) else 0.0


def _find_file(file: str | Path | TextFile) -> TextFile:
    if isinstance(file, TextFile):
        return file
    files = find_files(file)
    if len(files) != 1:
        raise UsageError(f"{file} names {len(files)} files; vectors are read from one, so name that one")
    return files[0]


def _read_entries(source: TextFile) -> Iterator[_Entry]:
    """Yield the lines with a vector; raise if their widths differ or their number differs from the header."""
    header: _Header | None = None
    width, number, entries = 0, 0, 0
    for number, line in enumerate(_read_lines(source), start=1):
        if not line:
            continue
        if not entries and header is None and (claim := _HEADER.fullmatch(line)):
            header = _Header(number, int(claim[1]), int(claim[2]))
            width = header.width
            continue
        word, values = _split_entry(line, width)
        columns = values.count(b" ") + 1 if values else 0
        width = columns if not entries and header is None else width
        if not word or columns != width or not columns:
            raise _error(source.name, number, _explain(word, columns, width, header))
        entries += 1
        if header is not None and entries > header.count:
            raise _error(source.name, number, f"line {header.line} counts {header.count} words; here is one more")
        yield _Entry(number, word, values)
    if header is not None and entries < header.count:
        what = f"line {header.line} counts {header.count} words, but the file ends after {entries}; fetch it again"
        raise _error(source.name, number, what)


def _split_entry(line: bytes, width: int) -> tuple[bytes, bytes]:
    """Split a line into word and values; if the width is known, a word may contain blanks, as in GloVe."""
    if width and line.count(b" ") > width:
        word, *values = line.rsplit(b" ", width)
        if not any(map(_is_number, word.split(b" ")[1:])):
            return word, b" ".join(values)
    word, _, rest = line.partition(b" ")
    return word, rest


def _explain(word: bytes, values: int, width: int, header: _Header | None) -> str:
    """Describe the error in a line that is not a word with `width` values."""
    if not word:
        return "begins with a blank; expected 'word v1 … vW' separated by one blank each"
    if not values:
        return "holds a word without values; expected 'word v1 … vW' separated by one blank each"
    origin = "the first vector has" if header is None else f"line {header.line} says"
    return f"{values} values after {_show(word)} where {origin} {width}"


def _read_lines(source: TextFile) -> Iterator[bytes]:
    """Yield lines as bytes, without trailing blanks and line breaks."""
    blocks = read_blocks(source)
    rest, number = next(blocks, b"").removeprefix(codecs.BOM_UTF8), 0
    for block in chain([b""], blocks):
        *ended, rest = (rest + block).split(b"\n")
        number += len(ended)
        if len(rest) > LONGEST_LINE:
            raise _error(source.name, number + 1, f"longer than {LONGEST_LINE} bytes; this is not a vector file")
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
    """Parse the W values of a line as float32."""
    fields = entry.values.split(b" ")
    try:
        if b"_" in entry.values:  # float() accepts underscores between digits
            raise ValueError
        numbers = array("f", map(float, fields))
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        what = f"{_show(wrong)} is not a number; values are numbers separated by one blank"
        raise _error(name, entry.line, what) from None
    if not math.isfinite(sum(numbers)):  # W numbers below 1e39 cannot sum to infinity in double precision
        raise _error(name, entry.line, f"the vector of {_show(entry.word)} is not finite; correct or drop the line")
    return numbers


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _error(name: str, line: int, what: str) -> InputError:
    return InputError(f"{name}, line {line}: {what}")


def _show(value: bytes) -> str:
    text = value.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
