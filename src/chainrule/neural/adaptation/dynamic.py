"""Dynamic evaluation (Krause et al. 2018): update the weights on the text while scoring it.

    θ ← θ − η g / (RMS + ε) + λ min(RMS / mean(RMS), 1/λ) (θ₀ − θ)

after each segment, where g is its gradient and RMS the root mean squared gradient on another text. Every token is
scored before the model is updated on it. A copy of the network is trained; the model itself never changes.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText, line_batches
from chainrule.lm import Floats, Ids, Mask
from chainrule.neural.model import NeuralModel
from chainrule.neural.network import Tensors
from chainrule.progress import Progress, silent
from chainrule.training.device import exact_inference
from chainrule.training.step import FlatParameters, capture_graph, ignore_capture_warnings

SegmentFunction = Callable[[Tensor, Tensor, Tensors], tuple[Tensor, Tensors]]
"""Inputs (B, T), targets (B, T), state -> scores (B, T), new state."""

SEGMENT = 5  # tokens between two updates
EPSILON = 2e-5
COLUMNS = 100  # batch size on the statistics text
LEAST_BATCHES = 100  # the batch size is reduced to get at least this many batches
TUNING_TOKENS = 30_000
RATES = (6e-6, 1.2e-5, 2.5e-5, 5e-5, 1e-4, 2e-4, 4e-4)
DECAYS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
RATE, DECAY = 2.5e-5, 1e-3  # start of the search
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
            process = capture_graph(self.rewind, self.run_segment).replay
            self.rewind()
            undo_warm_up()
        for done in range(1, total + 1):
            process()
            if done % BETWEEN_REPORTS == 0 or done == total:
                report(done, total)
        if self.inputs.is_cuda:
            torch.cuda.synchronize()  # before the graph and its memory are freed


class DynamicEvaluator:
    """Copy of a model's network for dynamic evaluation; θ, θ₀, g and RMS are vectors (P,)."""

    def __init__(self, model: NeuralModel, segment: int = SEGMENT, epsilon: float = EPSILON) -> None:
        self.model, self.epsilon = model, epsilon
        self.network = copy.deepcopy(model.network).eval()
        self.flat = FlatParameters(self.network)
        self.first = self.flat.weights.clone()  # θ₀
        self.squares = torch.zeros_like(self.first)  # Σ g²
        self.rms = torch.zeros_like(self.first)
        self.step = torch.zeros_like(self.first)  # η / (RMS + ε)
        self.pull = torch.zeros_like(self.first)  # λ min(RMS / mean(RMS), 1/λ)
        self.is_carried = self.network.window is None  # whether the state is carried across segments
        self.segment = self.network.window or segment

    def reset(self) -> None:
        """Reset the weights to θ₀; keep the measured RMS."""
        self.flat.weights.copy_(self.first)
        self.squares.zero_()

    def backward(
        self, inputs: Tensor, targets: Tensor, state: Tensors, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensors]:
        """Forward and backward pass over (B, T): log p of the targets (B, T), new state; g of the mean −log p."""
        hidden, after, _ = self.network(inputs, state)
        log_p = self.network.output.log_probs(hidden.flatten(0, 1))  # (B·T, V)
        scores = log_p.gather(1, targets.reshape(-1, 1)).view(targets.shape)
        counted = scores > -torch.inf  # impossible targets have no gradient
        counted = counted if mask is None else counted & mask
        self.flat.gradient.zero_()
        (-scores.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)).backward()
        return scores.detach(), tuple(tensor.detach() for tensor in after)

    def score_and_update(self, inputs: Tensor, targets: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Score a segment, then update the weights on it."""
        scores_and_state = self.backward(inputs, targets, state)
        θ = self.flat.weights
        θ.lerp_(self.first, self.pull)  # θ + λ min(…) (θ₀ − θ)
        θ.addcmul_(self.step, self.flat.gradient, value=-1)
        return scores_and_state

    def accumulate_squares(
        self, inputs: Tensor, targets: Tensor, state: Tensors, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensors]:
        """Add the squared gradient of a batch to the statistics."""
        scores_and_state = self.backward(inputs, targets, state, mask)
        self.squares.addcmul_(self.flat.gradient, self.flat.gradient)
        return scores_and_state

    def measure_rms(self, text: EncodedText, progress: Progress = silent) -> None:
        """Set RMS to the root mean g² over the batches of a text."""
        with _exact_gradients():
            self.reset()
            batches = (self._measure_lines if self.model.context == "line" else self._measure_stream)(
                text, progress
            )
            self.rms.copy_((self.squares / batches).sqrt())

    def _measure_stream(self, text: EncodedText, progress: Progress) -> int:
        N = text.tokens
        T = min(self.segment, N)
        B = max(1, min(COLUMNS * SEGMENT // T, N // (T * LEAST_BATCHES)))
        L = N // (B * T) * T
        targets = text.ids[: B * L].reshape(B, L)
        first = np.concatenate([[self.model.vocabulary.bos], targets[:-1, -1]])
        inputs = self.model.map_boundaries(np.concatenate([first[:, None], targets[:, :-1]], axis=1))
        columns = self._columns(self.accumulate_squares, inputs, targets, T)
        columns.run(self.reset, lambda done, total: progress("measuring gradients", done, total))
        return L // T

    def _measure_lines(self, text: EncodedText, progress: Progress) -> int:
        """Batches of lines of similar length, cut at the window."""
        batches = done = 0
        for batch, _ in line_batches(text, self.model.vocabulary.bos, COLUMNS * SEGMENT):
            B, T = batch.inputs.shape
            for first in range(0, T, self.network.window or T):
                cut = slice(first, first + (self.network.window or T))
                x, y, mask = (self._tensor(a[:, cut]) for a in (batch.inputs, batch.targets, batch.mask))
                self.accumulate_squares(x, y, self.network.start(B), mask)
                batches += 1
            done += int(batch.mask.sum())
            progress("measuring gradients", done, text.tokens)
        return batches

    def score(self, ids: Ids, rate: float, decay: float, progress: Progress = silent) -> Floats:
        """(N,) log p of each token, starting from θ₀."""
        mean = self.rms.sum() / sum(last - first for _, first, last in self.flat.slices)  # padding is zero
        self.step.copy_(rate / (self.rms + self.epsilon))
        self.pull.copy_((decay * self.rms / mean.clamp(min=torch.finfo(mean.dtype).tiny)).clamp(max=1.0))
        with _exact_gradients():
            self.reset()
            score_text = self._run_lines if self.model.context == "line" else self._run_stream
            scores: Floats = score_text(ids, progress).double().cpu().numpy()
        return scores

    def _run_stream(self, ids: Ids, progress: Progress) -> Tensor:
        """Score whole segments, on the GPU without synchronization, then the remainder."""
        inputs = self.model.shift_inputs(ids)[None]
        whole = len(ids) // self.segment * self.segment
        columns = self._columns(self.score_and_update, inputs[:, :whole], ids[None, :whole], self.segment)
        columns.run(self.reset, lambda done, total: progress("learning while scoring", done, total))
        if whole == len(ids):
            return columns.scores[0]
        rest, _ = self.score_and_update(
            self._tensor(inputs[:, whole:]), self._tensor(ids[None, whole:]), columns.state
        )
        return torch.cat([columns.scores[0], rest[0]])

    def _run_lines(self, ids: Ids, progress: Progress) -> Tensor:
        """Score each line from `<s>`, cut at the window."""
        vocabulary, log_probs = self.model.vocabulary, []
        inputs = self._tensor(self.model.shift_inputs(ids))
        targets = self._tensor(ids)
        starts = np.flatnonzero(np.concatenate([[True], ids[:-1] == vocabulary.eos])).tolist()
        for begin, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            for first in range(begin, end, self.network.window or end):
                cut = slice(first, min(first + (self.network.window or end), end))
                scores, _ = self.score_and_update(inputs[None, cut], targets[None, cut], self.network.start(1))
                log_probs.append(scores[0])
            progress("learning while scoring", end, len(ids))
        return torch.cat(log_probs)

    def _columns(self, function: SegmentFunction, inputs: Ids, targets: Ids, T: int) -> SegmentRunner:
        start = self.network.start(len(inputs))
        return SegmentRunner(function, start, self._tensor(inputs), self._tensor(targets), T, self.is_carried)

    def _tensor(self, array: Ids | Mask) -> Tensor:
        kind = np.bool_ if array.dtype == np.bool_ else np.int64
        return torch.from_numpy(np.ascontiguousarray(array, dtype=kind)).to(self.first.device)


def tune(evaluator: DynamicEvaluator, valid: EncodedText, progress: Progress = silent) -> tuple[float, float]:
    """Return the rate η, then the decay λ, with the highest likelihood on the start of a validation text."""
    ids = valid.ids[:TUNING_TOKENS]
    cost_cache: dict[tuple[float, float], float] = {}

    def nats(rate: float, decay: float) -> float:
        if (rate, decay) not in cost_cache:
            log_p = evaluator.score(ids, rate, decay, progress)
            total = -float(log_p[log_p != -np.inf].sum())
            cost_cache[rate, decay] = total if np.isfinite(total) else np.inf
        return cost_cache[rate, decay]

    rate = hill_climb(RATES, RATE, lambda rate: nats(rate, DECAY))
    return rate, hill_climb(DECAYS, DECAY, lambda decay: nats(rate, decay))


def hill_climb(values: Sequence[float], start: float, cost: Callable[[float], float]) -> float:
    """Hill climbing over ascending values: a value whose neighbours cost no less, searched from `start`.

    >>> hill_climb((1, 2, 3, 4, 5), 2, lambda x: abs(x - 4))
    4
    """
    index = values.index(start)
    for direction in (-1, 1):
        while 0 <= index + direction < len(values) and cost(values[index + direction]) < cost(values[index]):
            index += direction
    return values[index]


@contextmanager
def _exact_gradients() -> Iterator[None]:
    """Enable gradients, with TF32 disabled."""
    with exact_inference(), torch.enable_grad(), ignore_capture_warnings():
        yield
