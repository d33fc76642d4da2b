"""All parameters of a network as views into one flat vector, and likewise their gradients.

Optimiser, clipping, averaging and checkpoints work on one vector, so that a step is a few operations regardless of
the number of parameter tensors.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

ALIGNMENT = 64  # elements: alignment of each parameter for vector instructions


class FlatParameters:
    """θ and ∂L/∂θ of a network as two vectors (P,)."""

    def __init__(self, network: nn.Module) -> None:
        # Tied parameters appear once; frozen ones are omitted.
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self.slices: list[tuple[str, int, int]] = []
        size = 0
        for name, parameter in named:
            self.slices.append((name, size, size + parameter.numel()))
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        like = named[0][1]
        self.weights = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.gradient = torch.zeros_like(self.weights)
        for (_, first, last), (_, parameter) in zip(self.slices, named, strict=True):
            self.weights[first:last] = parameter.detach().flatten()
            parameter.data = self.weights[first:last].view_as(parameter)
            parameter.grad = self.gradient[first:last].view_as(parameter)
        self.parameter = nn.Parameter(self.weights)
        self.parameter.grad = self.gradient

    def named_slices(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the slices of a vector like θ with the parameter names."""
        for name, first, last in self.slices:
            yield name, flat[first:last]
