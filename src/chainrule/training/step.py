"""One update: loss, gradient, clipping, optimiser; run as it stands, or replayed as a CUDA graph.

Lives here: what happens between two windows, with nothing that waits for the device. Not here: when (loop.py).
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.training import optimizers, threads
from chainrule.training.batches import Stream, Window
from chainrule.training.blame import Blame
from chainrule.training.config import Training
from chainrule.training.flat import Flat

Tensors = tuple[Tensor, ...]
Objective = Callable[[Any, Any, Tensors], tuple[Tensor, Tensor, Tensors]]
"""(network, window or batch, state) -> what to minimise, mean nats per token to report, state to carry on."""

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
NATS, TOKENS, STEPS, CLIPPED, NORM, LARGEST_NORM = range(6)
WARM_UP_STEPS = 3


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """While learning, the GPU may round the factors of fp32 products to ten bits (TF32); evaluation never does."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Step:
    """θ ← θ − η · clip(∂L/∂θ), by the optimiser's rule; what it saw is added up in `seen`, by matrix in `blame`."""

    def __init__(self, network: nn.Module, objective: Objective, config: Training, device: torch.device) -> None:
        self.network, self.objective, self.config, self.device = network, objective, config, device
        is_compiled = config.compile and device.type == "cuda"
        self.learner: Any = torch.compile(network, dynamic=False) if is_compiled else network
        self.flat = Flat(network)
        self.optimizer = optimizers.make(config, self.flat.parameter)
        self.seen = torch.zeros(6, device=device)
        self.blame = Blame(self.flat)
        self.scale = config.loss_scale if config.precision == "fp16" else 1.0

    def __call__(self, window: Window, state: Tensors) -> Tensors:
        """One update; the state after the window, cut off from what made it."""
        self.flat.gradient.zero_()
        with fast_products(self.device), threads.suited(self._work(window)):
            with self._arithmetic():
                loss, nats, state = self.objective(self.learner, window, state)
            (loss * self.scale).backward()
        norm = self._clip()
        self.optimizer.step()
        self._note(window, nats.detach(), norm)
        return tuple(tensor.detach() for tensor in state)

    def _work(self, window: Window) -> float:
        """Multiplications of the largest product, where the network knows them."""
        return float(self.network.work(*window.inputs.shape)) if hasattr(self.network, "work") else float("inf")

    def _arithmetic(self) -> Any:
        dtype = HALF.get(self.config.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype, cache_enabled=False)

    def _clip(self) -> Tensor:
        """Cap the gradient's values, then its norm; it only caps what is large. The norm before that."""
        gradient = self.flat.gradient
        if self.scale != 1:
            gradient.mul_(1 / self.scale)
        if self.config.clip_value:
            gradient.clamp_(-self.config.clip_value, self.config.clip_value)
        norm = torch.linalg.vector_norm(gradient)
        self.blame.note(norm > self.config.clip if self.config.clip else None)
        if self.config.clip:
            shrunk = (self.config.clip / (norm + 1e-6)).clamp(max=1.0)
            gradient.mul_(torch.where(norm.isfinite(), shrunk, 1.0))  # a NaN stays where it is, to be named
        return norm

    def _note(self, window: Window, nats: Tensor, norm: Tensor) -> None:
        tokens = window.targets.numel() if window.mask is None else window.mask.sum()
        seen = self.seen
        seen[NATS] += nats * tokens
        seen[TOKENS] += tokens
        seen[STEPS] += 1
        seen[NORM] += norm
        if self.config.clip:
            seen[CLIPPED] += norm > self.config.clip
        torch.maximum(seen[LARGEST_NORM], norm, out=seen[LARGEST_NORM])


class Eager:
    """Windows as they come, of any shape."""

    def __init__(self, step: Step, source: Any) -> None:
        self.step, self.source = step, source
        self.state: Tensors | None = None

    def epoch(self, epoch: int, first: int) -> Iterator[None]:
        """Update once at each `next`."""
        for window in self.source.windows(epoch, first):
            if window.starts or self.state is None or len(self.state[0]) != len(window.inputs):
                self.state = self.step.network.start(len(window.inputs))
            self.state = self.step(window, self.state)
            yield


class Graphed:
    """A stream's windows on the GPU: text, place and state stay there, and a step is one replay of a graph."""

    def __init__(self, step: Step, source: Stream) -> None:
        self.step, self.source = step, source
        self.inputs, self.targets = (columns.clone() for columns in source.columns(0))
        self.at = torch.zeros((), dtype=torch.int64, device=step.device)
        self.span = torch.arange(source.T, device=step.device)
        self.state: Tensors = tuple(tensor.detach().clone() for tensor in step.network.start(source.B))
        self.fresh = tuple(tensor.clone() for tensor in self.state)
        self.graph = torch.cuda.CUDAGraph()
        weights = step.flat.weights.clone()
        with warnings.catch_warnings():
            for harmless in ("RNN module weights are not part of single", "The AccumulateGrad node's stream"):
                warnings.filterwarnings("ignore", message=harmless)
            self._capture()
        step.flat.weights.copy_(weights)  # warming up was no learning
        for tensor in optimizers.state_tensors(step.optimizer).values():
            tensor.zero_()
        step.seen.zero_()
        step.blame.clear()

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self.at.zero_()  # the text may be one window long
                self._update()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self._update()

    def _update(self) -> None:
        place = self.at + self.span
        window = Window(self.inputs.index_select(1, place), self.targets.index_select(1, place))
        for old, new in zip(self.state, self.step(window, self.state), strict=True):
            old.copy_(new)
        self.at.add_(self.source.T)

    def epoch(self, epoch: int, first: int) -> Iterator[None]:
        """Update once at each `next`."""
        for old, new in zip((self.inputs, self.targets), self.source.columns(epoch), strict=True):
            old.copy_(new)
        self.at.fill_(first * self.source.T)
        if first == 0:
            for old, new in zip(self.state, self.fresh, strict=True):
                old.copy_(new)
        for _ in range(first, self.source.steps(epoch)):
            self.graph.replay()
            yield
