"""A text as token ids, with the counts needed for per-word and per-byte metrics, and its batches."""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from chainrule.lm import Batch, Ids

_PIECE: Final = 1 << 20
_MAPPED_AT_ONCE: Final = 1 << 16
"""Bytes that Linux maps at the first access to a page of a mapped file."""
_MOST_MAPPED: Final = 1 << 28
"""Bytes of mapped files after which their pages are released."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Concatenated ids of all lines with `</s>` after each; `<s>` is never predicted and not stored."""

    ids: Ids  # (N,)  int32; `</s>` occurs only at the end of a line
    eos: int
    unk: int | None
    words: int  # runs of non-blanks
    characters: int  # of the normalized text, counting one for each line break
    bytes: int  # UTF-8 bytes of the normalized text, counting one for each line break
    spellings: list[str] = field(default_factory=list)  # of the `unk` ids, in order; empty with `spelled`
    replaced: int = 0  # invalid UTF-8 sequences read as U+FFFD (`--errors replace`)
    type_counts: Ids | None = None  # (V,) occurrences of each id, if they were counted
    spelled: Any = None  # counts of the spellings (`CountedWords` of the extension), of a text with ids in a file

    @property
    def tokens(self) -> int:
        """Number of predicted tokens, including `</s>` but not `<s>`."""
        return len(self.ids)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self._count(self.eos)

    @property
    def oov(self) -> int:
        """Number of out-of-vocabulary tokens."""
        return 0 if self.unk is None else self._count(self.unk)

    def _count(self, id_: int) -> int:
        if self.type_counts is not None:
            return int(self.type_counts[id_])
        return sum(int(np.count_nonzero(piece == id_)) for piece in id_blocks(self.ids))


def id_blocks(ids: "Ids | MappedIds") -> Iterator[Ids]:
    """Yield consecutive blocks of ids; those of a memory-mapped file are read, not mapped.

    Mapped pages that were touched count as memory of the process.
    """
    if isinstance(ids, MappedIds):
        for array in ids.arrays:
            yield from id_blocks(array)
        return
    for first in range(0, len(ids), _PIECE):
        if isinstance(ids, np.memmap) and ids.filename is not None and isinstance(ids.base, mmap.mmap):
            count, offset = min(_PIECE, len(ids) - first), ids.offset + ids.itemsize * first
            yield np.fromfile(ids.filename, dtype=ids.dtype, count=count, offset=offset)
        else:
            yield ids[first : first + _PIECE]


class MappedIds:
    """One sequence of token ids over one or several arrays, usually memory-mapped files that are never joined.

    >>> ids = MappedIds([np.array([5, 6, 7], np.uint16), np.array([8, 9], np.uint16)])
    >>> len(ids), ids.read(2, 5).tolist(), ids.take(np.array([4, 0])).tolist()
    (5, [7, 8, 9], [9, 5])
    """

    def __init__(self, arrays: Sequence[Ids]) -> None:
        self.arrays = [array for array in arrays if len(array)] or list(arrays[:1])
        self.offsets = np.concatenate([[0], np.cumsum([len(array) for array in self.arrays])])  # of the arrays
        self._views: list[Ids] = [np.asarray(array) for array in self.arrays]  # a slice of a memmap takes longer
        self._unreleased = 0  # bytes read since the mapped pages were last released

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, index: slice) -> Ids:
        return self.read(*index.indices(len(self))[:2])

    def read(self, first: int, last: int) -> Ids:
        """Return the ids from `first` to `last`, exclusive; those of one array are not copied."""
        if len(self._views) == 1:
            self._release_after(max((last - first) * self.arrays[0].itemsize, _MAPPED_AT_ONCE))
            return self._views[0][first:last]
        index = int(np.searchsorted(self.offsets, first, side="right")) - 1
        parts = []
        while first < last:
            start, end = int(self.offsets[index]), int(self.offsets[index + 1])
            parts.append(self._views[index][first - start : min(last, end) - start])
            first, index = end, index + 1
        ids: Ids = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self._release_after(max(ids.nbytes, _MAPPED_AT_ONCE))
        return ids

    def take(self, positions: Ids) -> Ids:
        """Return the ids at `positions`, an array of any shape, as int64."""
        if len(self.arrays) == 1:
            ids = np.asarray(self._views[0][positions], dtype=np.int64)
        else:
            indices = np.searchsorted(self.offsets, positions, side="right") - 1
            ids = np.empty(positions.shape, dtype=np.int64)
            for index in np.unique(indices):
                rows = indices == index
                ids[rows] = self._views[index][positions[rows] - self.offsets[index]]
        self._release_after(len(positions) * _MAPPED_AT_ONCE)
        return ids

    def _release_after(self, size: int) -> None:
        """Drop mapped pages from the memory of the process after `_MOST_MAPPED` bytes; the system caches them."""
        self._unreleased += size
        if self._unreleased < _MOST_MAPPED:
            return
        self._unreleased = 0
        for array in self.arrays:
            if isinstance(array.base, mmap.mmap):
                array.base.madvise(mmap.MADV_DONTNEED)


TOKENS_PER_BATCH = 1 << 15


def line_batches(
    text: EncodedText, bos: int, tokens: int = TOKENS_PER_BATCH, longest: int | None = None
) -> Iterator[tuple[Batch, Ids]]:
    """Yield batches of lines of similar length, one per row, and the (B, T) positions of the targets in `text.ids`.

    Lines of more than `longest` tokens are skipped (see `long_lines`).
    """
    starts, lengths = _lines(text)
    lines = np.arange(len(lengths)) if longest is None else np.flatnonzero(lengths <= longest)
    for rows in group_by_length(lengths[lines], tokens):
        yield _padded(text, bos, starts[lines[rows]], lengths[lines[rows]])


def group_by_length(lengths: Ids, tokens: int) -> Iterator[Ids]:
    """Yield batches of row numbers by ascending length, each of at most `tokens` padded tokens, or of one row."""
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        # Lengths ascend, so the last row of the batch is the longest: grow until rows x length is enough.
        last = first + 1
        while last < len(order) and (last - first + 1) * lengths[order[last]] <= tokens:
            last += 1
        yield order[first:last]
        first = last


def line_chunks(text: EncodedText, tokens: int) -> Iterator[slice]:
    """Yield slices of `text.ids` with as many whole lines as fit into `tokens` tokens, at least one."""
    ends = np.flatnonzero(text.ids == text.eos) + 1
    first = 0
    while first < len(text.ids):
        fitting, following = np.searchsorted(ends, [first + tokens, first], side="right")
        last = int(ends[max(fitting - 1, following)])
        yield slice(first, last)
        first = last


def batches_by_length(lengths: Sequence[int] | Ids, rows: int) -> list[Ids]:
    """Split row numbers, sorted by length, into batches of `rows` rows; no batches if there are no rows."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    return [order[first : first + rows] for first in range(0, len(order), rows)]


def long_lines(text: EncodedText, longest: int) -> Iterator[slice]:
    """Yield the slices of `text.ids` with the lines of more than `longest` tokens, in text order."""
    starts, lengths = _lines(text)
    for line in np.flatnonzero(lengths > longest).tolist():
        yield slice(int(starts[line]), int(starts[line] + lengths[line]))


def _lines(text: EncodedText) -> tuple[Ids, Ids]:
    """Return the (L,) start offsets of the lines in `text.ids` and their (L,) lengths, including `</s>`."""
    ends = np.flatnonzero(text.ids == text.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return starts, ends - starts + 1


def _padded(text: EncodedText, bos: int, starts: Ids, lengths: Ids) -> tuple[Batch, Ids]:
    columns = np.arange(lengths.max())
    mask = columns[None, :] < lengths[:, None]  # (B, T)
    positions = np.where(mask, starts[:, None] + columns[None, :], starts[:, None])
    targets = text.ids[positions]
    inputs = np.concatenate([np.full((len(starts), 1), bos, targets.dtype), targets[:, :-1]], axis=1)
    return Batch(inputs, targets, mask), positions


def stream_batches(text: EncodedText, bos: int, tokens: int = TOKENS_PER_BATCH) -> Iterator[tuple[Batch, Ids]]:
    """Yield the text as one row in consecutive segments, to be read with the state carried over."""
    inputs = np.concatenate([np.array([bos], text.ids.dtype), text.ids[:-1]])
    for first in range(0, len(text.ids), tokens):
        positions = np.arange(first, min(first + tokens, len(text.ids)))[None, :]
        mask = np.ones(positions.shape, dtype=bool)
        yield Batch(inputs[positions], text.ids[positions], mask), positions
