"""Read and write word vectors in the formats of word2vec (text and binary) and GloVe.

A text file has lines `word v1 … vW`, in word2vec after a header `COUNT WIDTH`. Memory is proportional to the
vectors kept, whatever the header claims.
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
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.lm import Floats
from chainrule.storage.atomic import atomic_file
from chainrule.text.readers import SUFFIXES, TextFile, find_file, read_blocks

Format = Literal["word2vec", "word2vec-binary", "glove"]

LONGEST_LINE: Final = 1 << 20
"""Bytes; enough for 50,000 numbers of 20 characters."""
MAX_WORD_BYTES: Final = 1 << 16
"""Binary format: longest word."""
MAX_DIMENSIONS: Final = 1 << 18
"""Binary format: as many numbers as a line of text may hold."""

_BINARY_HEADER: Final = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18}) ?\r?\n")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TEXT_HEADER: Final = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})")
_NO_WORD: Final = re.compile("[ \t\r\n\0\ud800-\udfff]")
_ROWS_AT_ONCE: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Vectors:
    """Distinct words and their vectors."""

    words: tuple[str, ...]
    matrix: Floats  # (N, W)  float32


class _TextEntry(NamedTuple):
    line: int
    word: bytes
    values: bytes  # W numbers separated by one blank, not yet parsed


class _BinaryEntry(NamedTuple):
    word: bytes
    values: bytes  # W float32, little-endian
    offset: int  # byte offset in the file


@dataclass(frozen=True, slots=True)
class _Header:
    line: int
    count: int
    width: int


def read_vectors(file: str | Path | TextFile, words: Collection[str] | None = None) -> Vectors:
    """Read the vectors of a file, optionally compressed, in file order; if `words` is given, only theirs.

    Lines of other words are only checked for the number of values. For `initial_embeddings`, pass the lower-cased
    words as well. Of duplicate words the first vector is kept.
    """
    source = file if isinstance(file, TextFile) else find_file(file, "give one file of vectors")
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
        raise InputError(
            f"{source.name} contains {none}; give a file of lines 'word v1 … vW', spelled like the text"
        )
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


def _read_entries(source: TextFile) -> Iterator[_TextEntry]:
    """Yield the lines with a vector; raise if their widths differ or their number differs from the header."""
    header: _Header | None = None
    width, number, entries = 0, 0, 0
    for number, line in enumerate(_read_lines(source), start=1):
        if not line:
            continue
        if not entries and header is None and (claim := _TEXT_HEADER.fullmatch(line)):
            header = _Header(number, int(claim[1]), int(claim[2]))
            width = header.width
            continue
        word, values = _split_entry(line, width)
        columns = values.count(b" ") + 1 if values else 0
        width = columns if not entries and header is None else width
        if not word or columns != width or not columns:
            raise _text_error(source.name, number, _explain(word, columns, width, header))
        entries += 1
        if header is not None and entries > header.count:
            raise _text_error(
                source.name, number, f"line {header.line} counts {header.count} words, but more follow"
            )
        yield _TextEntry(number, word, values)
    if header is not None and entries < header.count:
        what = f"line {header.line} counts {header.count} words, but the file ends after {entries}; fetch it again"
        raise _text_error(source.name, number, what)


def _split_entry(line: bytes, width: int) -> tuple[bytes, bytes]:
    """Split a line into word and values; if the width is known, a word may contain blanks, as in GloVe."""
    if width and line.count(b" ") > width:
        word, *values = line.rsplit(b" ", width)
        if not any(map(_is_decimal, word.split(b" ")[1:])):
            return word, b" ".join(values)
    word, _, rest = line.partition(b" ")
    return word, rest


def _explain(word: bytes, values: int, width: int, header: _Header | None) -> str:
    """Describe the error in a line that is not a word with `width` values."""
    if not word:
        return "begins with a blank; expected 'word v1 … vW' separated by one blank each"
    if not values:
        return "contains a word without values; expected 'word v1 … vW' separated by one blank each"
    origin = "the first vector has" if header is None else f"line {header.line} says"
    return f"{values} values after {_quote(word)} where {origin} {width}"


def _read_lines(source: TextFile) -> Iterator[bytes]:
    """Yield lines as bytes, without trailing blanks and line breaks."""
    blocks = read_blocks(source)
    rest, number = next(blocks, b"").removeprefix(codecs.BOM_UTF8), 0
    for block in chain([b""], blocks):
        *ended, rest = (rest + block).split(b"\n")
        number += len(ended)
        if len(rest) > LONGEST_LINE:
            raise _text_error(
                source.name, number + 1, f"longer than {LONGEST_LINE} bytes; this is not a vector file"
            )
        yield from (line.rstrip(b" \r") for line in ended)
    if rest:
        yield rest.rstrip(b" \r")


def _decode(entry: _TextEntry, name: str) -> str:
    try:
        return entry.word.decode()
    except UnicodeDecodeError as error:
        what = f"{_quote(entry.word)} is not UTF-8 ({error.reason}); convert the file to UTF-8, or drop the line"
        raise _text_error(name, entry.line, what) from None


def _read_numbers(entry: _TextEntry, name: str) -> "array[float]":
    """Parse the W values of a line as float32."""
    fields = entry.values.split(b" ")
    try:
        if b"_" in entry.values:  # float() accepts underscores between digits
            raise ValueError
        numbers = array("f", map(float, fields))
    except ValueError:
        wrong = next(field for field in fields if not _is_decimal(field))
        what = f"{_quote(wrong)} is not a number; values are numbers separated by one blank"
        raise _text_error(name, entry.line, what) from None
    if not math.isfinite(sum(numbers)):  # W numbers below 1e39 cannot sum to infinity in double precision
        raise _text_error(
            name, entry.line, f"the vector of {_quote(entry.word)} is not finite; correct or drop the line"
        )
    return numbers


def _is_decimal(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _text_error(name: str, line: int, what: str) -> InputError:
    return InputError(f"{name}, line {line}: {what}")


def _quote(value: bytes) -> str:
    text = value.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")


def is_binary(file: TextFile) -> bool:
    """Return whether a header `COUNT WIDTH` and a first word are followed by binary data."""
    head = next(read_blocks(file), b"")
    header = _BINARY_HEADER.match(head)
    if header is None:
        return False
    _, _, rest = head[header.end() :].partition(b" ")
    payload = rest[: 4 * int(header[2])]  # the first vector, if the format is binary
    if _CONTROL.search(payload) or not _is_utf8(payload):
        return True
    return file.name.lower().endswith(".bin") and not any(map(_is_number, rest.split(maxsplit=1)[:1]))


def _is_utf8(content: bytes) -> bool:
    try:
        codecs.utf_8_decode(content, "strict", False)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _is_number(field: bytes) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def read_binary_vectors(file: TextFile) -> Vectors:
    """Read the vectors of a file in word2vec's binary format; of duplicate words the first vector is kept."""
    rows: dict[str, int] = {}
    numbers = bytearray()
    repeated = 0
    for number, entry in enumerate(_read_binary_entries(file), start=1):
        try:
            word = entry.word.decode()
        except UnicodeDecodeError as error:
            what = f"{_quote(entry.word)} is not UTF-8 ({error.reason}); is this word2vec's binary format?"
            raise _binary_error(file, number, entry.offset, what) from None
        if not word or any(blank in word for blank in "\n\0"):
            what = f"{_quote(entry.word)} is not a word; is this word2vec's binary format?"
            raise _binary_error(file, number, entry.offset, what)
        if word in rows:
            repeated += 1
            continue
        rows[word] = len(rows)
        numbers += entry.values
    matrix = np.frombuffer(numbers, dtype="<f4").reshape(len(rows), -1).astype(np.float32, copy=False)
    is_finite = np.isfinite(matrix).all(axis=1)
    if not is_finite.all():
        raise InputError(f"{file.name}: the vector of {list(rows)[int(is_finite.argmin())]!r} is not finite")
    if repeated:
        message = f"{file.name}: {repeated} words are repeated; the first vector of each was kept"
        warnings.warn(message, ChainruleWarning, stacklevel=4)
    return Vectors(tuple(rows), matrix)


def _read_binary_entries(file: TextFile) -> Iterator[_BinaryEntry]:
    """Yield the entries of a binary file; the header specifies their number."""
    blocks = read_blocks(file)
    buffer = next(blocks, b"")
    header = _BINARY_HEADER.match(buffer)
    assert header is not None, "checked by is_binary"
    count, width = int(header[1]), int(header[2])
    if not count or not 1 <= width <= MAX_DIMENSIONS:
        limits = f"chainrule reads 1 to {MAX_DIMENSIONS} numbers per word"
        what = f"the header says {count} words of {width} numbers; {limits}"
        raise InputError(f"{file.name}, line 1: {what}")
    base, at = 0, header.end()  # base: file offset of `buffer`; at: start of the next entry in `buffer`
    for number in range(1, count + 1):
        # An entry is a word, a blank and 4·W bytes, with an optional line break before the next word.
        while (end := _entry_end(buffer, at, width)) is None:
            block = next(blocks, None)
            if block is None:
                what = f"the file ends here, but its header counts {count} words of {width} numbers; fetch it again"
                raise _binary_error(file, number, base + at, what)
            if len(buffer) - at > MAX_WORD_BYTES + 4 * width and b" " not in buffer[at : at + MAX_WORD_BYTES]:
                what = f"no word ends within {MAX_WORD_BYTES} bytes; is this word2vec's binary format?"
                raise _binary_error(file, number, base + at, what)
            base, buffer, at = base + at, buffer[at:] + block, 0
        blank = buffer.index(b" ", at)
        yield _BinaryEntry(buffer[at:blank].lstrip(b"\n"), buffer[blank + 1 : end], base + at)
        at = end
    if buffer[at:].strip(b"\n") or next(blocks, b""):
        raise _binary_error(file, count + 1, base + at, f"the header counts {count} words, but more data follows")


def _entry_end(buffer: bytes, at: int, width: int) -> int | None:
    """Return the end of the entry that starts at `at`, or None if it is incomplete."""
    blank = buffer.find(b" ", at)
    end = blank + 1 + 4 * width
    return None if blank < 0 or end > len(buffer) else end


def _binary_error(file: TextFile, number: int, offset: int, what: str) -> InputError:
    return InputError(f"{file.name}, word {number} (byte {offset}): {what}")


def write_vectors(file: str | Path, words: Sequence[str], matrix: Floats, format: Format = "word2vec") -> None:
    """Write (N,) words and their (N, W) vectors; reading them back gives the same float32 values.

    `word2vec` is a header `COUNT WIDTH` and one line per word, `glove` the same without the header;
    `word2vec-binary` writes each word, a space, the values as little-endian float32, and a line feed.
    An existing file is replaced atomically.
    """
    path = Path(file)
    if format not in get_args(Format):
        raise UsageError(f"there is no format '{format}' of vectors; choose one of {', '.join(get_args(Format))}")
    if path.suffix.lower() in SUFFIXES:
        raise UsageError(
            f"{path}: compressed output is not supported for word vectors; remove the suffix {path.suffix}"
        )
    _check_words(words)
    rows = _check_matrix(words, matrix)
    with atomic_file(path) as raw:
        if format != "glove":
            raw.write(f"{len(rows)} {rows.shape[1]}\n".encode())
        for piece in _binary(words, rows) if format == "word2vec-binary" else _lines(words, rows):
            raw.write(piece)


def _check_words(words: Sequence[str]) -> None:
    first_with: dict[str, int] = {}
    for row, word in enumerate(words):
        if not word or _NO_WORD.search(word):
            raise InputError(
                f"word {row + 1}, {word!r}, {_reason(word)}; rename or drop it, or keep the vectors in a folder"
            )
        if first_with.setdefault(word, row) != row:
            raise InputError(
                f"words {first_with[word] + 1} and {row + 1} are both {word!r}; drop one with its vector"
            )


def _reason(word: str) -> str:
    """Return why a word cannot be written to a vector file."""
    if not word:
        return "is empty"
    if any("\ud800" <= letter <= "\udfff" for letter in word):
        return "contains a lone surrogate, which UTF-8 cannot encode"
    return "contains a blank, a line end or a NUL, where readers of such files end a word"


def _check_matrix(words: Sequence[str], matrix: Floats) -> Floats:
    """Convert the matrix to float32; raise for a wrong shape or values that are not finite."""
    if matrix.ndim != 2 or len(matrix) != len(words) or not matrix.size:
        raise InputError(f"{len(words)} words need one row of numbers each, not an array of shape {matrix.shape}")
    with np.errstate(over="ignore"):
        rows = matrix.astype(np.float32)
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        raise InputError(f"the vector of {words[int(is_finite.argmin())]!r} is not finite in single precision")
    return rows


def _lines(words: Sequence[str], rows: Floats) -> Iterator[bytes]:
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        texts = _shortest(rows[first : first + _ROWS_AT_ONCE]).tolist()
        block = words[first : first + _ROWS_AT_ONCE]
        yield "".join(f"{word} {' '.join(values)}\n" for word, values in zip(block, texts, strict=True)).encode()


def _binary(words: Sequence[str], rows: Floats) -> Iterator[bytes]:
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[first : first + _ROWS_AT_ONCE].astype("<f4")
        named = zip(words[first : first + _ROWS_AT_ONCE], block, strict=True)
        yield b"".join(word.encode() + b" " + row.tobytes() + b"\n" for word, row in named)


def _shortest(rows: Floats) -> NDArray[np.str_]:
    """Format every number with the fewest digits that restore the same float32.

    Readers parse to float64 first, and this double rounding can miss the float32 of a short decimal; nine digits
    are always enough.
    """
    texts = rows.astype(np.str_)
    is_exact = texts.astype(np.float64).astype(np.float32) == rows
    return texts if is_exact.all() else np.where(is_exact, texts, np.char.mod("%.9g", rows.astype(np.float64)))
