"""Examples that stand for themselves (sentences with tags, texts with labels, pairs), in batches of like length.

Lives here: which examples stand together, in which order. Not here: what an example is made of (the `collate` of a
task knows), texts that are read as a stream or line by line (batches.py).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from chainrule.lm import Ids
from chainrule.training.config import Training

POOL = 50  # batches whose examples are sorted by length together


class Padded(Protocol):
    """What a step needs to know of a batch; tasks add what their networks read."""

    @property
    def inputs(self) -> Tensor:
        """(B, T) ids."""
        ...

    @property
    def targets(self) -> Tensor:
        """What is to be predicted; where there is no mask, all of it counts."""
        ...

    @property
    def mask(self) -> Tensor | None:
        """Which of the targets count; None: all."""
        ...

    @property
    def starts(self) -> bool:
        """True: nothing is carried over from the batch before."""
        ...


class Examples:
    """A source of batches; an epoch shows every example once."""

    def __init__(self, lengths: Ids, collate: Callable[[Ids], Any], config: Training, seed: int) -> None:
        self.lengths, self.collate = lengths, collate
        self.B, self.shuffle, self.seed = config.batch_size, config.shuffle, seed

    def batches(self, epoch: int) -> list[Ids]:
        """Which examples stand together, in this epoch's order."""
        N = len(self.lengths)
        if not self.shuffle:
            return np.split(np.arange(N), range(self.B, N, self.B))
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(N)
        found: list[Ids] = []
        for first in range(0, N, POOL * self.B):
            pool = order[first : first + POOL * self.B]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            found += np.split(pool, range(self.B, len(pool), self.B))
        return [found[i] for i in rng.permutation(len(found))]

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        if not self.shuffle:
            return -(-len(self.lengths) // self.B)
        whole, rest = divmod(len(self.lengths), POOL * self.B)
        return whole * POOL + -(-rest // self.B)

    def windows(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from the `first` on."""
        for rows in self.batches(epoch)[first:]:
            yield self.collate(rows)


def pad(rows: Sequence[Ids], value: int) -> Ids:
    """Rows of different lengths as one (B, T) array, `value` behind their ends."""
    out = np.full((len(rows), max(map(len, rows), default=0)), value, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def padded(rows: Sequence[Ids], value: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of different lengths on the device: (B, T) ids, (B, T) True where there is one."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.from_numpy(pad(rows, value))
    return moved(ids, device), moved(torch.arange(ids.shape[1]) < lengths[:, None], device)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; to a GPU from memory that stays in place, so that nobody waits for the copy."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
