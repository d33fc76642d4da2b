"""Sinusoidal, learned and rotary position encodings."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

BASE = 10000.0


def angles(positions: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """pos / 10000^{2i/d} for the ⌈d/2⌉ pairs i of a vector: (…) -> (…, ⌈d/2⌉)."""
    i = torch.arange((width + 1) // 2, device=positions.device, dtype=dtype)
    return positions.to(dtype)[..., None] * BASE ** (-2 * i / width)


def sinusoidal(positions: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^{2i/d}), PE(pos, 2i+1) = cos of it (Vaswani et al. 2017): (…) -> (…, d)."""
    angle = angles(positions, width, dtype)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width]


class LearnedPositions(nn.Module):
    """Learned vectors for the first `window` positions; later positions use the last one."""

    def __init__(self, window: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(window, width))

    def forward(self, positions: Tensor) -> Tensor:
        """(…) -> (…, D)."""
        return functional.embedding(positions.clamp(max=len(self.table) - 1), self.table)


class Rotation(NamedTuple):
    """Rotation of the dimension pairs of queries and keys, shared by all heads and layers."""

    cos: Tensor  # (B or 1, T, 1, d/2)
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, width: int, dtype: torch.dtype = torch.float32) -> "Rotation":
        """Rotation for heads of an even width at positions (T,), or (B, T) if they differ by row."""
        angle = angles(torch.atleast_2d(positions), width, dtype)[:, :, None, :]
        return cls(angle.cos(), angle.sin())

    def rotate(self, x: Tensor) -> Tensor:
        """Rotary positions (Su et al. 2021): rotate (B, T, H, d), so that q·k depends only on the distance.

        Pair i is (x_i, x_{i+d/2}), rotated by pos / 10000^{2i/d}.
        """
        a, b = x.chunk(2, dim=-1)  # (B, T, H, d/2) each
        return torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], dim=-1).to(x.dtype)
