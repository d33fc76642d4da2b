"""Write word vectors in the word2vec text and binary formats and the GloVe text format."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats
from chainrule.replacement import atomic_file
from chainrule.text.compression import SUFFIXES

Format = Literal["word2vec", "word2vec-binary", "glove"]

_NO_WORD: Final = re.compile("[ \t\r\n\0\ud800-\udfff]")
_ROWS_AT_ONCE: Final = 1 << 10


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
        raise UsageError(f"{path} has the suffix of a compressed file, and vectors are not; drop {path.suffix}")
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
        return "holds half a surrogate pair, which UTF-8 cannot hold"
    return "holds a blank, a line end or a NUL, where readers of such files end a word"


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
