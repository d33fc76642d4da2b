"""A text in columns, read segment by segment by a function that learns; on the GPU one graph replayed.

Lives here: text, place, state and scores in places of memory that never change, so that nothing waits for the
device. Not here: what is learnt (dynamic.py), the windows of training (training/batches.py, training/step.py).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chainrule.neural.network import Tensors

Act = Callable[[Tensor, Tensor, Tensors], tuple[Tensor, Tensors]]
"""Inputs (B, T), targets (B, T), state -> scores (B, T), the state after."""

WARM_UP_STEPS = 3
BETWEEN_REPORTS = 256  # segments


class Columns:
    """B columns of L tokens, L a multiple of T: each segment is T tokens of all of them."""

    def __init__(self, act: Act, start: Tensors, inputs: Tensor, targets: Tensor, T: int, is_carried: bool) -> None:
        self.act, self.inputs, self.targets, self.T, self.is_carried = act, inputs, targets, T, is_carried
        self.fresh = tuple(tensor.detach().clone() for tensor in start)
        self.state = tuple(tensor.clone() for tensor in self.fresh)
        self.at = torch.zeros((), dtype=torch.int64, device=inputs.device)
        self.span = torch.arange(T, device=inputs.device)
        self.scores = torch.zeros(inputs.shape, dtype=torch.float64, device=inputs.device)  # (B, L)

    def read(self) -> None:
        """One segment."""
        place = self.at + self.span
        x, y = self.inputs.index_select(1, place), self.targets.index_select(1, place)
        scores, after = self.act(x, y, self.state)
        self.scores.index_copy_(1, place, scores.to(self.scores.dtype))
        if self.is_carried:
            for old, new in zip(self.state, after, strict=True):
                old.copy_(new)
        self.at.add_(self.T)

    def rewind(self) -> None:
        """To the beginning, with nothing read."""
        self.at.zero_()
        for old, new in zip(self.state, self.fresh, strict=True):
            old.copy_(new)

    def run(self, forget: Callable[[], None], report: Callable[[int, int], None]) -> None:
        """All segments; `forget` undoes what `act` did, for trying it out is no reading."""
        total = self.inputs.shape[1] // self.T
        read: Callable[[], None] = self.read
        if self.inputs.is_cuda and total:
            read = self._capture().replay
            self.rewind()
            forget()
        for done in range(1, total + 1):
            read()
            if done % BETWEEN_REPORTS == 0 or done == total:
                report(done, total)
        if self.inputs.is_cuda:
            torch.cuda.synchronize()  # the graph, and the memory it works in, go with this call

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self.rewind()
                self.read()
        torch.cuda.current_stream().wait_stream(side)
        self.rewind()
        with torch.cuda.graph(graph):
            self.read()
        return graph
