"""Test-time adaptation of a trained network: strided windows, temperature, neural cache, dynamic evaluation.

Every hyperparameter is chosen on validation text, never on the test text. The model itself is not changed.

Continuous neural cache (Grave et al. 2017): boost words that followed similar hidden states.

    p(w) = (1 − λ) p_model(w) + λ p_cache(w),  p_cache(w) ∝ Σ_i exp(θ h_t·h_i) 1{w = x_{i+1}}, i the last N tokens

θ and λ are tuned on validation text. The cache spans line boundaries, although a `line` model is reset there.

Dynamic evaluation (Krause et al. 2018): update the weights on the text while scoring it.

    θ ← θ − η g / (RMS + ε) + λ min(RMS / mean(RMS), 1/λ) (θ₀ − θ)

after each segment, where g is its gradient and RMS the root mean squared gradient on another text. Every token is
scored before the model is updated on it. A copy of the network is trained.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText, line_batches
from chainrule.errors import UsageError
from chainrule.lm import Floats, Ids, Mask
from chainrule.neural.model import LARGEST_PIECE, NeuralModel
from chainrule.neural.network import Tensors
from chainrule.neural.probes.hidden_states import hidden_states, iter_hidden_states
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.device import exact_inference
from chainrule.training.step import FlatParameters, capture_graph, ignore_capture_warnings

Kind = Literal["temperature", "cache", "dynamic", "stride"]


@dataclass(frozen=True, slots=True)
class AdaptedScores:
    """Log-probabilities (N,) of a text and the settings used to compute them."""

    log_probs: Floats
    settings: dict[str, float]


def adapt(
    model: NeuralModel,
    text: EncodedText,
    valid: EncodedText | None,
    kind: Kind,
    *,
    train: EncodedText | None = None,
    stride: int | None = None,
    progress: Progress = silent,
) -> AdaptedScores:
    """Tune the adaptation on `valid`, then score `text`; `stride` has nothing to tune and needs no `valid`.

    Dynamic evaluation collects gradient statistics on `train`, or on `valid` if there is no training text.
    """
    if kind not in get_args(Kind):
        raise UsageError(f"there is no adaptation '{kind}'; choose one of {', '.join(get_args(Kind))}")
    if kind == "stride":
        if stride is None:
            raise UsageError("a sliding window needs a stride: the number of tokens between two windows")
        return AdaptedScores(strided_log_probs(model, text, stride, progress), {"stride": stride})
    if valid is None or not valid.tokens:
        raise UsageError(
            f"--{kind} chooses its settings on validation text, never on the test text: add --valid FILE"
        )
    if kind == "temperature":
        T = tune_temperature(model, valid, progress)
        return AdaptedScores(log_probs_at(model, text, [T], progress)[0], {"temperature": T})
    if kind == "cache":
        theta, weight = tune_cache(model, valid, progress=progress)
        log_p = cached_log_probs(model, text, theta, weight, progress=progress)
        return AdaptedScores(log_p, {"theta": theta, "lambda": weight, "size": CACHE_SIZE})
    return _dynamic(model, text, valid, valid if train is None or not train.tokens else train, progress)


def _dynamic(
    model: NeuralModel, text: EncodedText, valid: EncodedText, statistics: EncodedText, progress: Progress
) -> AdaptedScores:
    evaluator = DynamicEvaluator(model)
    evaluator.measure_rms(statistics, progress)
    rate, decay = tune_dynamic(evaluator, valid, progress)
    log_p = check_outputs(evaluator.score(text.ids, rate, decay, progress), model.network)
    settings = {"rate": rate, "decay": decay, "segment": evaluator.segment, "epsilon": evaluator.epsilon}
    return AdaptedScores(log_p, settings)


def strided_log_probs(model: NeuralModel, text: EncodedText, stride: int, progress: Progress = silent) -> Floats:
    """(N,) log p of each token, with windows starting every `stride` tokens."""
    window = model.network.window
    if window is None:
        raise UsageError("--stride slides the window of a Transformer; this model has no window")
    if not 1 <= stride <= window:
        raise UsageError(f"--stride is {stride}; choose 1 to {window}, the model's window")
    what = "sliding the window"
    scores = _score_text(model, text, 1, lambda log_p, target: target[None], what, progress, stride)
    return np.asarray(scores[0])


def _score_text(
    model: NeuralModel,
    text: EncodedText,
    rows: int,
    score: Callable[[Tensor, Tensor], Tensor],
    what: str,
    progress: Progress,
    stride: int | None = None,
) -> Floats:
    """(K, N) scores of the tokens, K = `rows`; `score` maps log p (n, V) and that of the targets (n,) to (K, n)."""
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    scores, done = np.empty((rows, text.tokens)), 0
    for positions, hidden in iter_hidden_states(model, text, stride):
        with exact_inference():
            log_p = model.network.output.log_probs(hidden)  # (n, V)
            values = score(log_p, log_p.gather(1, targets[positions, None])[:, 0])
        scores[:, positions.cpu().numpy()] = values.double().cpu().numpy()
        done += len(positions)
        progress(what, done, text.tokens)
    return check_outputs(scores, model.network)


LOWEST, HIGHEST = 80, 130  # temperatures in hundredths
COARSE = 5  # step of the coarse search


def log_probs_at(
    model: NeuralModel, text: EncodedText, temperatures: Sequence[float], progress: Progress = silent
) -> Floats:
    """(K, N) log p_T of each token at each of K temperatures."""

    def score(log_p: Tensor, target_log_p: Tensor) -> Tensor:
        return torch.stack([scaled_log_probs(log_p, target_log_p, T) for T in temperatures])

    return _score_text(model, text, len(temperatures), score, "scoring by temperature", progress)


def scaled_log_probs(log_p: Tensor, target_log_p: Tensor, T: float) -> Tensor:
    """log p_T(w) = z_w / T − log Σ_v exp(z_v / T): (n, V) log p, (n,) target log p -> (n,).

    The largest z lies between −log V and 0, so near T = 1 the sum is stable without subtracting the maximum.
    """
    return target_log_p / T - (log_p / T).exp_().sum(dim=-1).log_()


def tune_temperature(model: NeuralModel, valid: EncodedText, progress: Progress = silent) -> float:
    """Return the best temperature in steps of 0.01 on a validation text.

    The log-likelihood is concave in 1/T, so its peak lies within one coarse step of the best coarse temperature.
    """
    coarse = _best_temperature(model, valid, list(range(LOWEST, HIGHEST + 1, COARSE)), progress)
    candidates = range(max(LOWEST, coarse - COARSE + 1), min(HIGHEST, coarse + COARSE - 1) + 1)
    return _best_temperature(model, valid, list(candidates), progress) / 100


def _best_temperature(model: NeuralModel, valid: EncodedText, hundredths: list[int], progress: Progress) -> int:
    log_p = log_probs_at(model, valid, [T / 100 for T in hundredths], progress)
    possible = log_p[:, ~np.isneginf(log_p).any(axis=0)]
    return hundredths[int(possible.sum(axis=1).argmax())]


CACHE_SIZE = 2000  # N
QUERY_BLOCK = 512  # query tokens per batch
SHARPNESS = (0.0, 3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)  # θ · mean |h|²: independent of the scale of h
WEIGHTS = (0.0, 0.02, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3)  # λ


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Hidden states and model scores of a text."""

    hidden: Tensor  # (N, D)
    targets: Tensor  # (N,)  next token of each position
    is_cached: Tensor  # (N,)  whether the target is predictable and so enters the cache
    log_p: Tensor  # (N,)  log p of the model alone


def score_states(model: NeuralModel, text: EncodedText) -> ScoredText:
    """Compute hidden states and model scores of a text on the model's device."""
    hidden = hidden_states(model, text)
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    predictable = torch.from_numpy(model.vocabulary.predictable).to(model.device)
    rows = max(1, LARGEST_PIECE // model.vocabulary.size)
    with exact_inference():
        log_p = torch.cat(
            [
                model.network.output.log_probs(h).gather(1, t[:, None])[:, 0]
                for h, t in zip(hidden.split(rows), targets.split(rows), strict=True)
            ]
        )
    return ScoredText(hidden, targets, predictable[targets], log_p.double())


def cache_log_probs(
    text: ScoredText, thetas: Sequence[float], size: int = CACHE_SIZE, progress: Progress = silent
) -> Tensor:
    """(K, N) log p_cache of each token for each θ; NaN where the cache is empty."""
    N = len(text.targets)
    log_probs = text.log_p.new_empty(len(thetas), N)
    for first in range(0, N, QUERY_BLOCK):
        last, oldest = min(first + QUERY_BLOCK, N), max(0, first - size)
        with exact_inference():
            log_probs[:, first:last] = _query_block(text, slice(first, last), slice(oldest, last), thetas, size)
        progress("reading the cache", last, N)
    return log_probs


def _query_block(text: ScoredText, now: slice, past: slice, thetas: Sequence[float], size: int) -> Tensor:
    """Query t of `now` sees the entries i of `past` with t − N ≤ i < t: (K, n)."""
    t = torch.arange(now.start, now.stop, device=text.targets.device)[:, None]  # (n, 1)
    i = torch.arange(past.start, past.stop, device=text.targets.device)  # (M,)
    is_visible = (i < t) & (i >= t - size) & text.is_cached[past]  # (n, M)
    is_same = is_visible & (text.targets[now, None] == text.targets[past])  # 1{w = x_{i+1}}
    dots = text.hidden[now] @ text.hidden[past].t()  # h_t·h_i
    log_probs = []
    for theta in thetas:
        e = (theta * dots).masked_fill(~is_visible, -torch.inf).double()
        log_probs.append(torch.logsumexp(e.masked_fill(~is_same, -torch.inf), 1) - torch.logsumexp(e, 1))
    return torch.stack(log_probs)  # empty cache: −inf − (−inf) = NaN


def interpolate(log_p: Tensor, log_cache: Tensor, weight: float) -> Tensor:
    """log[(1 − λ) p + λ p_cache], (N,); log p of the model alone where the cache is empty."""
    if weight == 0:
        return log_p
    log_mix = torch.logaddexp(log_p + np.log1p(-weight), log_cache + np.log(weight))
    return torch.where(log_cache.isnan(), log_p, log_mix)


def cached_log_probs(
    model: NeuralModel,
    text: EncodedText,
    theta: float,
    weight: float,
    size: int = CACHE_SIZE,
    progress: Progress = silent,
) -> Floats:
    """(N,) log p of each token, with a cache of the preceding tokens."""
    states = score_states(model, text)
    scores: Floats = (
        interpolate(states.log_p, cache_log_probs(states, [theta], size, progress)[0], weight).cpu().numpy()
    )
    return check_outputs(scores, model.network)


def tune_cache(
    model: NeuralModel, valid: EncodedText, size: int = CACHE_SIZE, progress: Progress = silent
) -> tuple[float, float]:
    """Return the θ and λ with the highest likelihood on a validation text."""
    states = score_states(model, valid)
    scale = float(states.hidden.square().sum(1).mean().clamp(min=1e-12))
    thetas = [sharpness / scale for sharpness in SHARPNESS]
    log_caches = cache_log_probs(states, thetas, size, progress)
    possible = states.log_p > -torch.inf
    totals = {
        (theta, weight): float(interpolate(states.log_p, log_cache, weight)[possible].sum())
        for theta, log_cache in zip(thetas, log_caches, strict=True)
        for weight in WEIGHTS
    }
    return max(totals, key=lambda choice: totals[choice])


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


def tune_dynamic(
    evaluator: DynamicEvaluator, valid: EncodedText, progress: Progress = silent
) -> tuple[float, float]:
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
    """Return a value neither of whose neighbours costs less, found by hill climbing from `start`; `values` ascend.

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
