"""Read word vectors in the word2vec text, word2vec binary and GloVe formats, detected from the content.

Memory use depends on the vectors actually read, never on the numbers in a header.
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

MAX_WORD_BYTES: Final = 1 << 16  # bytes
MAX_DIMENSIONS: Final = 1 << 18  # as many numbers as a line of text may hold

_HEADER: Final = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18}) ?\r?\n")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class _Entry(NamedTuple):
    word: bytes
    values: bytes  # W float32, little-endian
    offset: int  # byte offset in the file


def read(path: str | Path) -> WordVectors:
    """Read word vectors from a chainrule folder or from a file in word2vec text, word2vec binary or GloVe format.

    Files may be compressed (gzip, bzip2, xz, zstd). If a word is repeated, its first vector is used.
    """
    if Path(path).is_dir():
        return storage.load(path)
    if Path(path).suffix.lower() in PICKLES:
        raise ModelFileError(f"{path} looks like a pickle, and chainrule never unpickles: export it as word2vec")
    files = find_files(path)
    if len(files) != 1:
        raise UsageError(f"{path} names {len(files)} files; vectors are read from one, so name that one")
    words, matrix = _read_binary(files[0]) if is_binary(files[0]) else _read_text(files[0])
    about = storage.make_provenance(f"imported from {Path(files[0].name).name}", None, "", None)
    return WordVectors(words, matrix, about=about)


def is_binary(file: TextFile) -> bool:
    """Return whether a header `COUNT WIDTH` and a first word are followed by binary data."""
    head = next(read_blocks(file), b"")
    header = _HEADER.match(head)
    if header is None:
        return False
    _, _, rest = head[header.end() :].partition(b" ")
    payload = rest[: 4 * int(header[2])]  # the first vector, if the format is binary
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
    vectors = read_vectors(file)
    return vectors.words, vectors.matrix


def _read_binary(file: TextFile) -> tuple[tuple[str, ...], Floats]:
    rows: dict[str, int] = {}
    numbers = bytearray()
    repeated = 0
    for number, entry in enumerate(_entries(file), start=1):
        try:
            word = entry.word.decode()
        except UnicodeDecodeError as error:
            what = f"{_show(entry.word)} is not UTF-8 ({error.reason}); is this word2vec's binary format?"
            raise _error(file, number, entry.offset, what) from None
        if not word or any(blank in word for blank in "\n\0"):
            what = f"{_show(entry.word)} is not a word; is this word2vec's binary format?"
            raise _error(file, number, entry.offset, what)
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
    return tuple(rows), matrix


def _entries(file: TextFile) -> Iterator[_Entry]:
    """Yield the entries of a binary file, as many as its header says."""
    blocks = read_blocks(file)
    buffer = next(blocks, b"")
    header = _HEADER.match(buffer)
    assert header is not None, "checked by is_binary"
    count, width = int(header[1]), int(header[2])
    if not count or not 1 <= width <= MAX_DIMENSIONS:
        limits = f"chainrule reads 1 to {MAX_DIMENSIONS} numbers a word"
        what = f"the header says {count} words of {width} numbers; {limits}"
        raise InputError(f"{file.name}, line 1: {what}")
    base, at = 0, header.end()  # base: file offset of `buffer`; at: start of the next entry in `buffer`
    for number in range(1, count + 1):
        # An entry is a word, a blank and 4·W bytes, with an optional line break before the next word.
        while (end := _end(buffer, at, width)) is None:
            block = next(blocks, None)
            if block is None:
                what = f"the file ends here, and its header counts {count} words of {width} numbers; fetch it again"
                raise _error(file, number, base + at, what)
            if len(buffer) - at > MAX_WORD_BYTES + 4 * width and b" " not in buffer[at : at + MAX_WORD_BYTES]:
                what = f"no word ends within {MAX_WORD_BYTES} bytes; is this word2vec's binary format?"
                raise _error(file, number, base + at, what)
            base, buffer, at = base + at, buffer[at:] + block, 0
        blank = buffer.index(b" ", at)
        yield _Entry(buffer[at:blank].lstrip(b"\n"), buffer[blank + 1 : end], base + at)
        at = end
    if buffer[at:].strip(b"\n") or next(blocks, b""):
        raise _error(file, count + 1, base + at, f"the header counts {count} words, but more data follows")


def _end(buffer: bytes, at: int, width: int) -> int | None:
    """Return the end of the entry that starts at `at`, or None if it is incomplete."""
    blank = buffer.find(b" ", at)
    end = blank + 1 + 4 * width
    return None if blank < 0 or end > len(buffer) else end


def _error(file: TextFile, number: int, offset: int, what: str) -> InputError:
    return InputError(f"{file.name}, word {number} (byte {offset}): {what}")


def _show(content: bytes) -> str:
    text = content.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
