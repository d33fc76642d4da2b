"""Records, the unit of exchange between stages, and the record files that store them.

A record is a key and a payload. A record file holds the payloads, then the keys (int64), the payload sizes
(uint64), and a trailer with the number of records, so that the records of one key are read without the others.
"""

import mmap
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ChainruleError
from chainrule.text.partitions import TextPartition

Record = tuple[int, bytes]
"""Key and payload."""
Function = Callable[[int, Iterator[Record]], Iterator[Record]]
"""Partition number and its records -> records; picklable, and independent of the order of the records."""

LARGEST_PAYLOAD: Final = 1 << 30
"""Bytes of a payload that can be shuffled."""

_TRAILER: Final = struct.Struct("<Q8s")
_MAGIC: Final = b"CRRECS01"


class Records(Protocol):
    """A collection of records in partitions; `records[p]` is picklable and is read when it is iterated."""

    def __len__(self) -> int:
        """Return the number of partitions."""
        ...

    def __getitem__(self, partition: int, /) -> Iterable[Record]:
        """Return a partition; raise IndexError beyond the last."""
        ...


@dataclass(frozen=True, slots=True)
class TextRecords:
    """Lines of a corpus in blocks of whole lines; the key is the number of lines before the block in its partition.

    Blocks are UTF-8 with LF after each line. The lines of partition 0 come first in the corpus, then those of
    partition 1, and so on.
    """

    texts: tuple[TextPartition, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, partition: int, /) -> Iterable[Record]:
        return self.texts[partition]


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Records of a file in the order in which they were written; with `key`, those with this key only."""

    path: Path
    key: int | None = None

    def __iter__(self) -> Iterator[Record]:
        return read_records(self.path, self.key)


@dataclass(frozen=True, slots=True)
class ShuffledPartition:
    """Records with one key of the files of all tasks."""

    folder: Path
    tasks: int
    key: int

    def __iter__(self) -> Iterator[Record]:
        for task in range(self.tasks):
            yield from read_records(self.folder / task_file(task), self.key)


@dataclass(frozen=True, slots=True)
class StageRecords:
    """Output of a stage in the files of its tasks.

    Without `partitions`, each task wrote one partition. With it, the output is shuffled: partition p holds the
    records with key p of all tasks.
    """

    folder: Path
    tasks: int
    partitions: int | None = None

    def __len__(self) -> int:
        return self.tasks if self.partitions is None else self.partitions

    def __getitem__(self, partition: int, /) -> Iterable[Record]:
        if not 0 <= partition < len(self):
            raise IndexError(f"partition {partition} of {len(self)}")
        if self.partitions is None:
            return RecordFile(self.folder / task_file(partition))
        return ShuffledPartition(self.folder, self.tasks, partition)


@dataclass(frozen=True, slots=True)
class EmptyRecords:
    """Partitions without records."""

    partitions: int

    def __len__(self) -> int:
        return self.partitions

    def __getitem__(self, partition: int, /) -> Iterable[Record]:
        if not 0 <= partition < self.partitions:
            raise IndexError(f"partition {partition} of {self.partitions}")
        return ()


@dataclass(frozen=True, slots=True)
class JoinedPartition:
    """Records of several partitions, one after the other."""

    parts: tuple[Iterable[Record], ...]

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.parts)


@dataclass(frozen=True, slots=True)
class JoinedRecords:
    """Several collections with the same number of partitions; partition p holds the records of all partitions p."""

    collections: tuple[Records, ...]

    def __len__(self) -> int:
        return len(self.collections[0])

    def __getitem__(self, partition: int, /) -> Iterable[Record]:
        return JoinedPartition(tuple(records[partition] for records in self.collections))


def join_records(collections: Sequence[Records]) -> Records:
    """Return one collection that contains the records of all collections, partition by partition."""
    sizes = {len(records) for records in collections}
    if len(sizes) != 1:
        raise ValueError(f"the collections have {sorted(sizes)} partitions; join collections with the same number")
    return collections[0] if len(collections) == 1 else JoinedRecords(tuple(collections))


def task_file(task: int) -> str:
    """Return the name of the record file of a task."""
    return f"{task:06d}.records"


def write_records(path: Path, records: Iterator[Record], largest_key: int | None = None) -> int:
    """Write a record file and return its number of records; the file appears under its name when it is complete.

    With `largest_key`, a record with a key outside [0, largest_key] or a payload too large for a shuffle raises.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    keys: list[int] = []
    sizes: list[int] = []
    try:
        with temporary.open("wb") as file:
            for key, payload in records:
                if largest_key is not None and not 0 <= key <= largest_key:
                    raise ValueError(f"a record has the key {key}; this shuffle has keys from 0 to {largest_key}")
                if largest_key is not None and len(payload) > LARGEST_PAYLOAD:
                    raise ValueError(f"a record has {len(payload)} bytes; the limit is {LARGEST_PAYLOAD}")
                file.write(payload)
                keys.append(key)
                sizes.append(len(payload))
            file.write(np.array(keys, np.int64).tobytes() + np.array(sizes, np.uint64).tobytes())
            file.write(_TRAILER.pack(len(keys), _MAGIC))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return len(keys)


def read_records(path: Path, key: int | None = None) -> Iterator[Record]:
    """Yield the records of a file, or those with one key, in the order in which they were written."""
    try:
        with path.open("rb") as file:
            keys, sizes = _read_index(path, file.seek(0, os.SEEK_END), file.fileno())
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            rows = np.arange(len(keys)) if key is None else np.flatnonzero(keys == key)
            for row in rows.tolist():
                size = int(sizes[row])
                payload = os.pread(file.fileno(), size, int(offsets[row]))
                while len(payload) < size:  # one call reads at most 2 GiB
                    rest = os.pread(file.fileno(), size - len(payload), int(offsets[row]) + len(payload))
                    if not rest:
                        raise _damaged(path)
                    payload += rest
                yield int(keys[row]), payload
    except OSError as error:
        raise ChainruleError(f"{path} cannot be read: {error.strerror}; run again without --resume") from error


def map_payload(path: Path) -> memoryview:
    """Map the payload of the first record of a file into memory."""
    content = map_file(path)
    with path.open("rb") as file:
        _, sizes = _read_index(path, len(content), file.fileno())
    if not len(sizes):
        raise _damaged(path)
    return memoryview(content)[: int(sizes[0])]


def map_file(path: Path) -> mmap.mmap:
    """Map a file that is not empty into memory."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ChainruleError(f"{path} cannot be read: {error}; run again without --resume") from error


def _read_index(path: Path, size: int, descriptor: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return keys and payload sizes of the records of a file."""
    trailer = os.pread(descriptor, _TRAILER.size, max(0, size - _TRAILER.size))
    if len(trailer) < _TRAILER.size:
        raise _damaged(path)
    count, magic = _TRAILER.unpack(trailer)
    begin = size - _TRAILER.size - 16 * count
    if magic != _MAGIC or begin < 0:
        raise _damaged(path)
    index = os.pread(descriptor, 16 * count, begin)
    keys, sizes = np.frombuffer(index[: 8 * count], np.int64), np.frombuffer(index[8 * count :], np.uint64)
    if int(sizes.sum()) != begin:
        raise _damaged(path)
    return keys, sizes


def _damaged(path: Path) -> ChainruleError:
    return ChainruleError(f"{path} is not a complete record file; run again without --resume")
