"""Training batches: shuffled lines or examples of similar length, or a stream in parallel columns.

Batches depend only on the text, the seed and the epoch, so that a run can be resumed at any step. Several processes
(ranks) share the rows of each batch; together they read what one process reads.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import MappedIds, id_blocks
from chainrule.errors import ConfigError
from chainrule.lm import Ids
from chainrule.training.config import TrainingConfig

POOL = 50  # batches whose lines are sorted by length together, to reduce padding
LINES_AT_ONCE = 1 << 24  # lines that are shuffled together; of more lines, shards are shuffled first
SHARD = 1 << 16  # lines of a shard
SHARDS_AT_ONCE = 64  # shards whose lines are shuffled together


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Rows of a batch that one process or one micro-batch computes."""

    rows: Ids  # (b,) their indices in the whole batch
    total_rows: int  # B, rows of the whole batch
    token_share: float  # share of the target tokens of the whole batch; 0: the window has only placeholders
    row_share: float  # share of the rows; 0: the row is a placeholder


_parts: list[BatchPart | None] = [None]  # the parts being computed, innermost last; torch.compile can read a list


def current_part() -> BatchPart | None:
    """Return the part of a batch that is being computed; None for a whole batch."""
    return _parts[-1]


@contextmanager
def computing(part: BatchPart | None) -> Iterator[None]:
    """Set the part of a batch that the block computes: dropout masks are drawn for the whole batch and sliced."""
    _parts.append(part)
    try:
        yield
    finally:
        _parts.pop()


@dataclass(frozen=True, slots=True)
class Window:
    """Input of one training step; `targets` is `inputs` shifted by one token."""

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    mask: Tensor | None = None  # (B, T) False on padding; None: no padding
    starts: bool = True  # whether to reset the state instead of carrying it
    row_tokens: Ids | None = None  # (B,) target tokens of each row without padding; None: T
    part: BatchPart | None = None  # these rows are a part of a larger batch; None: they are the whole batch

    def split(self, number: int) -> "list[tuple[slice, Window]]":
        """Split the rows into at most `number` windows of nearly equal size; return their rows and windows."""
        if number == 1:
            return [(slice(None), self)]
        B, T = self.inputs.shape
        tokens = np.full(B, T) if self.row_tokens is None else self.row_tokens
        whole = self.part or BatchPart(np.arange(B), B, 1.0, 1.0)
        pieces = []
        for indices in np.array_split(np.arange(B), min(number, B)):
            rows = slice(int(indices[0]), int(indices[-1]) + 1)
            part = BatchPart(
                whole.rows[rows],
                whole.total_rows,
                whole.token_share * float(tokens[rows].sum() / max(1, tokens.sum())),
                whole.row_share * len(indices) / B,
            )
            mask = None if self.mask is None else self.mask[rows]
            piece = Window(self.inputs[rows], self.targets[rows], mask, self.starts, tokens[rows], part)
            pieces.append((rows, piece.with_placeholder()))
        return pieces

    def with_placeholder(self) -> "Window":
        """Return the window with one target token of weight 0 if it has none, so that its loss is defined."""
        if self.mask is None or self.row_tokens is None or self.row_tokens.any():
            return self
        mask = self.mask.clone()
        mask[0, 0] = True
        return replace(self, mask=mask)


class BatchSource(Protocol):
    """Source of training batches."""

    def steps(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        ...

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """Yield the batches of an epoch from index `first`, which may continue a carried state."""
        ...


class StreamBatches:
    """The text as a ring, cut into B columns that are read in parallel, T tokens per step."""

    def __init__(self, ids: Ids, config: TrainingConfig, seed: int, device: torch.device) -> None:
        self.ids = torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device)  # (N,)
        self.seed, self.shuffle = seed, config.shuffle
        self.B = min(config.batch_size, max(1, len(ids) // 2))
        self.L = len(ids) // self.B  # tokens per column
        self.T = min(config.bptt or self.L, self.L)

    def steps(self, epoch: int) -> int:
        """Number of windows of T tokens; the remainder of a column is covered by epochs with another offset."""
        return self.L // self.T

    def columns(self, epoch: int) -> tuple[Tensor, Tensor]:
        """(B, L) inputs and targets; the ring is cut at a random offset per epoch."""
        start = int(np.random.default_rng([self.seed, epoch]).integers(len(self.ids))) if self.shuffle else 0
        ring = self.ids.roll(-start)
        inputs = ring[: self.B * self.L].view(self.B, self.L)
        targets = self.ids.roll(-start - 1)[: self.B * self.L].view(self.B, self.L)
        return inputs, targets

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """T tokens of all columns at a time."""
        inputs, targets = self.columns(epoch)
        for i in range(first, self.steps(epoch)):
            cut = slice(i * self.T, (i + 1) * self.T)
            yield Window(inputs[:, cut], targets[:, cut], starts=i == 0)


class MappedStream:
    """The windows of `StreamBatches`, bit for bit, read from mapped files: in memory are the columns of one window.

    Rank r of R has the columns r·B/R … (r + 1)·B/R.
    """

    def __init__(
        self,
        ids: MappedIds,
        config: TrainingConfig,
        seed: int,
        device: torch.device,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.ids, self.seed, self.shuffle, self.device = ids, seed, config.shuffle, device
        B = min(config.batch_size, max(1, len(ids) // 2))
        if B % ranks:
            raise ConfigError(
                f"training.batch_size is {B}, which {ranks} processes cannot share; choose a multiple of {ranks}"
            )
        self.L = len(ids) // B  # tokens per column
        self.T = min(config.bptt or self.L, self.L)
        self.B = B // ranks  # columns of this rank
        columns = np.arange(rank * self.B, (rank + 1) * self.B)
        self.part = None if ranks == 1 else BatchPart(columns, B, 1 / ranks, 1 / ranks)
        self.first_column = int(columns[0])

    def steps(self, epoch: int) -> int:
        """Number of windows of T tokens; the remainder of a column is covered by epochs with another offset."""
        return self.L // self.T

    def arrays(self, epoch: int, first: int = 0) -> Iterator[Ids]:
        """Yield the (B, T + 1) ids of each window: inputs without the last column, targets without the first."""
        N = len(self.ids)
        start = int(np.random.default_rng([self.seed, epoch]).integers(N)) if self.shuffle else 0
        for i in range(first, self.steps(epoch)):
            ids = np.empty((self.B, self.T + 1), dtype=np.int64)
            for row, column in zip(ids, range(self.first_column, self.first_column + self.B), strict=True):
                position = (start + column * self.L + i * self.T) % N
                before_end = min(self.T + 1, N - position)
                row[:before_end] = self.ids.read(position, position + before_end)
                if before_end <= self.T:  # continue at the start of the ring
                    row[before_end:] = self.ids.read(0, self.T + 1 - before_end)
            yield ids

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """T tokens of all columns at a time."""
        for i, ids in enumerate(self.arrays(epoch, first), start=first):
            rows = to_device(torch.from_numpy(ids), self.device)
            yield Window(rows[:, :-1], rows[:, 1:], starts=i == 0, part=self.part)


class LineBatches:
    """Lines from `<s>`, batched by similar length; lines longer than the window take several steps.

    Rank r of R has the rows r, r + R, … of each batch, which are of similar length as those of the other ranks, and
    takes as many steps as the longest line of all ranks.
    """

    def __init__(
        self,
        ids: Ids | MappedIds,
        bos: int,
        eos: int,
        config: TrainingConfig,
        seed: int,
        device: torch.device,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.ids = ids if isinstance(ids, MappedIds) else MappedIds([ids])
        self.bos, self.eos, self.rank, self.ranks = bos, eos, rank, ranks
        self.ends = line_ends(self.ids, eos)
        self.seed, self.device = seed, device
        self.B, self.T, self.shuffle = config.batch_size, config.bptt, config.shuffle

    def batches(self, epoch: int) -> Iterator[tuple[Ids, Ids, Ids]]:
        """Yield line indices, start offsets and lengths of each batch, in the order of this epoch."""
        seed = [self.seed, epoch] if self.shuffle else None
        for lines in shuffled_line_groups(len(self.ends), seed):
            starts, lengths = self._lines(lines)
            is_only = len(lines) == len(self.ends)
            group_seed = seed if seed is None or is_only else [*seed, int(lines[0])]
            for rows in shuffled_batches(lengths, self.B, group_seed):
                yield lines[rows], starts[rows], lengths[rows]

    def steps(self, epoch: int) -> int:
        """Number of windows of all batches."""
        return sum(self._pieces(lengths) for _, _, lengths in self.batches(epoch))

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """Yield batch by batch, window by window."""
        done = 0
        for _, starts, lengths in self.batches(epoch):
            pieces = self._pieces(lengths)
            if done + pieces > first:
                yield from self._windows(starts, lengths, max(0, first - done))
            done += pieces

    def _lines(self, lines: Ids) -> tuple[Ids, Ids]:
        """Start offsets and lengths, including `</s>`, of lines."""
        starts = np.where(lines > 0, self.ends.take(np.maximum(lines, 1) - 1), 0)
        return starts, self.ends.take(lines) - starts

    def _pieces(self, lengths: Ids) -> int:
        return -(-int(lengths.max()) // self.T) if self.T else 1

    def _windows(self, starts: Ids, lengths: Ids, skip: int) -> Iterator[Window]:
        width, pieces, B = int(lengths.max()), self._pieces(lengths), len(lengths)
        T = self.T or width
        rows = np.arange(self.rank, B, self.ranks) if self.rank < B else np.zeros(1, dtype=np.int64)
        row_share = len(rows) / B if self.rank < B else 0.0
        columns = np.arange(width)
        mask = columns < lengths[rows, None]  # (b, width)
        first = starts[rows, None]
        targets = self.ids.take(np.where(mask, first + columns, first))
        inputs = np.concatenate([np.full((len(rows), 1), self.bos), targets[:, :-1]], axis=1)
        arrays = [torch.from_numpy(a).to(self.device) for a in (inputs, targets, mask)]
        is_full = bool((lengths == width).all())
        for i in range(skip, pieces):
            x, y, m = (a[:, i * T : (i + 1) * T] for a in arrays)
            row_tokens = np.clip(lengths - i * T, 0, min(T, width - i * T))  # (B,) of all ranks
            tokens = row_tokens[rows] if row_share else np.zeros(1, dtype=np.int64)
            part = None
            if self.ranks > 1:
                part = BatchPart(rows, B, float(tokens.sum() / row_tokens.sum()), row_share)
            window = Window(x, y, None if is_full and row_share else m, i == 0, tokens, part)
            yield window.with_placeholder()


def line_ends(ids: MappedIds, eos: int) -> MappedIds:
    """Return the (L,) offsets behind each line; those of very many lines are in a temporary file."""
    parts, first, lines = [np.zeros(0, dtype=np.int64)], 0, 0
    with ExitStack() as stack:
        file: Any = None
        for block in id_blocks(ids):
            parts.append(np.flatnonzero(block == eos) + first + 1)
            first, lines = first + len(block), lines + len(parts[-1])
            if lines > LINES_AT_ONCE:
                file = file or stack.enter_context(tempfile.TemporaryFile())
                np.concatenate(parts).tofile(file)
                parts.clear()
        if file is None:
            return MappedIds([np.concatenate(parts)])
        np.concatenate([*parts, np.zeros(0, dtype=np.int64)]).tofile(file)
        file.flush()
        return MappedIds([np.memmap(file, dtype=np.int64, mode="r", shape=(lines,))])


def shuffled_line_groups(lines: int, seed: Sequence[int] | None) -> Iterator[Ids]:
    """Yield groups of line numbers that are shuffled together: all lines if they are not too many.

    Otherwise shards of consecutive lines are put in random order, or in text order without a seed, and each group
    has the lines of several shards.
    """
    if lines <= LINES_AT_ONCE:
        yield np.arange(lines)
        return
    starts = np.arange(0, lines, SHARD)
    order = starts if seed is None else np.random.default_rng(seed).permutation(starts)
    for first in range(0, len(order), SHARDS_AT_ONCE):
        shards = order[first : first + SHARDS_AT_ONCE]
        yield np.concatenate([np.arange(start, min(start + SHARD, lines)) for start in shards])


class ExampleBatches:
    """Source of batches; an epoch contains every example once."""

    def __init__(self, lengths: Ids, collate: Callable[[Ids], Any], config: TrainingConfig, seed: int) -> None:
        self.lengths, self.collate = lengths, collate
        self.B, self.shuffle, self.seed = config.batch_size, config.shuffle, seed

    def batches(self, epoch: int) -> list[Ids]:
        """Example indices of each batch, in the order of this epoch."""
        return shuffled_batches(self.lengths, self.B, [self.seed, epoch] if self.shuffle else None)

    def steps(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        return -(-len(self.lengths) // self.B)

    def windows(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch from index `first`."""
        for rows in self.batches(epoch)[first:]:
            yield self.collate(rows)


def shuffled_batches(lengths: Ids, rows: int, seed: Sequence[int] | None) -> list[Ids]:
    """Group row numbers into batches of similar length, in random order; without a seed, in row order.

    Rows are shuffled, then sorted by length within pools of `POOL` batches.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    order: Ids = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    for first in range(0, 0 if rng is None else len(order), POOL * rows):
        pool = order[first : first + POOL * rows]
        pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    batches = [order[first : first + rows] for first in range(0, len(order), rows)]
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def pad_rows(rows: Sequence[Ids], value: int) -> Ids:
    """Right-pad rows with `value` into a (B, T) array."""
    out = np.full((len(rows), max(map(len, rows), default=0)), value, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def pad_to_device(rows: Sequence[Ids], value: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Right-pad rows on the device: (B, T) ids and (B, T) mask."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.from_numpy(pad_rows(rows, value))
    return to_device(ids, device), to_device(torch.arange(ids.shape[1]) < lengths[:, None], device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to the device; to a GPU asynchronously from pinned memory."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
