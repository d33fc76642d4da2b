"""Which matrix of a network a gradient came from, and how far a step moved each: sums for the log, by name.

Lives here: what is added up beside a step, with nothing that waits for the device, and read off once a line of the
log. Not here: the norm that clips, which is one of the whole gradient (step.py).
"""

import torch
from torch import Tensor

from chainrule.training.flat import Flat

STEPS, SQUARES, CLIPPED, RATIO = range(4)
DIGITS = 4  # that the log keeps: a line has two numbers for every matrix

Parts = dict[str, dict[str, float]]


class Blame:
    """Sums over the steps since the last line of the log, one column for each of M matrices."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.names = [name for name, _, _ in flat.places]
        self.gradients = [piece for _, piece in flat.named(flat.gradient)]
        self.sums = flat.weights.new_empty(4, len(self.names))
        self.steps, self.squares, self.clipped, self.ratio = self.sums  # views (M,)
        self.clear()

    def note(self, is_clipped: Tensor | None) -> None:
        """Add up the gradient as it stands, before its norm is clipped; None: nothing ever is."""
        norms = torch.stack(torch._foreach_norm(self.gradients))
        self.steps.add_(1)
        self.squares.addcmul_(norms, norms)  # Σ ‖g_m‖²
        if is_clipped is not None:  # argmax_m ‖g_m‖² is argmax_m ‖g_m‖; the first among equals
            self.clipped.index_add_(0, norms.argmax(dim=0, keepdim=True), is_clipped.to(norms.dtype).view(1))

    def moved(self, before: Tensor) -> None:
        """What the last step did to each matrix: ‖Δθ_m‖ / ‖θ_m‖, from all weights before it (P,)."""
        weights = self.flat.weights
        lengths = self._lengths(weights)
        self.ratio.copy_(self._lengths(weights - before).div(lengths).where(lengths > 0, 0.0))

    def read(self) -> Parts:
        """The fields of a line of the log; the sums start from zero again."""
        steps, squares, clipped, ratio = self.sums.tolist()
        self.clear()
        rows = list(zip(self.names, steps, squares, clipped, ratio, strict=True))
        return {
            "clipped_by": {name: int(times) for name, _, _, times, _ in rows if times},
            "gradient_norms": {name: _short((total / n) ** 0.5) for name, n, total, _, _ in rows if n},
            "update_ratio": {name: _short(part) for name, _, _, _, part in rows if part >= 0},
        }

    def clear(self) -> None:
        """Nothing has been seen yet; a ratio below 0 is one that was not measured."""
        self.sums.zero_()
        self.ratio.fill_(-1)

    def _lengths(self, flat: Tensor) -> Tensor:
        pieces = [piece for _, piece in self.flat.named(flat)]
        return torch.stack(torch._foreach_norm(pieces))


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
