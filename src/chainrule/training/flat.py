"""All of a network's weights end to end in one tensor, and their gradients in another.

The network goes on using its own matrices, which are now views; optimiser, clipping, averaging and checkpoints see
one vector each, so that a step is a few operations however many matrices there are.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

ALIGNMENT = 64  # numbers: every matrix starts where vector instructions like it


class Flat:
    """θ and ∂L/∂θ of a network as two vectors (P,)."""

    def __init__(self, network: nn.Module) -> None:
        # A shared matrix comes once, one that is not to learn not at all.
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self.places: list[tuple[str, int, int]] = []
        size = 0
        for name, parameter in named:
            self.places.append((name, size, size + parameter.numel()))
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        like = named[0][1]
        self.weights = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.gradient = torch.zeros_like(self.weights)
        for (_, first, last), (_, parameter) in zip(self.places, named, strict=True):
            self.weights[first:last] = parameter.detach().flatten()
            parameter.data = self.weights[first:last].view_as(parameter)
            parameter.grad = self.gradient[first:last].view_as(parameter)
        self.parameter = nn.Parameter(self.weights)
        self.parameter.grad = self.gradient

    def named(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The pieces of a vector like θ, by the names of the matrices they belong to."""
        for name, first, last in self.places:
            yield name, flat[first:last]
