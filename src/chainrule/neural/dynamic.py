"""Dynamic evaluation (Krause et al. 2018): the weights go on learning from the text that is being scored.

    θ ← θ − η g / (RMS + ε) + λ min(RMS / mean(RMS), 1/λ) (θ₀ − θ)

after each segment, g its gradient, RMS the root of the mean squared gradient over another text. Lives here: the
rule and the walk through a text; each token is scored before its segment is learnt from. Not here: the update of
training (training/step.py). The model itself never changes: a copy of its network learns.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from chainrule.data.batches import line_batches
from chainrule.data.encoded import Encoded
from chainrule.lm import Floats, Ids, Mask
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.columns import Columns
from chainrule.neural.device import exact
from chainrule.neural.network import Tensors
from chainrule.progress import Progress, silent
from chainrule.training.flat import Flat

SEGMENT = 5  # tokens between two updates
EPSILON = 2e-5
COLUMNS = 100  # of the statistics text, read side by side
LEAST_BATCHES = 100  # fewer columns where the statistics text would make fewer batches
TUNING_TOKENS = 30_000
RATES = (6e-6, 1.2e-5, 2.5e-5, 5e-5, 1e-4, 2e-4, 4e-4)
DECAYS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
RATE, DECAY = 2.5e-5, 1e-3  # where the search begins


class Learner:
    """A copy of a model's network that learns as it reads; θ, θ₀, g and RMS are vectors (P,)."""

    def __init__(self, model: NeuralModel, segment: int = SEGMENT, epsilon: float = EPSILON) -> None:
        self.model, self.epsilon = model, epsilon
        self.network = copy.deepcopy(model.network).eval()
        self.flat = Flat(self.network)
        self.first = self.flat.weights.clone()  # θ₀
        self.squares = torch.zeros_like(self.first)  # Σ g²
        self.rms = torch.zeros_like(self.first)
        self.step = torch.zeros_like(self.first)  # η / (RMS + ε)
        self.pull = torch.zeros_like(self.first)  # λ min(RMS / mean(RMS), 1/λ)
        self.is_carried = self.network.window is None  # a stream's state goes on from segment to segment
        self.segment = self.network.window or segment

    def forget(self) -> None:
        """As before anything was read; what RMS was measured stays."""
        self.flat.weights.copy_(self.first)
        self.squares.zero_()

    def gradient(
        self, inputs: Tensor, targets: Tensor, state: Tensors, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensors]:
        """Read (B, T): log p of the targets (B, T) and the state after; g is that of their mean −log p."""
        hidden, after, _ = self.network(inputs, state)
        log_p = self.network.output.log_probs(hidden.flatten(0, 1))  # (B·T, V)
        scores = log_p.gather(1, targets.reshape(-1, 1)).view(targets.shape)
        counted = scores > -torch.inf  # from what is impossible nothing can be learnt
        counted = counted if mask is None else counted & mask
        self.flat.gradient.zero_()
        (-scores.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)).backward()
        return scores.detach(), tuple(tensor.detach() for tensor in after)

    def learn(self, inputs: Tensor, targets: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Score a segment, then take one step."""
        found = self.gradient(inputs, targets, state)
        θ = self.flat.weights
        θ.lerp_(self.first, self.pull)  # θ + λ min(…) (θ₀ − θ)
        θ.addcmul_(self.step, self.flat.gradient, value=-1)
        return found

    def observe(
        self, inputs: Tensor, targets: Tensor, state: Tensors, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensors]:
        """Add a batch's squared gradient to the statistics."""
        found = self.gradient(inputs, targets, state, mask)
        self.squares.addcmul_(self.flat.gradient, self.flat.gradient)
        return found

    def measure(self, text: Encoded, progress: Progress = silent) -> None:
        """RMS = √ of the mean of g² over the batches of a text."""
        with _learning():
            self.forget()
            batches = (self._measure_lines if self.model.context == "line" else self._measure_stream)(
                text, progress
            )
            self.rms.copy_((self.squares / batches).sqrt())

    def _measure_stream(self, text: Encoded, progress: Progress) -> int:
        N = text.tokens
        T = min(self.segment, N)
        B = max(1, min(COLUMNS * SEGMENT // T, N // (T * LEAST_BATCHES)))
        L = N // (B * T) * T
        targets = text.ids[: B * L].reshape(B, L)
        first = np.concatenate([[self.model.vocabulary.bos], targets[:-1, -1]])
        inputs = self.model.as_read(np.concatenate([first[:, None], targets[:, :-1]], axis=1))
        columns = self._columns(self.observe, inputs, targets, T)
        columns.run(self.forget, lambda done, total: progress("measuring gradients", done, total))
        return L // T

    def _measure_lines(self, text: Encoded, progress: Progress) -> int:
        """Batches of lines of like length; what is longer than the window in several."""
        batches = done = 0
        for batch, _ in line_batches(text, self.model.vocabulary.bos, COLUMNS * SEGMENT):
            B, T = batch.inputs.shape
            for first in range(0, T, self.network.window or T):
                cut = slice(first, first + (self.network.window or T))
                x, y, mask = (self._tensor(a[:, cut]) for a in (batch.inputs, batch.targets, batch.mask))
                self.observe(x, y, self.network.start(B), mask)
                batches += 1
            done += int(batch.mask.sum())
            progress("measuring gradients", done, text.tokens)
        return batches

    def run(self, ids: Ids, rate: float, decay: float, progress: Progress = silent) -> Floats:
        """Log p of each of a text's ids (N,), from θ₀ on."""
        mean = self.rms.sum() / sum(last - first for _, first, last in self.flat.places)  # Flat pads with zeros
        self.step.copy_(rate / (self.rms + self.epsilon))
        self.pull.copy_((decay * self.rms / mean.clamp(min=torch.finfo(mean.dtype).tiny)).clamp(max=1.0))
        with _learning():
            self.forget()
            walk = self._run_lines if self.model.context == "line" else self._run_stream
            scores: Floats = walk(ids, progress).double().cpu().numpy()
        return scores

    def _run_stream(self, ids: Ids, progress: Progress) -> Tensor:
        """Segments of one length, on the GPU without a wait between them; then what is left."""
        inputs = self.model.as_read(np.concatenate([[self.model.vocabulary.bos], ids[:-1]]))[None]
        whole = len(ids) // self.segment * self.segment
        columns = self._columns(self.learn, inputs[:, :whole], ids[None, :whole], self.segment)
        columns.run(self.forget, lambda done, total: progress("learning while scoring", done, total))
        if whole == len(ids):
            return columns.scores[0]
        rest, _ = self.learn(self._tensor(inputs[:, whole:]), self._tensor(ids[None, whole:]), columns.state)
        return torch.cat([columns.scores[0], rest[0]])

    def _run_lines(self, ids: Ids, progress: Progress) -> Tensor:
        """Each line from `<s>`, in pieces where it is longer than the window."""
        vocabulary, found = self.model.vocabulary, []
        inputs = self._tensor(self.model.as_read(np.concatenate([[vocabulary.bos], ids[:-1]])))
        targets = self._tensor(ids)
        starts = np.flatnonzero(np.concatenate([[True], ids[:-1] == vocabulary.eos])).tolist()
        for begin, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            for first in range(begin, end, self.network.window or end):
                cut = slice(first, min(first + (self.network.window or end), end))
                scores, _ = self.learn(inputs[None, cut], targets[None, cut], self.network.start(1))
                found.append(scores[0])
            progress("learning while scoring", end, len(ids))
        return torch.cat(found)

    def _columns(
        self, act: Callable[[Tensor, Tensor, Tensors], tuple[Tensor, Tensors]], inputs: Ids, targets: Ids, T: int
    ) -> Columns:
        start = self.network.start(len(inputs))
        return Columns(act, start, self._tensor(inputs), self._tensor(targets), T, self.is_carried)

    def _tensor(self, array: Ids | Mask) -> Tensor:
        kind = np.bool_ if array.dtype == np.bool_ else np.int64
        return torch.from_numpy(np.ascontiguousarray(array, dtype=kind)).to(self.first.device)


def tune(learner: Learner, valid: Encoded, progress: Progress = silent) -> tuple[float, float]:
    """The rate η and decay λ best for the beginning of a validation text: first the one, then the other."""
    ids = valid.ids[:TUNING_TOKENS]
    found: dict[tuple[float, float], float] = {}

    def nats(rate: float, decay: float) -> float:
        if (rate, decay) not in found:
            log_p = learner.run(ids, rate, decay, progress)
            total = -float(log_p[log_p != -np.inf].sum())
            found[rate, decay] = total if np.isfinite(total) else np.inf
        return found[rate, decay]

    rate = climb(RATES, RATE, lambda rate: nats(rate, DECAY))
    return rate, climb(DECAYS, DECAY, lambda decay: nats(rate, decay))


def climb(values: Sequence[float], start: float, cost: Callable[[float], float]) -> float:
    """Of ascending values one whose neighbours cost no less, found step by step from `start`.

    >>> climb((1, 2, 3, 4, 5), 2, lambda x: abs(x - 4))
    4
    """
    at = values.index(start)
    for way in (-1, 1):
        while 0 <= at + way < len(values) and cost(values[at + way]) < cost(values[at]):
            at += way
    return values[at]


@contextmanager
def _learning() -> Iterator[None]:
    """Gradients, and on the GPU no products rounded to ten bits."""
    with exact(), torch.enable_grad(), warnings.catch_warnings():
        for harmless in ("RNN module weights are not part of single", "The AccumulateGrad node's stream"):
            warnings.filterwarnings("ignore", message=harmless)
        yield
