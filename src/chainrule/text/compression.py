"""A file -> blocks of the bytes it holds, unpacked if need be, in bounded memory.

Lives here: gzip, bzip2, xz and zstd, told apart by their first bytes. Not here: what the bytes mean (utf8.py).
"""

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
"""The environment variable that `--max-decompressed` sets: most bytes that one compressed file may hold."""
USUAL_RATIO: Final = 250
"""Times its own size that a file may hold without that: text reaches 3 to 50, a decompression bomb 1,000."""
ALWAYS_ALLOWED: Final = 4 << 20
"""Bytes that a file may hold whatever the ratio."""


class DecompressionLimit:
    """Refuses a file that holds much more than text does for its size: a decompression bomb."""

    def __init__(self, name: str) -> None:
        setting = os.environ.get(LIMIT_VARIABLE)
        self._name = name
        self._bytes = None if setting is None else memory.bytes_of(setting, "--max-decompressed")

    def check(self, compressed: int, decompressed: int) -> None:
        """Raise `InputError` if so many bytes are more than may come of so many compressed ones."""
        option = "--max-decompressed"
        if self._bytes is not None:
            if decompressed > self._bytes:
                raise InputError(f"{self._name} holds more than {self._bytes:,} bytes, the limit set with {option}")
        elif decompressed > max(ALWAYS_ALLOWED, USUAL_RATIO * compressed):
            raise InputError(
                f"{self._name} holds more than {USUAL_RATIO} times its compressed size ({decompressed:,} bytes of "
                f"{compressed:,} so far): this may be a decompression bomb; if it is not, allow it with {option} 2G"
            )


class _Stream(Protocol):
    """One compressed stream being unpacked; a file may hold several, end to end."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


_Opener = tuple[Callable[[], _Stream], type[Exception]]  # starts a stream; what it raises when damaged


def _gzip() -> _Opener:
    return lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error


class _Bzip2Error(Exception):
    """Damaged bzip2 data; `bz2` raises OSError, which a failing disk does, too."""


class _Bzip2Stream:
    """A bzip2 stream whose damage can be told from a failure to read."""

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
class _Packing:
    name: str
    suffix: str
    magic: bytes
    bite: int  # bytes that unpack to at most about 1 MiB, however well the file is packed
    opener: Callable[[], _Opener]


_PACKINGS: Final = (
    _Packing("gzip", ".gz", b"\x1f\x8b", 1024, _gzip),  # at most 1 : 1032
    _Packing("xz", ".xz", b"\xfd7zXZ\x00", 128, _xz),  # at most 1 : 7100
    _Packing("zstd", ".zst", b"\x28\xb5\x2f\xfd", 32, _zstd),  # 128 KiB from a block of 4 bytes
    # One magic for each block size; a block of 45 bytes holds at most 46 MB.
    *(_Packing("bzip2", ".bz2", b"BZh%d1AY&" % level, 32, _bzip2) for level in range(1, 10)),
)
SUFFIXES: Final = tuple(dict.fromkeys(packing.suffix for packing in _PACKINGS))


def read_blocks(file: TextFile) -> Iterator[bytes]:
    """The unpacked bytes of the file in blocks of `BLOCK`, the last one shorter, none of them empty.

    Those of a stream come as they are written: a block is what could be read without waiting for more.
    """
    try:
        if file.stream is not None:
            head = _peek(file.stream)
            yield from _read(file.stream, _recognise(head, file.name), file.name)
            return
        with file.path.open("rb") as raw:
            head = raw.read(8)
            raw.seek(0)
            yield from _read(raw, _recognise(head, file.name), file.name)
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error


def _read(raw: BinaryIO | InputStream, packing: "_Packing | None", name: str) -> Iterator[bytes]:
    if packing is None:
        yield from iter(lambda: raw.read(BLOCK), b"")
    elif isinstance(raw, InputStream):
        yield from filter(None, _unpack(raw, packing, name))
    else:
        _check_beginning(raw, packing, name)
        yield from _regroup(_unpack(raw, packing, name))


def _check_beginning(raw: BinaryIO, packing: "_Packing", name: str) -> None:
    """Unpack `ALWAYS_ALLOWED` bytes and discard them, so that a bomb is refused before its lines are read."""
    size = 0
    for block in _unpack(raw, packing, name):
        size += len(block)
        if size > ALWAYS_ALLOWED:
            break
    raw.seek(0)


def _peek(stream: InputStream) -> bytes:
    """As many of the first bytes as it takes to tell compressed data from text."""
    head = b""
    while any(packing.magic != head and packing.magic.startswith(head) for packing in _PACKINGS):
        if not (data := stream.read(BLOCK)):
            break
        head += data
    stream.unread(head)
    return head


def _recognise(head: bytes, name: str) -> _Packing | None:
    """By the first bytes; failing those by the suffix, so that a damaged head is not read as text."""
    by_magic = (packing for packing in _PACKINGS if head.startswith(packing.magic))
    by_suffix = (packing for packing in _PACKINGS if name.lower().endswith(packing.suffix))
    return next(by_magic, None) or next(by_suffix, None)


def _unpack(raw: BinaryIO | InputStream, packing: _Packing, name: str) -> Iterator[bytes]:
    start, damage = packing.opener()
    stream = start()
    limit = DecompressionLimit(name)
    compressed = decompressed = 0
    try:
        while data := raw.read(packing.bite):
            compressed += len(data)
            # Streams may be followed by others, and padded with zeros before these.
            while data := data.lstrip(b"\0") if stream.eof else data:
                stream = start() if stream.eof else stream
                block = stream.decompress(data)
                decompressed += len(block)
                limit.check(compressed, decompressed)
                yield block
                data = stream.unused_data
    except damage as error:
        raise InputError(f"{name} is damaged {packing.name} data ({error}); fetch or pack it again") from error
    if not stream.eof:
        raise InputError(f"{name} is {packing.name} data cut short; fetch or pack it again")


def _regroup(pieces: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= BLOCK:
            yield bytes(held[:BLOCK])
            del held[:BLOCK]
    if held:
        yield bytes(held)
