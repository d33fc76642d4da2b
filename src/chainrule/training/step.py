"""One training step: loss, gradient, clipping, optimizer; run eagerly or replayed as a CUDA graph.

No operation synchronizes with the device. All parameters are views into one flat vector, and likewise their
gradients: optimizer, clipping, averaging and checkpoints work on one vector, so that a step is a few operations
regardless of the number of parameter tensors.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.training import optimizers
from chainrule.training.batches import BatchPart, MappedStream, StreamBatches, Window, computing
from chainrule.training.config import TrainingConfig
from chainrule.training.device import limit_threads
from chainrule.training.ranks import Ranks

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
        # Behind the gradient are the sums that ranks add up with it: nats, and target tokens.
        self.summed = torch.zeros(size + ALIGNMENT, dtype=like.dtype, device=like.device)
        self.gradient, self.totals = self.summed[:size], self.summed[size : size + 2]
        for (_, first, last), (_, parameter) in zip(self.slices, named, strict=True):
            self.weights[first:last] = parameter.detach().flatten()
            parameter.data = self.weights[first:last].view_as(parameter)
            parameter.grad = self.gradient[first:last].view_as(parameter)
        self.parameter = nn.Parameter(self.weights)
        self.parameter.grad = self.gradient

    def set_totals(self, sum_nats: "float | Tensor", tokens: "int | Tensor") -> None:
        """Set the sums of this rank; numbers are written by a kernel, which a CUDA graph can record."""
        for total, value in zip(self.totals, (sum_nats, tokens), strict=True):
            if isinstance(value, Tensor):
                total.copy_(value)
            else:
                total.fill_(value)

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


Tensors = tuple[Tensor, ...]
Objective = Callable[[Any, Any, Tensors], tuple[Tensor, Tensor, Tensors]]
"""(network, batch, state) -> loss to minimize, mean nats per token to report, new state."""

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
NATS, TOKENS, STEPS, CLIPPED, NORM, LARGEST_NORM = range(6)
WARM_UP_STEPS = 3
PINNED = 4  # windows that are copied to the GPU ahead of the steps


@contextmanager
def allow_tf32(device: torch.device) -> Iterator[None]:
    """Allow TF32 matrix products on the GPU during training; evaluation never uses them."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class TrainingStep:
    """θ ← θ − η · clip(∂L/∂θ) by the optimizer; accumulates `statistics` and `gradient_stats`."""

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self.network, self.objective, self.config, self.device = network, objective, config, device
        self.ranks = Ranks() if ranks is None else ranks
        is_compiled = config.compile and device.type == "cuda"
        self.learner: Any = torch.compile(network, dynamic=False) if is_compiled else network
        self.flat = FlatParameters(network)
        self.optimizer = optimizers.make(config, self.flat.parameter)
        self.statistics = torch.zeros(6, device=device)
        self.gradient_stats = GradientStatistics(self.flat)
        self.scale = config.loss_scale if config.precision == "fp16" else 1.0

    def __call__(self, window: Window, state: Tensors) -> Tensors:
        """Run one update; return the state after the window, detached."""
        self.flat.gradient.zero_()
        with allow_tf32(self.device), limit_threads(self._work(window)):
            if self.config.accumulate == 1:
                nats, state = self._backward(window, state)
            else:
                nats, state = self._accumulate(window, state)
        tokens: int | Tensor = window.targets.numel() if window.mask is None else window.mask.sum()
        sum_nats = nats * tokens
        if self.ranks.is_distributed:
            is_placeholder = window.part is not None and not window.part.token_share  # language models only
            self.flat.set_totals(*(0, 0) if is_placeholder else (sum_nats, tokens))
            self.ranks.add(self.flat.summed)
            sum_nats, tokens = self.flat.totals
        norm = self._clip_gradient()
        self.optimizer.step()
        self._note(sum_nats, tokens, norm)
        return state

    def _backward(self, window: Window, state: Tensors) -> tuple[Tensor, Tensors]:
        """Add the gradient of a window; return the mean nats and the state after it, both detached."""
        with computing(_part_of(window)):
            with self._arithmetic():
                loss, nats, state = self.objective(self.learner, window, state)
            (loss * self.scale).backward()
        return nats.detach(), tuple(tensor.detach() for tensor in state)

    def _accumulate(self, window: Window, state: Tensors) -> tuple[Tensor, Tensors]:
        """Add the gradient of a window part by part, as `_backward` does for the whole.

        On the CPU all parts draw the same random numbers: each takes its rows of the dropout masks of the batch.
        """
        generator = torch.get_rng_state() if self.device.type == "cpu" else None
        total, share = torch.zeros((), device=self.device), 0.0
        states: list[Tensors] = []
        for rows, piece in window.split(self.config.accumulate):
            if generator is not None:
                torch.set_rng_state(generator)
            nats, after = self._backward(piece, tuple(tensor[rows] for tensor in state))
            states.append(after)
            token_share = 1.0 if piece.part is None else piece.part.token_share
            total, share = total + nats * token_share, share + token_share
        return total / (share or 1.0), tuple(torch.cat(parts) for parts in zip(*states, strict=True))

    def _work(self, window: Window) -> float:
        """Multiplications of the largest matrix product, if the network reports them."""
        return (
            float(self.network.largest_matmul(*window.inputs.shape))
            if hasattr(self.network, "largest_matmul")
            else float("inf")
        )

    def _arithmetic(self) -> Any:
        dtype = HALF.get(self.config.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype, cache_enabled=False)

    def _clip_gradient(self) -> Tensor:
        """Clip gradient values, then the norm; return the norm before clipping."""
        gradient = self.flat.gradient
        if self.scale != 1:
            gradient.mul_(1 / self.scale)
        if self.config.clip_value:
            gradient.clamp_(-self.config.clip_value, self.config.clip_value)
        norm = torch.linalg.vector_norm(gradient)
        self.gradient_stats.update(norm > self.config.clip if self.config.clip else None)
        if self.config.clip:
            factor = (self.config.clip / (norm + 1e-6)).clamp(max=1.0)
            gradient.mul_(torch.where(norm.isfinite(), factor, 1.0))  # keep NaN in place for the diagnosis
        return norm

    def _note(self, nats: Tensor, tokens: int | Tensor, norm: Tensor) -> None:
        statistics = self.statistics
        statistics[NATS] += nats
        statistics[TOKENS] += tokens
        statistics[STEPS] += 1
        statistics[NORM] += norm
        if self.config.clip:
            statistics[CLIPPED] += norm > self.config.clip
        torch.maximum(statistics[LARGEST_NORM], norm, out=statistics[LARGEST_NORM])


def _part_of(window: Any) -> BatchPart | None:
    """Return the part of a batch that the window is; the batches of tasks are never divided."""
    return window.part if isinstance(window, Window) else None


class EagerStepper:
    """Runs batches of any shape eagerly."""

    def __init__(self, step: TrainingStep, source: Any) -> None:
        self.step, self.source = step, source
        self.state: Tensors | None = None
        self.part: BatchPart | None = None  # of the last window
        self._restored: Tensors | None = None  # state of all rows of a batch, from a checkpoint

    def restore(self, state: Tensors) -> None:
        """Continue from the state of all rows of a batch, of which this rank takes its own."""
        self.state, self._restored = state, state

    def epoch(self, epoch: int, first: int) -> Iterator[None]:
        """Update the parameters on each batch from index `first` of the epoch; yield after every update."""
        for window in self.source.windows(epoch, first):
            self.part = _part_of(window)
            if self._restored is not None and self.part is not None:
                rows = torch.from_numpy(self.part.rows).to(self.step.device)
                self.state = tuple(tensor[rows] for tensor in self._restored)
            self._restored = None
            if window.starts or self.state is None or len(self.state[0]) != len(window.inputs):
                self.state = self.step.network.start(len(window.inputs))
            self.state = self.step(window, self.state)
            yield


@contextmanager
def ignore_capture_warnings() -> Iterator[None]:
    """Ignore two warnings of torch that are harmless while a CUDA graph is captured."""
    with warnings.catch_warnings():
        for harmless in ("RNN module weights are not part of single", "The AccumulateGrad node's stream"):
            warnings.filterwarnings("ignore", message=harmless)
        yield


def capture_graph(rewind: Callable[[], object], update: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Capture `update` as a CUDA graph, after warm-up steps that each begin with `rewind`."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            rewind()  # the text may have only one window
            update()
    torch.cuda.current_stream().wait_stream(stream)
    rewind()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # nccl has threads of its own
        update()
    return graph


class CudaGraphStepper:
    """Replays a captured CUDA graph per step; state, and the text or the window that is read, stay on the GPU."""

    def __init__(self, step: TrainingStep, source: StreamBatches | MappedStream) -> None:
        self.step, self.source = step, source
        self.part = None if isinstance(source, StreamBatches) else source.part
        self.text = ResidentText(source) if isinstance(source, StreamBatches) else WindowBuffer(source)
        self.state: Tensors = tuple(tensor.detach().clone() for tensor in step.network.start(source.B))
        self.initial_state = tuple(tensor.clone() for tensor in self.state)
        weights = step.flat.weights.clone()
        with ignore_capture_warnings():
            self.graph = capture_graph(self.text.rewind, self._update)
        step.flat.weights.copy_(weights)  # undo the warm-up steps
        for tensor in optimizers.state_tensors(step.optimizer).values():
            tensor.zero_()
        step.statistics.zero_()
        step.gradient_stats.clear()

    def _update(self) -> None:
        for old, new in zip(self.state, self.step(self.text.window(), self.state), strict=True):
            old.copy_(new)
        self.text.advance()

    def restore(self, state: Tensors) -> None:
        """Continue from the state of all rows of a batch, of which this rank takes its own."""
        for old, new in zip(self.state, state, strict=True):
            old.copy_(new if self.part is None else new[torch.from_numpy(self.part.rows).to(new.device)])

    def epoch(self, epoch: int, first: int) -> Iterator[None]:
        """Update the parameters on each batch from index `first` of the epoch; yield after every update."""
        if first == 0:
            for old, new in zip(self.state, self.initial_state, strict=True):
                old.copy_(new)
        for _ in self.text.steps(epoch, first):
            self.graph.replay()
            yield


class ResidentText:
    """The columns of a text on the GPU, read from an offset."""

    def __init__(self, source: StreamBatches) -> None:
        self.source = source
        self.inputs, self.targets = (columns.clone() for columns in source.columns(0))
        self.offset = torch.zeros((), dtype=torch.int64, device=self.inputs.device)
        self.span = torch.arange(source.T, device=self.inputs.device)

    def rewind(self) -> None:
        """Go to the start of the columns."""
        self.offset.zero_()

    def window(self) -> Window:
        """T tokens of all columns from the offset."""
        positions = self.offset + self.span
        return Window(self.inputs.index_select(1, positions), self.targets.index_select(1, positions))

    def advance(self) -> None:
        """Go to the next window."""
        self.offset.add_(self.source.T)

    def steps(self, epoch: int, first: int) -> Iterator[None]:
        """Yield before each step of an epoch from index `first`."""
        for old, new in zip((self.inputs, self.targets), self.source.columns(epoch), strict=True):
            old.copy_(new)
        self.offset.fill_(first * self.source.T)
        for _ in range(first, self.source.steps(epoch)):
            yield


class WindowBuffer:
    """A window on the GPU, to which the windows of a mapped text are copied from pinned memory."""

    def __init__(self, source: MappedStream) -> None:
        self.source = source
        shape = (source.B, source.T + 1)
        self.ids = torch.zeros(shape, dtype=torch.int64, device=source.device)
        self.pinned = [torch.zeros(shape, dtype=torch.int64, pin_memory=True) for _ in range(PINNED)]
        self.copied = [torch.cuda.Event() for _ in range(PINNED)]

    def rewind(self) -> None:
        """Do nothing: the window is copied before each step."""

    def window(self) -> Window:
        """Return the current window."""
        return Window(self.ids[:, :-1], self.ids[:, 1:], part=self.source.part)

    def advance(self) -> None:
        """Do nothing: the window is copied before each step."""

    def steps(self, epoch: int, first: int) -> Iterator[None]:
        """Copy a window and yield, for each step of an epoch from index `first`."""
        for i, ids in enumerate(self.source.arrays(epoch, first)):
            pinned, copied = self.pinned[i % PINNED], self.copied[i % PINNED]
            copied.synchronize()  # the copy of PINNED steps ago
            pinned.copy_(torch.from_numpy(ids))
            self.ids.copy_(pinned, non_blocking=True)
            copied.record()
            yield


def next_token(network: Any, window: Window, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """Return loss including the activation penalty, mean nats without it, and the new state.

    The losses of the parts of a batch add up to the loss of the batch.
    """
    hidden, state, penalty = network(window.inputs, state)
    flat, targets = hidden.flatten(0, 1), window.targets.flatten()
    if window.mask is not None:
        is_valid = window.mask.flatten()
        flat, targets = flat[is_valid], targets[is_valid]
    nats = network.output.loss(flat, targets)
    if window.part is None:
        return (nats if penalty is None else nats + penalty), nats, state
    loss = nats * window.part.token_share
    return (loss if penalty is None else loss + penalty * window.part.row_share), nats, state
