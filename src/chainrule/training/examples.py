"""Batches of independent examples (tagged sentences, labelled texts, pairs), grouped by length."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.lm import Ids
from chainrule.training.config import Training

POOL = 50  # batches whose examples are sorted by length together, to reduce padding


class ExampleBatches:
    """Source of batches; an epoch contains every example once."""

    def __init__(self, lengths: Ids, collate: Callable[[Ids], Any], config: Training, seed: int) -> None:
        self.lengths, self.collate = lengths, collate
        self.B, self.shuffle, self.seed = config.batch_size, config.shuffle, seed

    def batches(self, epoch: int) -> list[Ids]:
        """Example indices of each batch, in the order of this epoch."""
        N = len(self.lengths)
        if not self.shuffle:
            return np.split(np.arange(N), range(self.B, N, self.B))
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(N)
        batches: list[Ids] = []
        for first in range(0, N, POOL * self.B):
            pool = order[first : first + POOL * self.B]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += np.split(pool, range(self.B, len(pool), self.B))
        return [batches[i] for i in rng.permutation(len(batches))]

    def steps(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        if not self.shuffle:
            return -(-len(self.lengths) // self.B)
        whole, rest = divmod(len(self.lengths), POOL * self.B)
        return whole * POOL + -(-rest // self.B)

    def windows(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch from index `first`."""
        for rows in self.batches(epoch)[first:]:
            yield self.collate(rows)


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
