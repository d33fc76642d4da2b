"""Base class of language-model networks: `forward` over (B, T) ids from a state, and an output layer.

Notation: B batch, T time, V vocabulary, D width, H heads.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Tensors = tuple[Tensor, ...]
"""State of a network: axis 0 of each tensor is the row. Immutable: never modified in place."""


class NetworkOutput(NamedTuple):
    """Output of a forward pass."""

    hidden: Tensor  # (B, T, D)  input of the output layer
    state: Tensors  # state after the last token
    penalty: Tensor | None = None  # activation regularisation, added to the training loss


class Network(nn.Module):
    """Embedding, layers and output layer; architectures differ in the layers."""

    output: Any  # an Output: loss(hidden, targets), log_probs(hidden)
    window: int | None = None  # the state is reset after this many tokens; None: never

    @property
    def is_capturable(self) -> bool:
        """Whether a CUDA graph can capture an update: no shape depends on the data."""
        return bool(self.output.is_capturable)

    def start(self, rows: int) -> Tensors:
        """Return the initial state of `rows` rows."""
        raise NotImplementedError

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """Read (B, T) ids from a state; no padding."""
        raise NotImplementedError

    def initial_state(self, state: Tensors, rows: Tensor) -> Tensors:
        """Initial state for the rows (R,) of a state."""
        return self.start(len(rows))

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of the largest matrix product over (rows, T) ids, to choose the number of threads."""
        return float("inf")

    def position(self, state: Tensors) -> Tensor | None:
        """(B,) number of tokens each row has read of its window; None without a window."""
        return None

    def reset_rows(self, state: Tensors, rows: Tensor) -> Tensors:
        """Reset the rows that are True in (B,) to the initial state."""
        fresh = self.initial_state(state, torch.arange(len(rows), device=rows.device))
        wide = (rows.view(-1, *(1,) * (old.dim() - 1)) for old in state)
        return tuple(torch.where(w, new, old) for w, new, old in zip(wide, fresh, state, strict=True))

    def join(self, states: Sequence[Tensors]) -> Tensors:
        """Concatenate the rows of several states."""
        return tuple(torch.cat(parts) for parts in zip(*states, strict=True))
