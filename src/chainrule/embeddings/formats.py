"""Vectors of other software: word2vec's text and binary formats and GloVe's, told apart by what they hold.

Lives here: `read`, which opens whatever holds vectors, and the binary format. Not here: the two formats of text
(text/vectors.py), writing (vector_file.py), chainrule's own folder (storage.py).
Memory follows the vectors that were read, never what a header claims.
"""

import codecs
import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from chainrule.embeddings import storage
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ChainruleWarning, InputError, ModelFileError, UsageError
from chainrule.folder import PICKLES
from chainrule.lm import Floats
from chainrule.text.compression import read_blocks
from chainrule.text.files import TextFile, find_files
from chainrule.text.vectors import read_vectors

LONGEST_WORD: Final = 1 << 16  # bytes
WIDEST: Final = 1 << 18  # numbers of a vector; as many as a line of text may hold

_HEADER: Final = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18}) ?\r?\n")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class _Entry(NamedTuple):
    word: bytes
    values: bytes  # W float32, little-endian
    at: int  # the byte where it begins


def read(path: str | Path) -> WordVectors:
    """The vectors of a folder that chainrule wrote, or of a file in word2vec's text or binary format or GloVe's.

    Files may be packed (gzip, bzip2, xz, zstd). Of a word that comes again the first vector is kept.
    """
    if Path(path).is_dir():
        return storage.load(path)
    if Path(path).suffix.lower() in PICKLES:
        raise ModelFileError(f"{path} looks like a pickle, and chainrule never unpickles: export it as word2vec")
    found = find_files(path)
    if len(found) != 1:
        raise UsageError(f"{path} names {len(found)} files; vectors are read from one, so name that one")
    words, matrix = _read_binary(found[0]) if is_binary(found[0]) else _read_text(found[0])
    about = storage.origin(f"imported from {Path(found[0].name).name}", None, "", None)
    return WordVectors(words, matrix, about=about)


def is_binary(file: TextFile) -> bool:
    """Whether behind a header `COUNT WIDTH` and a word stand bytes that are no text."""
    head = next(read_blocks(file), b"")
    header = _HEADER.match(head)
    if header is None:
        return False
    _, _, rest = head[header.end() :].partition(b" ")
    payload = rest[: 4 * int(header[2])]  # the first vector, were it binary
    if _CONTROL.search(payload) or not _is_utf8(payload):
        return True
    return file.name.lower().endswith(".bin") and not _is_number(rest.split(maxsplit=1)[:1])


def _is_utf8(content: bytes) -> bool:
    try:
        codecs.utf_8_decode(content, "strict", False)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _is_number(fields: list[bytes]) -> bool:
    try:
        return bool(fields) and math.isfinite(float(fields[0]))
    except ValueError:
        return False


def _read_text(file: TextFile) -> tuple[tuple[str, ...], Floats]:
    found = read_vectors(file)
    return found.words, found.matrix


def _read_binary(file: TextFile) -> tuple[tuple[str, ...], Floats]:
    rows: dict[str, int] = {}
    numbers = bytearray()
    repeated = 0
    for number, entry in enumerate(_entries(file), start=1):
        try:
            word = entry.word.decode()
        except UnicodeDecodeError as error:
            what = f"{_show(entry.word)} is not UTF-8 ({error.reason}); is this word2vec's binary format?"
            raise _error(file, number, entry.at, what) from None
        if not word or any(blank in word for blank in "\n\0"):
            what = f"{_show(entry.word)} is no word; is this word2vec's binary format?"
            raise _error(file, number, entry.at, what)
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
        message = f"{file.name}: {repeated} words come again; the first vector of each was kept"
        warnings.warn(message, ChainruleWarning, stacklevel=4)
    return tuple(rows), matrix


def _entries(file: TextFile) -> Iterator[_Entry]:
    """Every word with its numbers, as many as the header counts."""
    blocks = read_blocks(file)
    held = next(blocks, b"")
    header = _HEADER.match(held)
    assert header is not None, "is_binary has seen it"
    count, width = int(header[1]), int(header[2])
    if not count or not 1 <= width <= WIDEST:
        what = f"the header says {count} words of {width} numbers; chainrule reads 1 to {WIDEST} numbers a word"
        raise InputError(f"{file.name}, line 1: {what}")
    base, at = 0, header.end()  # base: the byte of the file where `held` begins
    for number in range(1, count + 1):
        # A word, a blank, 4·W bytes; a line break before the next word or not.
        while (end := _end(held, at, width)) is None:
            block = next(blocks, None)
            if block is None:
                what = f"the file ends here, and its header counts {count} words of {width} numbers; fetch it again"
                raise _error(file, number, base + at, what)
            if len(held) - at > LONGEST_WORD + 4 * width and b" " not in held[at : at + LONGEST_WORD]:
                what = f"no word ends within {LONGEST_WORD} bytes; is this word2vec's binary format?"
                raise _error(file, number, base + at, what)
            base, held, at = base + at, held[at:] + block, 0
        blank = held.index(b" ", at)
        yield _Entry(held[at:blank].lstrip(b"\n"), held[blank + 1 : end], base + at)
        at = end
    if held[at:].strip(b"\n") or next(blocks, b""):
        raise _error(file, count + 1, base + at, f"the header counts {count} words; here is more")


def _end(held: bytes, at: int, width: int) -> int | None:
    """Where the entry that begins at `at` ends; None where more must be read to tell."""
    blank = held.find(b" ", at)
    end = blank + 1 + 4 * width
    return None if blank < 0 or end > len(held) else end


def _error(file: TextFile, number: int, at: int, what: str) -> InputError:
    return InputError(f"{file.name}, word {number} (byte {at}): {what}")


def _show(found: bytes) -> str:
    text = found.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
