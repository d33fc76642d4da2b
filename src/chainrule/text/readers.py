"""Read text from files: find them, decompress, decode UTF-8 and select a column of records.

Sources are paths, folders, globs and `-` for standard input; compression (gzip, bzip2, xz, zstd) is detected by the
first bytes; records are JSON Lines, Parquet, CSV or TSV.
"""

import bz2
import codecs
import csv
import errno
import glob
import json
import lzma
import os
import re
import select
import shutil
import stat
import sys
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

from chainrule import system
from chainrule.errors import (
    ChainruleError,
    ChainruleWarning,
    InputError,
    MissingExtra,
    NotFoundError,
    UsageError,
    printable,
)
from chainrule.storage.temp_dir import ScratchFolder
from chainrule.text.lines import cut_lines, join_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sources = str | Path | Sequence[str | Path]
Errors = Literal["strict", "replace"]
Document = Iterable[str]  # text in chunks

BLOCK: Final = 1 << 16
LIMIT_VARIABLE: Final = "CHAINRULE_MAX_DECOMPRESSED"
"""Environment variable set by `--max-decompressed`: largest decompressed size of one file."""
LARGEST_RATIO: Final = 250
"""Largest compression ratio without `--max-decompressed`: text reaches 3 to 50, a decompression bomb 1,000."""
ALWAYS_ALLOWED: Final = 4 << 20
"""Decompressed bytes allowed at any compression ratio."""
CONVERT: Final = "convert it to UTF-8"
OPTION: Final = ", or read it with --errors replace"
"""Added to error messages of commands with the option `--errors`."""
_MARK: Final = "\ufeff"
_REPLACEMENT: Final = "\ufffd"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
ROWS: Final = 64
"""Smallest number of Parquet rows that are read at once."""
MOST_ROWS: Final = 4096
COLUMN_BYTES: Final = 1 << 18
"""Approximate bytes of the rows of a Parquet column that are read at once."""
TEXT: Final = "text"
"""Default text column of a record."""
TABLES: Final = (".csv", ".tsv")
LARGEST_CELL: Final = 1 << 26
"""Characters; an unclosed quote makes one cell of the rest of a file."""
JSON_LINES: Final = (".jsonl", ".ndjson")
SHARD_INDEX: Final = "ids.shards"
"""Index file of a folder of id shards (data/id_shards.py), which stands for the folder as a source of text."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextFile:
    """A regular file with read permission."""

    path: Path
    name: str  # for messages
    size: int  # bytes, as stored
    stream: "InputStream | None" = None  # standard input that can be read only once
    byte_range: tuple[int, int] | None = None  # whole lines of a plain file or JSON Lines; None for all of it
    row_groups: tuple[int, int] | None = None  # of a Parquet file; None for all


class InputStream:
    """Streamed standard input: a read waits for the first byte and returns the available bytes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._unread = b""

    def read(self, size: int = -1) -> bytes:
        """Read between 1 and `size` bytes; b"" at the end."""
        if self._unread:
            data, self._unread = self._unread[:size], self._unread[size:]
            return data
        return self._raw.read1(size) if hasattr(self._raw, "read1") else self._raw.read(size)

    def unread(self, data: bytes) -> None:
        """Push back bytes, to be read again."""
        self._unread = data + self._unread

    def peek_line(self) -> bytes:
        """Return the bytes up to the end of the first line that is not blank, without consuming them."""
        head = b""
        while not head.strip() or b"\n" not in head.lstrip():
            if not (data := self.read(1 << 16)):
                break
            head += data
        self.unread(head)
        return head

    def is_ready(self) -> bool:
        """Whether a read would not block: bytes are available, or the end is reached."""
        if self._unread:
            return True
        try:
            return bool(select.select([self._raw.fileno()], [], [], 0)[0])
        except (OSError, ValueError):  # not backed by a file descriptor: all data is in memory
            return True


def find_files(sources: Sources, *, reads_once: bool = False) -> tuple[TextFile, ...]:
    """Return the files of the sources in order; those of one folder or glob are sorted by path.

    Hidden files and links to folders inside a folder are skipped. `-` is standard input, which is copied to a
    temporary file so that it can be read repeatedly, or streamed with `reads_once`.
    """
    if not isinstance(sources, str | Path | Sequence):
        raise UsageError(
            f"{sources!r} is not a text source; give a file, a folder, a glob, or - for standard input"
        )
    names = [sources] if isinstance(sources, str | Path) else list(sources)
    if not names:
        raise UsageError("no text was given; give a file, a folder, a glob, or - for standard input")
    files: list[TextFile] = []
    for source in map(str, names):
        if source == "-":
            stream = InputStream(_stdin())
            files.append(TextFile(Path("-"), "standard input", 0, stream) if reads_once else spool(stream))
        else:
            files += map(_check_file, expand(source))
    return tuple(files)


def find_file(source: str | Path, remedy: str) -> TextFile:
    """Return the only file of a source; raise UsageError, with the remedy, if there are several."""
    files = find_files(source)
    if len(files) != 1:
        raise UsageError(f"{source} refers to {len(files)} files; {remedy}")
    return files[0]


def expand(source: str) -> list[str]:
    """Return the files of a folder or glob, sorted by path; any other path is returned unchecked."""
    if os.path.isfile(os.path.join(source, SHARD_INDEX)):
        return [os.path.join(source, SHARD_INDEX)]
    if os.path.isdir(source):
        paths, reason = _walk(source), f"the folder {source} contains no files (hidden ones are not read)"
    elif glob.has_magic(source) and not os.path.lexists(source):
        # A pattern such as ** matches a folder and the files in it: duplicates are removed below.
        matches = glob.glob(source, recursive=True)
        paths = [path for match in matches for path in (_walk(match) if os.path.isdir(match) else [match])]
        reason = f"no file matches {printable(source)} (looked in {_current_directory()})"
    else:
        return [source]
    if not paths:
        raise NotFoundError(f"{reason}; give at least one text file")
    return sorted(set(paths), key=Path)


def _current_directory() -> str:
    """Return the current directory for error messages."""
    try:
        return os.getcwd()
    except OSError:
        return "a current directory that no longer exists"


def _walk(folder: str) -> list[str]:
    paths: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.join(parent, name) for name in names if not name.startswith(".")]
    return paths


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {error.strerror}; check its permissions") from error


def _check_file(path: str) -> TextFile:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise NotFoundError(f"there is no file or folder {path!r} (looked in {_current_directory()})") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check the path") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is a pipe, socket or device, not a file; pipe its text in and give - instead")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} may not be read by this user; check its permissions")
    return TextFile(Path(path), path, status.st_size)


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; pipe a text in, or give a file")
    return sys.stdin.buffer


def spool(stream: InputStream) -> TextFile:
    """Copy standard input to a temporary file, which is removed with the returned object."""
    folder = ScratchFolder()
    path = folder.path / "standard-input"
    try:
        with path.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
    except BaseException as error:
        size = path.stat().st_size if path.exists() else 0
        folder.remove()
        if isinstance(error, OSError):
            raise _cannot_copy(error, folder.path.parent, size) from error
        raise
    file = TextFile(path, "standard input", path.stat().st_size)
    weakref.finalize(file, folder.remove)
    return file


def _cannot_copy(error: OSError, folder: Path, size: int) -> ChainruleError:
    """Return the error for a copy that failed after `size` bytes."""
    what = f"standard input cannot be copied to {folder}: {error.strerror} after {size / 1e6:,.1f} MB"
    if error.errno == errno.EISDIR:
        return InputError("standard input is a folder; pipe a text in, or give a file")
    return ChainruleError(f"{what}; this command reads its text more than once: give a file, or set TMPDIR")


class DecompressionLimit:
    """Guard against decompression bombs."""

    def __init__(self, name: str) -> None:
        setting = os.environ.get(LIMIT_VARIABLE)
        self._name = name
        self._bytes = None if setting is None else system.parse_size(setting, "--max-decompressed")

    def check(self, compressed: int, decompressed: int) -> None:
        """Raise `InputError` if the decompressed size exceeds the limit for this compressed size."""
        option = "--max-decompressed"
        if self._bytes is not None:
            if decompressed > self._bytes:
                raise InputError(
                    f"{self._name} contains more than {self._bytes:,} bytes, the limit set with {option}"
                )
        elif decompressed > max(ALWAYS_ALLOWED, LARGEST_RATIO * compressed):
            raise InputError(
                f"{self._name} contains more than {LARGEST_RATIO} times its compressed size ({decompressed:,} "
                "bytes "
                f"of {compressed:,} so far): this may be a decompression bomb; "
                f"if it is not, allow it with {option} 2G"
            )


_Opener = tuple[Callable[[], Any], type[Exception]]  # decompressor factory, and its error for damaged data


def _zstd() -> _Opener:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("reading zstd needs zstandard: pip install 'chainrule[data]'") from None
    return lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    suffix: str
    magic: bytes
    chunk: int  # compressed bytes that decompress to at most about 1 MiB
    opener: Callable[[], _Opener]


_FORMATS: Final = (
    _Format(
        "gzip", ".gz", b"\x1f\x8b", 1024, lambda: (partial(zlib.decompressobj, zlib.MAX_WBITS | 16), zlib.error)
    ),  # at most 1 : 1032
    _Format(
        "xz", ".xz", b"\xfd7zXZ\x00", 128, lambda: (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError)
    ),  # at most 1 : 7100
    _Format("zstd", ".zst", b"\x28\xb5\x2f\xfd", 32, _zstd),  # 128 KiB from a block of 4 bytes
    # One magic for each block size; a block of 45 bytes holds at most 46 MB.
    *(
        _Format("bzip2", ".bz2", b"BZh%d1AY&" % level, 32, lambda: (bz2.BZ2Decompressor, OSError))
        for level in range(1, 10)
    ),
)
SUFFIXES: Final = tuple(dict.fromkeys(format_.suffix for format_ in _FORMATS))


def read_blocks(file: TextFile, size: int | None = None) -> Iterator[bytes]:
    """Yield the decompressed content in non-empty blocks of `size` bytes (default `BLOCK`), the last one shorter.

    For a stream, a block contains the bytes that are available without waiting.
    """
    size = BLOCK if size is None else size
    try:
        if file.stream is not None:
            head = _peek(file.stream)
            yield from _read(file.stream, _detect_format(head, file.name), file.name, size)
            return
        with file.path.open("rb") as raw:
            if file.byte_range is not None:
                yield from _read_range(raw, *file.byte_range, size)
                return
            head = raw.read(8)
            raw.seek(0)
            yield from _read(raw, _detect_format(head, file.name), file.name, size)
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error


def _read_range(raw: BinaryIO, begin: int, end: int, size: int) -> Iterator[bytes]:
    raw.seek(begin)
    while begin < end and (data := raw.read(min(size, end - begin))):
        yield data
        begin += len(data)


def is_compressed(file: TextFile) -> bool:
    """Whether a file is compressed, by its first bytes or its suffix."""
    with file.path.open("rb") as raw:
        return _detect_format(raw.read(8), file.name) is not None


def _read(raw: BinaryIO | InputStream, format_: "_Format | None", name: str, size: int) -> Iterator[bytes]:
    if format_ is None:
        yield from iter(lambda: raw.read(size), b"")
    elif isinstance(raw, InputStream):
        yield from filter(None, _decompress(raw, format_, name))
    else:
        _check_beginning(raw, format_, name)
        yield from _regroup(_decompress(raw, format_, name), size)


def _check_beginning(raw: BinaryIO, format_: "_Format", name: str) -> None:
    """Decompress and discard `ALWAYS_ALLOWED` bytes, so that a bomb raises before any line is read."""
    size = 0
    for block in _decompress(raw, format_, name):
        size += len(block)
        if size > ALWAYS_ALLOWED:
            break
    raw.seek(0)


def _peek(stream: InputStream) -> bytes:
    """Return enough of the first bytes to distinguish compressed data from text, without consuming them."""
    head = b""
    while any(format_.magic != head and format_.magic.startswith(head) for format_ in _FORMATS):
        if not (data := stream.read(BLOCK)):
            break
        head += data
    stream.unread(head)
    return head


def _detect_format(head: bytes, name: str) -> _Format | None:
    """Detect the format by the magic bytes, else by the suffix, so that a damaged header is not read as text."""
    by_magic = (format_ for format_ in _FORMATS if head.startswith(format_.magic))
    by_suffix = (format_ for format_ in _FORMATS if name.lower().endswith(format_.suffix))
    return next(by_magic, None) or next(by_suffix, None)


def _decompress(raw: BinaryIO | InputStream, format_: _Format, name: str) -> Iterator[bytes]:
    start, damage = format_.opener()
    stream = start()
    limit = DecompressionLimit(name)
    compressed = decompressed = 0
    while data := raw.read(format_.chunk):
        compressed += len(data)
        # A stream may be followed by zero padding and further streams.
        while data := data.lstrip(b"\0") if stream.eof else data:
            stream = start() if stream.eof else stream
            try:
                block = stream.decompress(data)
            except damage as error:
                what = f"{name} is damaged {format_.name} data ({error})"
                raise InputError(f"{what}; fetch or pack it again") from error
            decompressed += len(block)
            limit.check(compressed, decompressed)
            yield block
            data = stream.unused_data
    if not stream.eof:
        raise InputError(f"{name} is {format_.name} data cut short; fetch or pack it again")


def _regroup(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Regroup bytes into blocks of `size`."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


def warn_about_replaced(name: str, count: int) -> None:
    """Warn about the number of invalid UTF-8 sequences, if any."""
    if count:
        message = f"{name}: {count} sequences are not UTF-8 and were read as U+FFFD"
        warnings.warn(message, ChainruleWarning, stacklevel=3)


@dataclass(slots=True)
class Decoder:
    """Decoder for one pass over a corpus; `replaced` counts the invalid UTF-8 sequences so far."""

    errors: Errors = "strict"
    replaced: int = 0
    remedy: str = CONVERT + OPTION  # advice in error messages

    def decode_blocks(self, blocks: Iterable[bytes], where: str, offset: int = 0) -> Iterator[str]:
        """Decode non-empty blocks of a file from byte `offset` on and drop its byte order mark.

        The text before an invalid sequence is yielded before the error is raised.
        """
        rest = b""
        for block in chain(blocks, [b""]):
            data = rest + block
            try:
                text, used = codecs.utf_8_decode(data, self.errors, not block)
            except UnicodeDecodeError as error:
                text = data[: error.start].decode()
                yield text if offset else text.removeprefix(_MARK)
                raise self._invalid(where, offset, error) from None
            self._count_replaced(text, data)
            yield text if offset else text.removeprefix(_MARK)
            rest, offset = data[used:], offset + used

    def decode_document(self, data: bytes, where: str) -> str:
        """Decode a whole document."""
        try:
            text = data.decode(errors=self.errors)
        except UnicodeDecodeError as error:
            raise self._invalid(where, 0, error) from None
        self._count_replaced(text, data)
        return text

    def check(self, text: str, where: str) -> str:
        """Return the text; raise for or replace lone surrogates, which JSON can contain but UTF-8 cannot encode."""
        if self.errors == "strict" and (match := _SURROGATE.search(text)):
            code = ord(match[0])
            raise InputError(f"{where} contains the lone surrogate U+{code:X}, which is not text; {self.remedy}")
        text, count = _SURROGATE.subn(_REPLACEMENT, text)
        self.replaced += count
        return text

    def _invalid(self, where: str, offset: int, error: UnicodeDecodeError) -> InputError:
        byte = error.object[error.start]
        return InputError(f"{where} is not UTF-8 at byte {offset + error.start} (0x{byte:02x}); {self.remedy}")

    def _count_replaced(self, text: str, data: bytes) -> None:
        if self.errors == "replace":
            # Do not count U+FFFD characters that are in the file.
            self.replaced += text.count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())


def read_lines(file: TextFile, decoder: Decoder) -> Iterator[str]:
    """Yield the lines of a file as plain text, whatever its suffix."""
    return join_lines(cut_lines(decoder.decode_blocks(read_blocks(file), file.name)))


def read_documents(file: TextFile, column: str | None, decoder: Decoder) -> Iterator[Document]:
    """Yield the documents of a file; `column` is the text column of records (default `text`).

    A CSV or TSV file is a table if a column is named, else plain text.
    """
    check_is_text(file)
    kind = file_format(file)
    if kind == "json":
        yield from _read_json_lines(file, column or TEXT, decoder)
    elif kind == "parquet":
        yield from _read_parquet(file, column or TEXT, decoder)
    elif kind == "table" and column is not None:
        yield from _read_table(file, column, decoder)
    else:
        offset = 0 if file.byte_range is None else file.byte_range[0]
        yield decoder.decode_blocks(read_blocks(file), file.name, offset)


def check_is_text(file: TextFile) -> None:
    """Raise for a folder of id shards."""
    if file.path.name == SHARD_INDEX:
        raise UsageError(
            f"{file.path.parent} contains token ids, not text; give the text that was encoded, or this folder "
            "alone to chainrule train"
        )


def uncompressed_name(file: TextFile) -> str:
    """Return the lower-cased name of a file without the suffix of a compression format."""
    name = file.path.name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def file_format(file: TextFile) -> Literal["json", "parquet", "table", "plain"]:
    """Return the format of a file by its name."""
    name = uncompressed_name(file)
    if name.endswith(JSON_LINES):
        return "json"
    if name.endswith(".parquet"):
        return "parquet"
    return "table" if name.endswith(TABLES) else "plain"


def check_column(file: TextFile, column: str | None, expects_lines: bool) -> None:
    """Raise if a column of plain text is named; warn if a table is read as lines."""
    kind = file_format(file)
    if kind == "plain" and column is not None:
        raise UsageError(
            f"{file.name} is plain text and has no column {column!r}; leave out --column, "
            "or give a .csv, .tsv, .jsonl or .parquet file"
        )
    if kind == "table" and column is None and expects_lines:
        warnings.warn(
            f"{file.name} is read as lines of text, header and quotes included; --column NAME reads one column",
            ChainruleWarning,
            stacklevel=4,
        )


def _read_table(file: TextFile, column: str, decoder: Decoder) -> Iterator[Document]:
    """Yield the cells of one column of a CSV or TSV file with a header, quoted as in the csv module."""
    csv.field_size_limit(LARGEST_CELL)
    lines = (f"{line}\n" for line in read_lines(file, decoder))
    header = next(lines, "")
    names, delimiter = _header(header, column, file)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for row in rows:
            where = f"{file.name}, line {rows.line_num + 1}"
            if row and len(row) != len(names):
                raise InputError(
                    f"{where} has {len(row)} cells but the header has {len(names)}; quote or correct it"
                )
            if row:
                yield [decoder.check(row[names.index(column)], where) or "\n"]
    except csv.Error as error:
        where = f"{file.name}, line {rows.line_num + 1}"
        raise InputError(f"{where} is not a table row ({error}); correct its quotes") from None


def _header(line: str, column: str, file: TextFile) -> tuple[list[str], str]:
    """Return the column names and the delimiter: comma or semicolon, or tab in a TSV file."""
    is_tsv = ".tsv" in file.path.name.lower()
    names: list[str] = []
    for delimiter in ("\t",) if is_tsv else (",", ";"):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True), [])]
        except csv.Error as error:
            raise InputError(f"{file.name}, line 1 is not a header ({error}); correct its quotes") from None
        names = names or cells
        if cells.count(column) == 1:
            return cells, delimiter
    if column in names:
        raise InputError(f"{file.name} has {names.count(column)} columns {column!r}; give each a different name")
    raise InputError(_missing(file.name, column, names))


def _read_json_lines(file: TextFile, column: str, decoder: Decoder) -> Iterator[Document]:
    offset = 0 if file.byte_range is None else file.byte_range[0]
    yield from read_json_blocks(read_blocks(file), file, column, decoder, offset, count_lines_before(file))


def count_lines_before(file: TextFile) -> int:
    """Count the lines of a file before its byte range."""
    if file.byte_range is None:
        return 0
    count, last = 0, b""
    for block in read_blocks(replace(file, byte_range=(0, file.byte_range[0]))):
        count += block.count(b"\n") + block.count(b"\r") - (last + block).count(b"\r\n")
        last = block[-1:]
    return count


def read_json_blocks(
    blocks: Iterable[bytes], file: TextFile, column: str, decoder: Decoder, offset: int, done: int
) -> Iterator[Document]:
    """Yield the texts of JSON Lines in blocks of bytes; `done` lines and `offset` bytes precede them."""
    lines = join_lines(cut_lines(decoder.decode_blocks(blocks, file.name, offset)))
    for record, where in parse_records(lines, file.name, done):
        if column not in record:
            raise InputError(_missing(where, column, list(record)))
        yield [decoder.check(check_text(record[column], column, where), where) or "\n"]  # an empty text is one line


def parse_object(line: str) -> dict[str, Any] | None:
    """Parse a line as a JSON object; None if it is not one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_records(lines: Iterable[str], name: str, done: int = 0) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the records of JSON Lines with their locations; `done` lines of the file `name` precede the lines."""
    for number, line in enumerate(lines, start=done + 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON ({error}); each line must be one JSON object") from None
        if not isinstance(record, dict):
            raise InputError(f"{where} is not a JSON object; each line must be one")
        yield record, where


def check_text(value: Any, column: str, where: str) -> str:
    """Return the value of a record's column; raise unless it is a string."""
    if not isinstance(value, str):
        raise InputError(f"{where}: {column!r} is {json.dumps(value)[:40]}, not a text; correct or drop the record")
    return value


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive texts of a Parquet column as stored, which may be invalid UTF-8."""

    offsets: "NDArray[np.int64]"  # (N + 1,) of the texts in `data`
    data: Any  # buffer

    def __getitem__(self, row: int) -> bytes:
        return bytes(memoryview(self.data)[self.offsets[row] : self.offsets[row + 1]])

    def __len__(self) -> int:
        return len(self.offsets) - 1


def _read_parquet(file: TextFile, column: str, decoder: Decoder) -> Iterator[Document]:
    number = count_rows_before(file)
    for rows in read_rows(file, column):
        yield from decode_rows(rows, file, decoder, number)
        number += len(rows)


def decode_rows(rows: Sequence[bytes] | Rows, file: TextFile, decoder: Decoder, done: int) -> Iterator[Document]:
    """Yield the texts of rows; `done` rows precede them in the file."""
    for row in range(len(rows)):
        yield [decoder.decode_document(rows[row], f"{file.name}, row {done + row + 1}") or "\n"]


def _open_parquet(file: TextFile) -> Any:
    from pyarrow import parquet

    # With a buffer and no pre-buffering, pages are read one at a time instead of a row group.
    return parquet.ParquetFile(file.path, pre_buffer=False, buffer_size=1 << 16, page_checksum_verification=True)


@contextmanager
def _parquet_errors(file: TextFile) -> Iterator[None]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("reading Parquet needs pyarrow: pip install 'chainrule[data]'") from None
    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{file.name} cannot be read as Parquet ({error}); fetch or write it again") from error


def row_group_sizes(file: TextFile) -> list[int]:
    """Return the stored bytes of the row groups of a Parquet file."""
    with _parquet_errors(file), _open_parquet(file) as table:
        groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
        return [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]


def count_rows_before(file: TextFile) -> int:
    """Count the rows of a Parquet file before its range of row groups."""
    if file.row_groups is None:
        return 0
    with _parquet_errors(file), _open_parquet(file) as table:
        return _rows_before(table, file.row_groups[0])


def _rows_before(table: Any, group: int) -> int:
    return sum(int(table.metadata.row_group(i).num_rows) for i in range(group))


def read_rows(file: TextFile, column: str) -> Iterator[Rows]:
    """Yield the texts of a Parquet column in blocks of about `COLUMN_BYTES`."""
    with _parquet_errors(file), _open_parquet(file) as table:
        _check_column(table.schema_arrow, column, file.name)
        first, last = file.row_groups or (0, table.num_row_groups)
        number = _rows_before(table, first)
        limit, size = _RowLimit(file, column), 0
        for group in range(first, last):
            count = _rows_per_batch(table, group, column)
            for batch in table.iter_batches(count, row_groups=[group], columns=[column]):
                rows, error = limit.check(batch.column(0), number, size)
                if len(rows):
                    yield rows
                if error is not None:
                    raise error
                number += len(rows)
                size += int(rows.offsets[-1] - rows.offsets[0])


def _rows_per_batch(table: Any, group: int, column: str) -> int:
    """Return the number of rows of a row group with about `COLUMN_BYTES` of the column."""
    names = table.schema_arrow.names
    about = table.metadata.row_group(group)
    is_flat = len(names) == about.num_columns
    size = about.column(names.index(column)).total_uncompressed_size if is_flat else about.total_byte_size
    rows = COLUMN_BYTES * int(about.num_rows) // max(int(size), 1)
    return min(max(rows, ROWS), MOST_ROWS)


class _RowLimit:
    """Check of the rows of a Parquet column for nulls and for their decompressed size."""

    def __init__(self, file: TextFile, column: str) -> None:
        self._name, self._column = file.name, column
        self._stored = file.path.stat().st_size
        self._limit = DecompressionLimit(file.name)

    def check(self, texts: Any, number: int, size: int) -> tuple[Rows, InputError | None]:
        """Return the texts of an Arrow array up to the first row in error, and this error.

        `number` rows of `size` bytes precede them.
        """
        import numpy as np
        import pyarrow

        stored = texts.cast(pyarrow.large_binary())
        _, offsets, data = stored.buffers()
        bounds = np.frombuffer(offsets, np.int64)[stored.offset : stored.offset + len(stored) + 1]
        end, error = len(stored), None
        if stored.null_count:
            end = stored.is_null().index(True).as_py()
            where = f"{self._name}, row {number + end + 1}"
            error = InputError(f"{where}: {self._column!r} is null, not a text; correct or drop the row")
        sizes = (size + bounds[1 : end + 1] - bounds[0]).tolist()
        if sizes and self._error(sizes[-1]) is not None:
            end = next(row for row, total in enumerate(sizes) if self._error(total) is not None)
            error = self._error(sizes[end])
        return Rows(bounds[: end + 1], b"" if data is None else data), error

    def _error(self, size: int) -> InputError | None:
        try:
            self._limit.check(self._stored, size)
        except InputError as error:
            return error
        return None


def _check_column(schema: Any, column: str, name: str) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise InputError(_missing(name, column, schema.names))
    kind = schema.field(column).type
    values = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(values) or types.is_large_string(values) or types.is_string_view(values)):
        raise InputError(f"{name}: the column {column!r} contains {kind}, not text; specify another with --column")


def _missing(where: str, column: str, columns: list[str]) -> str:
    return f"{where} has no column {column!r}; specify one of these with --column: {', '.join(columns) or '(none)'}"
