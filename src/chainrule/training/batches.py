"""Ids -> windows to learn from: lines side by side in a new order each epoch, or the stream in columns.

Lives here: what is read at each step, a function of the text, the seed and the epoch alone, so that a run can be
taken up in its middle. Not here: batches for evaluation, which keep the text's order (data/batches.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from chainrule.lm import Ids
from chainrule.training.config import Training

POOL = 50  # batches sorted by length together, so that rows of a batch are of like length


@dataclass(frozen=True, slots=True)
class Window:
    """One step's reading; `targets` is `inputs` one token later."""

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    mask: Tensor | None = None  # (B, T) False where a row has ended; None: nowhere
    starts: bool = True  # whether the state starts anew or is carried on, detached


class Source(Protocol):
    """Where windows come from."""

    def steps(self, epoch: int) -> int:
        """How many windows an epoch has."""
        ...

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """The windows of an epoch, from the `first` on; that one need not start anew."""
        ...


class Stream:
    """The whole text as one ring, cut into B columns that are read side by side, T tokens a step."""

    def __init__(self, ids: Ids, config: Training, seed: int, device: torch.device) -> None:
        self.ids = torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device)  # (N,)
        self.seed, self.shuffle = seed, config.shuffle
        self.B = min(config.batch_size, max(1, len(ids) // 2))
        self.L = len(ids) // self.B  # tokens of a column
        self.T = min(config.bptt or self.L, self.L)

    def steps(self, epoch: int) -> int:
        """Windows of T tokens; what is left of a column comes in an epoch that starts elsewhere."""
        return self.L // self.T

    def columns(self, epoch: int) -> tuple[Tensor, Tensor]:
        """(B, L) inputs and targets: the ring cut open at a place of its own for each epoch."""
        start = int(np.random.default_rng([self.seed, epoch]).integers(len(self.ids))) if self.shuffle else 0
        ring = self.ids.roll(-start)
        inputs = ring[: self.B * self.L].view(self.B, self.L)
        targets = self.ids.roll(-start - 1)[: self.B * self.L].view(self.B, self.L)
        return inputs, targets

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """T columns at a time."""
        inputs, targets = self.columns(epoch)
        for i in range(first, self.steps(epoch)):
            cut = slice(i * self.T, (i + 1) * self.T)
            yield Window(inputs[:, cut], targets[:, cut], starts=i == 0)


class Lines:
    """Every line from `<s>`, batches of lines of like length; lines longer than the window in several steps."""

    def __init__(self, ids: Ids, bos: int, eos: int, config: Training, seed: int, device: torch.device) -> None:
        ends = np.flatnonzero(ids == eos)
        self.ids, self.bos, self.eos = np.asarray(ids, dtype=np.int64), bos, eos
        self.starts = np.concatenate([[0], ends[:-1] + 1])  # (L,)
        self.lengths = ends - self.starts + 1
        self.seed, self.device = seed, device
        self.B, self.T, self.shuffle = config.batch_size, config.bptt, config.shuffle

    def batches(self, epoch: int) -> list[Ids]:
        """Which lines stand together, in this epoch's order."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        found: list[Ids] = []
        for first in range(0, len(order), POOL * self.B):
            pool = order[first : first + POOL * self.B]
            if self.shuffle:
                pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            found += [pool[i : i + self.B] for i in range(0, len(pool), self.B)]
        return [found[i] for i in rng.permutation(len(found))] if self.shuffle else found

    def steps(self, epoch: int) -> int:
        """Windows of all batches."""
        return sum(self._pieces(lines) for lines in self.batches(epoch))

    def windows(self, epoch: int, first: int = 0) -> Iterator[Window]:
        """Batch by batch, window by window."""
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
