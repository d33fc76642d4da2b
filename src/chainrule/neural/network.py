"""What every network offers: one `forward` over (B, T) ids from a state, and an exact output layer.

Lives here: the shape all neural families share. Not here: both views of the contract (adapter.py), learning
(training/). Letters: B batch, T time, V vocabulary, D width, H heads.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Tensors = tuple[Tensor, ...]
"""A state: axis 0 of each tensor is the row. A value: never changed in place."""


class Features(NamedTuple):
    """What a network makes of the tokens it reads."""

    hidden: Tensor  # (B, T, D)  what the output layer predicts the next token from
    state: Tensors  # after the last token
    penalty: Tensor | None = None  # added to the loss while learning (activation regularisation)


class Network(nn.Module):
    """Embedding, layers, output; families differ in what stands between the two ends."""

    output: Any  # an Output: loss(hidden, targets), log_probs(hidden)
    window: int | None = None  # it starts anew after so many tokens; None: never

    @property
    def is_capturable(self) -> bool:
        """Whether a CUDA graph can hold an update: no shape in it depends on the words that are read."""
        return bool(self.output.is_capturable)

    def start(self, rows: int) -> Tensors:
        """The state before anything was read."""
        raise NotImplementedError

    def forward(self, ids: Tensor, state: Tensors) -> Features:
        """Read (B, T) ids from a state; all rows are read to their end (no padding)."""
        raise NotImplementedError

    def fresh(self, state: Tensors, rows: Tensor) -> Tensors:
        """These rows of a state, (R,), as they were before anything was read."""
        return self.start(len(rows))

    def work(self, rows: int, T: int) -> float:
        """Multiplications of its largest matrix product over (rows, T) ids, for choosing threads."""
        return float("inf")

    def position(self, state: Tensors) -> Tensor | None:
        """(B,) how many tokens of its window each row has read; None where there is no window."""
        return None

    def restart(self, state: Tensors, rows: Tensor) -> Tensors:
        """The state with these rows, (B,) True, as they were before anything was read."""
        fresh = self.fresh(state, torch.arange(len(rows), device=rows.device))
        wide = (rows.view(-1, *(1,) * (old.dim() - 1)) for old in state)
        return tuple(torch.where(w, new, old) for w, new, old in zip(wide, fresh, state, strict=True))

    def join(self, states: Sequence[Tensors]) -> Tensors:
        """The rows of several states in one, in their order."""
        return tuple(torch.cat(parts) for parts in zip(*states, strict=True))
