"""Read a file in blocks of bytes, decompressing gzip, bzip2, xz and zstd in bounded memory."""

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from chainrule import memory
from chainrule.errors import InputError, MissingExtra
from chainrule.text.files import InputStream, TextFile

BLOCK: Final = 1 << 16
LIMIT_VARIABLE: Final = "CHAINRULE_MAX_DECOMPRESSED"
"""Environment variable set by `--max-decompressed`: largest decompressed size of one file."""
LARGEST_RATIO: Final = 250
"""Largest compression ratio without `--max-decompressed`: text reaches 3 to 50, a decompression bomb 1,000."""
ALWAYS_ALLOWED: Final = 4 << 20
"""Decompressed bytes allowed at any compression ratio."""


class DecompressionLimit:
    """Guard against decompression bombs."""

    def __init__(self, name: str) -> None:
        setting = os.environ.get(LIMIT_VARIABLE)
        self._name = name
        self._bytes = None if setting is None else memory.parse_size(setting, "--max-decompressed")

    def check(self, compressed: int, decompressed: int) -> None:
        """Raise `InputError` if the decompressed size exceeds the limit for this compressed size."""
        option = "--max-decompressed"
        if self._bytes is not None:
            if decompressed > self._bytes:
                raise InputError(f"{self._name} holds more than {self._bytes:,} bytes, the limit set with {option}")
        elif decompressed > max(ALWAYS_ALLOWED, LARGEST_RATIO * compressed):
            raise InputError(
                f"{self._name} holds more than {LARGEST_RATIO} times its compressed size ({decompressed:,} bytes "
                f"of {compressed:,} so far): this may be a decompression bomb; "
                f"if it is not, allow it with {option} 2G"
            )


class _Stream(Protocol):
    """Decompressor of one stream; a file may contain several, concatenated."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


_Opener = tuple[Callable[[], _Stream], type[Exception]]  # decompressor factory, and its error for damaged data


def _gzip() -> _Opener:
    return lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error


class _Bzip2Error(Exception):
    """Damaged bzip2 data; `bz2` raises OSError, which cannot be distinguished from a disk error."""


class _Bzip2Stream:
    """A bzip2 decompressor that raises `_Bzip2Error` for damaged data."""

    def __init__(self) -> None:
        self._decompressor = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    @property
    def unused_data(self) -> bytes:
        return self._decompressor.unused_data

    def decompress(self, data: bytes, /) -> bytes:
        try:
            return self._decompressor.decompress(data)
        except OSError as error:
            raise _Bzip2Error(str(error)) from error


def _bzip2() -> _Opener:
    return _Bzip2Stream, _Bzip2Error


def _xz() -> _Opener:
    return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError


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
    _Format("gzip", ".gz", b"\x1f\x8b", 1024, _gzip),  # at most 1 : 1032
    _Format("xz", ".xz", b"\xfd7zXZ\x00", 128, _xz),  # at most 1 : 7100
    _Format("zstd", ".zst", b"\x28\xb5\x2f\xfd", 32, _zstd),  # 128 KiB from a block of 4 bytes
    # One magic for each block size; a block of 45 bytes holds at most 46 MB.
    *(_Format("bzip2", ".bz2", b"BZh%d1AY&" % level, 32, _bzip2) for level in range(1, 10)),
)
SUFFIXES: Final = tuple(dict.fromkeys(format_.suffix for format_ in _FORMATS))


def read_blocks(file: TextFile) -> Iterator[bytes]:
    """Yield the decompressed content in non-empty blocks of `BLOCK` bytes, the last one shorter.

    For a stream, a block contains the bytes that are available without waiting.
    """
    try:
        if file.stream is not None:
            head = _peek(file.stream)
            yield from _read(file.stream, _detect_format(head, file.name), file.name)
            return
        with file.path.open("rb") as raw:
            head = raw.read(8)
            raw.seek(0)
            yield from _read(raw, _detect_format(head, file.name), file.name)
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error


def _read(raw: BinaryIO | InputStream, format_: "_Format | None", name: str) -> Iterator[bytes]:
    if format_ is None:
        yield from iter(lambda: raw.read(BLOCK), b"")
    elif isinstance(raw, InputStream):
        yield from filter(None, _decompress(raw, format_, name))
    else:
        _check_beginning(raw, format_, name)
        yield from _regroup(_decompress(raw, format_, name))


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
    try:
        while data := raw.read(format_.chunk):
            compressed += len(data)
            # A stream may be followed by zero padding and further streams.
            while data := data.lstrip(b"\0") if stream.eof else data:
                stream = start() if stream.eof else stream
                block = stream.decompress(data)
                decompressed += len(block)
                limit.check(compressed, decompressed)
                yield block
                data = stream.unused_data
    except damage as error:
        raise InputError(f"{name} is damaged {format_.name} data ({error}); fetch or pack it again") from error
    if not stream.eof:
        raise InputError(f"{name} is {format_.name} data cut short; fetch or pack it again")


def _regroup(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Regroup bytes into blocks of `BLOCK`."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= BLOCK:
            yield bytes(buffer[:BLOCK])
            del buffer[:BLOCK]
    if buffer:
        yield bytes(buffer)
