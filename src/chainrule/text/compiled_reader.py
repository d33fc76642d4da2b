"""Read a corpus by the compiled extension: blocks of bytes of any format become pieces of whole lines.

Python reads and decompresses blocks of bytes, or record batches of Parquet. The threads of the extension extract
the texts of JSON Lines, validate UTF-8 and translate line breaks (cpp/text/input). A block that the extension does
not support (invalid UTF-8, unusual JSON) is read by `text.readers`: texts, errors and warnings are the same.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from chainrule import system
from chainrule.errors import InputError
from chainrule.text.corpus import Corpus
from chainrule.text.lines import end_lines
from chainrule.text.readers import (
    TEXT,
    Decoder,
    Document,
    TextFile,
    check_is_text,
    count_lines_before,
    count_rows_before,
    decode_rows,
    file_format,
    read_blocks,
    read_documents,
    read_json_blocks,
    read_rows,
)

BLOCK: Final = 1 << 18
"""Approximate bytes of a piece of text."""
LONGEST: Final = 1 << 23
"""Bytes of the longest line of plain text that the extension reads, unless whole lines are asked for."""

_Input = tuple[str, int, int, Callable[[], Any]]
"""Format, bytes and lines of the file before its range, and a function that returns the next block or None."""


@dataclass(frozen=True, slots=True)
class CompiledReader:
    """One pass over a corpus by the extension."""

    text: Any  # TextReader of the extension
    threads: int
    _decoder: Decoder  # of the inputs that Python decodes

    @property
    def replaced(self) -> int:
        """Number of invalid UTF-8 sequences replaced by U+FFFD so far."""
        return int(self.text.replaced) + self._decoder.replaced


def open_reader(
    corpus: Corpus, *, block: int | None = None, longest: int | None = LONGEST
) -> CompiledReader | None:
    """Open a corpus for one pass by the extension; None for streamed standard input.

    Lines of plain text of more than `longest` bytes are not supported: the functions of the extension return None.
    """
    if any(file.stream is not None for file in corpus.files):
        return None
    block = BLOCK if block is None else block
    decoder = corpus.decoder()
    texts = replace(corpus, files=(), drop_blank_lines=False)
    inputs: list[_Input] = [("text", 0, 0, _encoded(texts.documents(decoder)))] if corpus.texts else []
    inputs += [_input_of(file, corpus.column, decoder, block) for file in corpus.files]
    convert = partial(_convert, corpus, (None,) * bool(corpus.texts) + corpus.files)
    text = system.load_extension().TextReader(
        inputs, corpus.column or TEXT, corpus.drop_blank_lines, block, longest or 0, convert
    )
    return CompiledReader(text, system.thread_count(), decoder)


def _input_of(file: TextFile, column: str | None, decoder: Decoder, block: int) -> _Input:
    check_is_text(file)
    kind = file_format(file)
    if kind == "parquet":
        rows = read_rows(file, column or TEXT)
        return "documents", 0, 0, _next_of((part.offsets, part.data) for part in rows)
    if kind == "table" and column is not None:
        return "text", 0, 0, _encoded(read_documents(file, column, decoder))
    offset = 0 if file.byte_range is None else file.byte_range[0]
    return "json" if kind == "json" else "lines", offset, 0, _next_of(read_blocks(file, block))


def _next_of(blocks: Iterable[Any]) -> Callable[[], Any]:
    return partial(next, iter(blocks), None)


def _encoded(documents: Iterable[Document]) -> Callable[[], Any]:
    """Return a function that returns the lines of the next documents as UTF-8."""
    return _next_of(_group(text.encode() for document in documents for text in end_lines(document)))


def _group(pieces: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= BLOCK:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def _convert(
    corpus: Corpus,
    files: tuple[TextFile | None, ...],
    number: int,
    offset: int,
    first: int,
    data: bytes,
    ends: list[int],
) -> tuple[bytes, int]:
    """Return the lines of a block of a file and the number of replaced sequences; raise for a fault in the text.

    `offset` bytes and `first` lines or rows of the file, or of its range, precede the block.
    """
    file = files[number]
    assert file is not None, "texts in memory are converted before"
    column = corpus.column or TEXT
    decoder = corpus.decoder()
    kind = file_format(file)
    if kind == "json":
        read = partial(read_json_blocks, [data], file, column)
        try:
            return _lines(read(decoder, offset, first)), decoder.replaced
        except InputError:
            done = count_lines_before(file)
            if not done:
                raise
        return _lines(read(corpus.decoder(), offset, done + first)), decoder.replaced
    if kind == "parquet":
        rows = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        return _lines(decode_rows(rows, file, decoder, count_rows_before(file) + first)), decoder.replaced
    return _lines([decoder.decode_blocks([data], file.name, offset)]), decoder.replaced


def _lines(documents: Iterable[Document]) -> bytes:
    return "".join(text for document in documents for text in end_lines(document)).encode()
