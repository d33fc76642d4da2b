"""Run dynamic evaluation over a batched stream segment by segment, captured as a CUDA graph on the GPU.

Text, offset, state and scores live in fixed buffers, so that no step synchronises with the device.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chainrule.neural.network import Tensors

SegmentFunction = Callable[[Tensor, Tensor, Tensors], tuple[Tensor, Tensors]]
"""Inputs (B, T), targets (B, T), state -> scores (B, T), new state."""

WARM_UP_STEPS = 3
BETWEEN_REPORTS = 256  # segments


class SegmentRunner:
    """Applies a function to consecutive segments of T tokens of B columns of L tokens, L a multiple of T."""

    def __init__(
        self, function: SegmentFunction, start: Tensors, inputs: Tensor, targets: Tensor, T: int, is_carried: bool
    ) -> None:
        self.function, self.inputs, self.targets, self.T, self.is_carried = function, inputs, targets, T, is_carried
        self.initial_state = tuple(tensor.detach().clone() for tensor in start)
        self.state = tuple(tensor.clone() for tensor in self.initial_state)
        self.offset = torch.zeros((), dtype=torch.int64, device=inputs.device)
        self.span = torch.arange(T, device=inputs.device)
        self.scores = torch.zeros(inputs.shape, dtype=torch.float64, device=inputs.device)  # (B, L)

    def run_segment(self) -> None:
        """Process one segment."""
        positions = self.offset + self.span
        x, y = self.inputs.index_select(1, positions), self.targets.index_select(1, positions)
        scores, after = self.function(x, y, self.state)
        self.scores.index_copy_(1, positions, scores.to(self.scores.dtype))
        if self.is_carried:
            for old, new in zip(self.state, after, strict=True):
                old.copy_(new)
        self.offset.add_(self.T)

    def rewind(self) -> None:
        """Reset the offset and the state."""
        self.offset.zero_()
        for old, new in zip(self.state, self.initial_state, strict=True):
            old.copy_(new)

    def run(self, undo_warm_up: Callable[[], None], report: Callable[[int, int], None]) -> None:
        """Process all segments; `undo_warm_up` reverts the side effects of graph warm-up."""
        total = self.inputs.shape[1] // self.T
        process: Callable[[], None] = self.run_segment
        if self.inputs.is_cuda and total:
            process = self._capture().replay
            self.rewind()
            undo_warm_up()
        for done in range(1, total + 1):
            process()
            if done % BETWEEN_REPORTS == 0 or done == total:
                report(done, total)
        if self.inputs.is_cuda:
            torch.cuda.synchronize()  # before the graph and its memory are freed

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.rewind()
                self.run_segment()
        torch.cuda.current_stream().wait_stream(stream)
        self.rewind()
        with torch.cuda.graph(graph):
            self.run_segment()
        return graph
