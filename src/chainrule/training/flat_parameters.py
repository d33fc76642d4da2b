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


STEPS, SQUARES, CLIPPED, RATIO = range(4)
DIGITS = 4  # significant digits in the log

ParameterFields = dict[str, dict[str, float]]


class GradientStatistics:
    """Sums over the steps since the last log line, one column for each of M parameter tensors."""

    def __init__(self, flat: FlatParameters) -> None:
        self.flat = flat
        self.names = [name for name, _, _ in flat.slices]
        self.gradients = [piece for _, piece in flat.named_slices(flat.gradient)]
        self.sums = flat.weights.new_empty(4, len(self.names))
        self.steps, self.squares, self.clipped, self.ratio = self.sums  # views (M,)
        self.clear()

    def update(self, is_clipped: Tensor | None) -> None:
        """Accumulate the current gradient before norm clipping; None: clipping is disabled."""
        norms = torch.stack(torch._foreach_norm(self.gradients))
        self.steps.add_(1)
        self.squares.addcmul_(norms, norms)  # Σ ‖g_m‖²
        if is_clipped is not None:  # argmax_m ‖g_m‖² is argmax_m ‖g_m‖; the first on ties
            self.clipped.index_add_(0, norms.argmax(dim=0, keepdim=True), is_clipped.to(norms.dtype).view(1))

    def record_update(self, before: Tensor) -> None:
        """Record the update ratio ‖Δθ_m‖ / ‖θ_m‖ of the last step, from all weights before it (P,)."""
        weights = self.flat.weights
        norms = self._norms(weights)
        self.ratio.copy_(self._norms(weights - before).div(norms).where(norms > 0, 0.0))

    def flush(self) -> ParameterFields:
        """Return the fields of a log line and reset the sums."""
        steps, squares, clipped, ratio = self.sums.tolist()
        self.clear()
        rows = list(zip(self.names, steps, squares, clipped, ratio, strict=True))
        return {
            "clipped_by": {name: int(times) for name, _, _, times, _ in rows if times},
            "gradient_norms": {name: _round_digits((total / n) ** 0.5) for name, n, total, _, _ in rows if n},
            "update_ratio": {name: _round_digits(part) for name, _, _, _, part in rows if part >= 0},
        }

    def clear(self) -> None:
        """Reset; a negative ratio means not measured."""
        self.sums.zero_()
        self.ratio.fill_(-1)

    def _norms(self, flat: Tensor) -> Tensor:
        pieces = [piece for _, piece in self.flat.named_slices(flat)]
        return torch.stack(torch._foreach_norm(pieces))


def _round_digits(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
