"""Divide a corpus into partitions of whole lines that several processes read independently.

A large plain file or JSON Lines is divided into byte ranges at line ends, a Parquet file into row groups; a
compressed file or a table is one partition. The concatenation of the partitions is the corpus.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from chainrule.errors import InputError
from chainrule.text.compiled_reader import open_reader
from chainrule.text.corpus import Corpus
from chainrule.text.readers import TextFile, file_format, is_compressed, row_group_sizes, warn_about_replaced

BLOCK_CHARACTERS: Final = 1 << 20
"""Approximate characters of a block of lines; ASCII is assumed."""
_READ: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TextPartition:
    """Consecutive lines of a corpus: one file, a byte range of it, or texts in memory."""

    corpus: Corpus

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self.blocks()

    def blocks(self, characters: int = BLOCK_CHARACTERS) -> Iterator[tuple[int, bytes]]:
        r"""Yield blocks of whole lines as UTF-8 with LF after each line, and the number of lines before each.

        >>> list(TextPartition(Corpus.from_lines(["one", "two"])))
        [(0, b'one\ntwo\n')]
        """
        reader = open_reader(self.corpus, block=characters, longest=None)
        if reader is None:
            raise ValueError(f"{self.corpus.name} is read once; copy it to a file")
        lines = 0
        while (block := reader.text.next_lines()) is not None:
            count, text = block
            yield lines, text
            lines += count
        warn_about_replaced(self.corpus.name, reader.replaced)


def partition_corpus(corpus: Corpus, partition_bytes: int) -> list[TextPartition]:
    """Divide a corpus into partitions of about `partition_bytes` bytes, in the order of the text."""
    files = [piece for file in corpus.files for piece in _divide_file(file, corpus.column, partition_bytes)]
    partitions = [TextPartition(replace(corpus, files=(file,), texts=())) for file in files]
    texts: list[str] = []
    size = 0
    in_memory: list[TextPartition] = []
    for text in corpus.texts:
        texts.append(text)
        size += len(text) + 1
        if size >= partition_bytes:
            in_memory.append(TextPartition(replace(corpus, files=(), texts=tuple(texts))))
            texts, size = [], 0
    if texts:
        in_memory.append(TextPartition(replace(corpus, files=(), texts=tuple(texts))))
    return in_memory + partitions


def _divide_file(file: TextFile, column: str | None, partition_bytes: int) -> list[TextFile]:
    """Divide a file into byte ranges that end after LF, or row groups; a compressed file or table is one part."""
    kind = file_format(file)
    if file.size <= partition_bytes or file.byte_range is not None or file.row_groups is not None:
        return [file]
    if kind == "parquet":
        return _divide_row_groups(file, partition_bytes)
    if (kind == "table" and column is not None) or is_compressed(file):
        return [file]
    bounds = [0]
    try:
        with file.path.open("rb") as raw:
            while bounds[-1] + partition_bytes < file.size:
                position = bounds[-1] + partition_bytes
                raw.seek(position - 1)
                while block := raw.read(_READ):
                    newline = block.find(b"\n")
                    if newline >= 0:
                        position = raw.tell() - len(block) + newline + 1
                        break
                else:
                    position = file.size
                bounds.append(min(position, file.size))
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error
    if bounds[-1] < file.size:
        bounds.append(file.size)
    return [replace(file, byte_range=(begin, end), size=end - begin) for begin, end in pairwise(bounds)]


def _divide_row_groups(file: TextFile, partition_bytes: int) -> list[TextFile]:
    parts: list[TextFile] = []
    first = size = 0
    sizes = row_group_sizes(file)
    for group, group_size in enumerate(sizes, start=1):
        size += group_size
        if size >= partition_bytes or group == len(sizes):
            parts.append(replace(file, row_groups=(first, group), size=size))
            first, size = group, 0
    return parts or [file]
