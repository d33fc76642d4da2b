"""Training batches: shuffled lines or examples of similar length, or a stream in parallel columns.

Batches depend only on the text, the seed and the epoch, so that a run can be resumed at any step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from chainrule.lm import Ids
from chainrule.training.config import TrainingConfig

POOL = 50  # batches whose lines are sorted by length together, to reduce padding


@dataclass(frozen=True, slots=True)
class Window:
    """Input of one training step; `targets` is `inputs` shifted by one token."""

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    mask: Tensor | None = None  # (B, T) False on padding; None: no padding
    starts: bool = True  # whether to reset the state instead of carrying it


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


class LineBatches:
    """Lines from `<s>`, batched by similar length; lines longer than the window take several steps."""

    def __init__(
        self, ids: Ids, bos: int, eos: int, config: TrainingConfig, seed: int, device: torch.device
    ) -> None:
        ends = np.flatnonzero(ids == eos)
        self.ids, self.bos, self.eos = np.asarray(ids, dtype=np.int64), bos, eos
        self.starts = np.concatenate([[0], ends[:-1] + 1])  # (L,) offsets of the lines
        self.lengths = ends - self.starts + 1
        self.seed, self.device = seed, device
        self.B, self.T, self.shuffle = config.batch_size, config.bptt, config.shuffle

    def batches(self, epoch: int) -> list[Ids]:
        """Line indices of each batch, in the order of this epoch."""
        return shuffled_batches(self.lengths, self.B, [self.seed, epoch] if self.shuffle else None)

    def steps(self, epoch: int) -> int:
        """Number of windows of all batches."""
        return sum(self._pieces(lines) for lines in self.batches(epoch))

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """Yield batch by batch, window by window."""
        done = 0
        for lines in self.batches(epoch):
            pieces = self._pieces(lines)
            if done + pieces > first:
                yield from self._windows(lines, max(0, first - done))
            done += pieces

    def _pieces(self, lines: Ids) -> int:
        width = int(self.lengths[lines].max())
        return -(-width // self.T) if self.T else 1

    def _windows(self, lines: Ids, skip: int) -> Iterator[Window]:
        lengths = self.lengths[lines]
        columns = np.arange(lengths.max())
        mask = columns < lengths[:, None]  # (B, width)
        targets = self.ids[np.where(mask, self.starts[lines][:, None] + columns, self.starts[lines][:, None])]
        inputs = np.concatenate([np.full((len(lines), 1), self.bos), targets[:, :-1]], axis=1)
        arrays = [torch.from_numpy(a).to(self.device) for a in (inputs, targets, mask)]
        is_full = bool(mask.all())
        T = self.T or len(columns)
        for i in range(skip, self._pieces(lines)):
            x, y, m = (a[:, i * T : (i + 1) * T] for a in arrays)
            yield Window(x, y, None if is_full else m, starts=i == 0)


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
