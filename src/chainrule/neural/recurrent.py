"""What the recurrent families share: settings, a layer, and the network that stacks layers.

Lives here: the embedding, dropout and penalties around the layers, and how the state is carried. Not here: the
equations of a cell (rnn.py, lstm.py, gru.py), attention over the past (attention.py). Batch normalisation is left
out: it would mix the statistics of time steps, and a token's score would depend on the tokens read beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural import dropout, evened, precision
from chainrule.neural.attention import Concat, Past
from chainrule.neural.initialization import fill_gates
from chainrule.neural.network import Features, Network, Tensors
from chainrule.neural.output import make_output
from chainrule.neural.settings import LARGEST, Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig(Architecture):
    """Settings that all recurrent networks share."""

    weight_dropout: float = 0.0  # of the recurrent matrices (DropConnect)
    hidden_dropout: float | None = None  # between two layers
    activation_penalty: float = 0.0  # AR, α: how much large outputs cost
    temporal_penalty: float = 0.0  # TAR, β: how much outputs that change from step to step cost
    learned_start: bool = False  # h_0 is learned; else zero
    attention: Literal["none", "dot", "scaled-dot", "general", "additive"] = "none"  # over past states
    attention_use: Literal["sum", "concat", "state"] = "sum"  # for the prediction alone, or fed on as the state
    memory: int = 64  # how many past states are attended to
    layer_norm: bool = False  # of every layer's outputs

    def __post_init__(self) -> None:
        Architecture.__post_init__(self)
        for name in ("weight_dropout", "hidden_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"model.{name} is {value:g}; choose a value in [0, 1)")
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"model.{name} is {getattr(self, name):g}; choose 0 or more")
        if self.tie and self.layers == 1 and self.embedding not in (0, self.hidden):
            raise ConfigError(
                f"model.embedding is {self.embedding} and model.hidden {self.hidden}, but tied weights make the "
                "last layer, here the only one, as wide as the embedding: set them alike, or --no-tie"
            )
        if not 1 <= self.memory <= LARGEST:
            raise ConfigError(f"model.memory is {self.memory}; choose 1 to {LARGEST}")

    @property
    def widths(self) -> list[int]:
        """What the first layer reads, then what each layer gives: E, D, …, D; the last E where weights are tied."""
        last = self.embedding_width if self.tie else self.hidden
        return [self.embedding_width, *[self.hidden] * (self.layers - 1), last]

    @property
    def facets(self) -> dict[str, str | int]:
        """What tells two networks of a family apart in a table."""
        sizes: dict[str, str | int] = {"layers": self.layers, "width": self.hidden}
        return sizes if self.attention == "none" else {**sizes, "attention": self.attention}


SMALL: Final[dict[str, Any]] = {
    "hidden": 192,
    "dropout": 0.5,
    "batch_size": 40,
    "bptt": 35,
    "epochs": 12,
    "learning_rate": 1e-2,
    "weight_decay": 0.05,
    "max_seconds": 40.0,
}
"""Settings that suit a text of some ten thousand words on a processor; what `compare` trains begins with them."""


class Layer(nn.Module):
    """One recurrent layer; its gates stand above one another in W, R and both biases, in PyTorch's order."""

    gates: ClassVar[int]
    gate_names: ClassVar[tuple[str, ...]] = ()  # of what `gated` gives
    memories: ClassVar[int] = 1  # tensors (B, D) in its state; the first is h
    is_bounded: bool = True  # |h| never exceeds 1

    def __init__(self, inputs: int, width: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.width, self.weight_dropout = width, config.weight_dropout
        self.W = nn.Parameter(torch.empty(self.gates * width, inputs))
        self.R = nn.Parameter(torch.empty(self.gates * width, width))
        self.b_W = nn.Parameter(torch.zeros(self.gates * width))
        self.b_R = nn.Parameter(torch.zeros(self.gates * width))
        for matrix in (self.W, self.R):
            fill_gates(matrix, self.gates, config.init, config.init_range)

    def weights(self) -> list[Tensor]:
        """W, R, b_W, b_R for one pass, in its arithmetic; what is missing of R is missing in all of it."""
        R = dropout.weights(self.R, self.weight_dropout, self.training)
        return precision.cast(self.W, R, self.b_W, self.b_R)

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read (T, B, in) from a state: all outputs (T, B, D) and the state after the last."""
        x, *before = precision.cast(x, *state)
        return self.run(x, tuple(before), self.weights())

    def run(self, x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        """The same with given weights, as fast as this layer can; `loop` where no kernel computes it."""
        if not self.has_kernel or (len(x) == 1 and not x.is_cuda):
            # A kernel on the processor packs its weights at every call: one step does not pay for it.
            return self.loop(x, state, weights)
        outputs, after = self.fused(x, tuple(s[None] for s in state), weights, 0.0)
        return outputs, tuple(s[0] for s in after)

    def fused(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """`kernel` as the device wants it: on the GPU weights in one piece and widths for its tensor cores."""
        if not x.is_cuda:
            return self.kernel(x, state, weights, p)
        if evened.is_even(x, state):
            return self.kernel(x, state, packed(weights), p)
        return self.widened(x, state, weights, p)

    def widened(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """The same numbers from wider layers."""
        D = state[0].shape[-1]
        wide = packed(evened.weights(weights, self.gates))
        outputs, after = self.kernel(evened.inputs(x), tuple(map(evened.inputs, state)), wide, p)
        return outputs[..., :D], tuple(s[..., :D] for s in after)

    @property
    def has_kernel(self) -> bool:
        """Whether `kernel` computes what `cell` says."""
        return True

    def kernel(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """All steps of L layers like this one, cuDNN's work on the GPU and oneDNN's on the processor.

        The state's tensors are (L, B, D), the weights four a layer; between layers each unit is dropped with `p`.
        """
        raise NotImplementedError

    def loop(self, x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        """Step by step, the products with the inputs of all steps made at once."""
        W, R, b_W, b_R = weights
        outputs = []
        for u in linear(x, W, b_W).unbind(0):  # (B, gates · D)
            state = self.cell(u, state, R, b_R)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def gated(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """The gates of one step, open or shut; a layer without gates has none."""
        return ()

    def cell(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """One step, as the equations say it, from u = W x_t + b_W (B, gates · D)."""
        raise NotImplementedError


def packed(weights: list[Tensor]) -> list[Tensor]:
    """The same numbers in one piece of memory as cuDNN reads them: all layers' matrices, then all biases."""
    order = sorted(range(len(weights)), key=lambda i: weights[i].dim() == 1)
    parts = torch.cat([weights[i].reshape(-1) for i in order]).split([weights[i].numel() for i in order])
    found = dict(zip(order, parts, strict=True))
    return [found[i].view_as(w) for i, w in enumerate(weights)]


class RecurrentNetwork(Network):
    """Embedding → layers → attention over the past, where wanted → output layer.

    The state is each layer's (B, D) tensors; then, with attention, the last M states of the top layer (B, M, D) and
    which of them there are (B, M); then, with a learned start, which rows have read nothing yet (B,).
    """

    def __init__(
        self,
        config: RecurrentConfig,
        vocabulary: Vocabulary,
        counts: Floats | None,
        make_layer: Callable[[int, int], Layer],
    ) -> None:
        super().__init__()
        self.config, widths = config, config.widths
        self.embedding = nn.Parameter(torch.empty(vocabulary.size, widths[0]))
        nn.init.uniform_(self.embedding, -config.init_range, config.init_range)
        self.layers = nn.ModuleList(make_layer(i, o) for i, o in pairwise(widths))
        self.starts = nn.ParameterList(
            torch.zeros(layer.width)
            for layer in self.layers
            for _ in range(layer.memories if config.learned_start else 0)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:] if config.layer_norm)
        if config.attention != "none":
            self.past = Past(config.attention, widths[-1])
            if config.attention_use == "concat":
                self.concat = Concat(widths[-1])
        self.output = make_output(config, widths[-1], vocabulary, self.embedding, counts)

    def start(self, rows: int) -> Tensors:
        """Nothing read: zeros, no memories; a learned start is put in by `forward`, where it can learn."""
        new, M = self.embedding.new_zeros, self.config.memory
        state = [new(rows, layer.width) for layer in self.layers for _ in range(layer.memories)]
        if self.config.attention != "none":
            state += [new(rows, M, self.config.widths[-1]), new(rows, M, dtype=torch.bool)]
        if self.config.learned_start:
            state.append(new(rows, dtype=torch.bool).logical_not())
        return tuple(state)

    def work(self, rows: int, T: int) -> float:
        """Of one time step: each waits for the one before."""
        return float(max(layer.R.numel() for layer in self.layers) * rows)

    def bounded(self, state: Tensors) -> Tensors:
        """Those tensors of a state that can saturate: the h of layers where it is bounded, attention not added."""
        firsts = [sum(layer.memories for layer in self.layers[:k]) for k in range(len(self.layers))]
        if self.config.attention != "none" and self.config.attention_use == "state":
            firsts.pop()
        return tuple(state[i] for i, layer in zip(firsts, self.layers, strict=False) if layer.is_bounded)

    def forward(self, ids: Tensor, state: Tensors) -> Features:
        """(B, T) ids -> (B, T, D); the layers work on (T, B, D)."""
        c, is_on = self.config, self.training
        cells, memory = self._split(state)
        E = dropout.word_types(self.embedding, c.embedding_dropout, is_on)  # (V, E)
        x = self._drop(embedding(ids.t(), E), c.input_dropout)  # (T, B, E)
        if x.is_cuda and self.is_stackable:
            x, after = self._at_once(x, cells)
        else:
            x, after, memory = self._one_by_one(x, cells, memory)
        y = x.transpose(0, 1)  # (B, T, D)
        if c.attention != "none" and c.attention_use != "state":
            a, *memory = self.past(y, *memory)
            y = self.concat(y, a) if c.attention_use == "concat" else y + a
        dropped = self._drop(y, c.output_dropout, time=1)
        fresh = [torch.zeros_like(state[-1])] if c.learned_start else []
        kept = tuple(s if s.dtype == torch.bool else s.to(self.embedding.dtype) for s in [*after, *memory, *fresh])
        return Features(dropped, kept, self._penalty(dropped, x) if is_on else None)

    def _one_by_one(
        self, x: Tensor, cells: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Layer upon layer: (T, B, E) -> (T, B, D), the layers' tensors after it, and the memory."""
        c, after = self.config, list[Tensor]()
        for k, layer in enumerate(self.layers):
            x = self._drop(x, c.hidden_dropout) if k else x
            before, cells = cells[: layer.memories], cells[layer.memories :]
            if k == c.layers - 1 and c.attention != "none" and c.attention_use == "state":
                x, new, memory = self._attentive(layer, x, before, memory)
            else:
                x, new = layer(x, before)
            after += new
            x = self.norms[k](x) if c.layer_norm else x
        return x, after, memory

    @property
    def is_stackable(self) -> bool:
        """Whether all layers can be one kernel's work, which then computes them at the same time, a step apart."""
        c = self.config
        is_plain = not (c.layer_norm or (c.attention != "none" and c.attention_use == "state"))
        is_even = c.layers > 1 and len(set(c.widths[1:])) == 1
        is_dropped_alike = not (self.training and c.locked and self._p_hidden)
        return is_plain and is_even and is_dropped_alike and self.layers[0].has_kernel

    @property
    def _p_hidden(self) -> float:
        return self.config.dropout if self.config.hidden_dropout is None else self.config.hidden_dropout

    def _at_once(self, x: Tensor, cells: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The same as `_one_by_one` in one kernel."""
        n = self.layers[0].memories
        x, *cells = precision.cast(x, *cells)
        weights = [w for layer in self.layers for w in layer.weights()]
        state = tuple(torch.stack(cells[i::n]) for i in range(n))  # (L, B, D)
        x, after = self.layers[0].fused(x, state, weights, self._p_hidden if self.training else 0.0)
        return x, [tensor for layer in zip(*(s.unbind(0) for s in after), strict=True) for tensor in layer]

    def _split(self, state: Tensors) -> tuple[list[Tensor], list[Tensor]]:
        """The layers' tensors, learned where a row is new, and those of the memory."""
        n = sum(layer.memories for layer in self.layers)
        cells = list(state[:n])
        if self.config.learned_start:
            is_new = state[-1][:, None]
            cells = [torch.where(is_new, first, s) for first, s in zip(self.starts, cells, strict=True)]
        return cells, list(state[n : n + 2]) if self.config.attention != "none" else []

    def _drop(self, x: Tensor, p: float | None, time: int = 0) -> Tensor:
        p = self.config.dropout if p is None else p
        return (
            dropout.locked(x, p, self.training, time) if self.config.locked else dropout.units(x, p, self.training)
        )

    def _attentive(
        self, layer: Layer, x: Tensor, state: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, Tensors, list[Tensor]]:
        """h_t = RNN(x_t, h_{t−1}) + a_t, fed on and remembered: step by step, each needs the one before."""
        W, R, b_W, b_R = layer.weights()
        x, *cast = precision.cast(x, *state)
        kept, outputs = tuple(cast), []
        for u in linear(x, W, b_W).unbind(0):
            h, *rest = layer.cell(u, kept, R, b_R)
            h = h + self.past.read(h, *memory)  # (B, D)
            memory = self.past.remember(h[:, None], *memory)
            kept = (h, *rest)
            outputs.append(h)
        return torch.stack(outputs), kept, memory

    def _penalty(self, dropped: Tensor, h: Tensor) -> Tensor | None:
        """α · mean(h_dropped²) + β · mean((h_t − h_{t−1})²) of (B, T, D) and (T, B, D) (Merity et al. 2018)."""
        c = self.config
        terms = []
        if c.activation_penalty:
            terms.append(c.activation_penalty * dropped.float().square().mean())
        if c.temporal_penalty and len(h) > 1:
            terms.append(c.temporal_penalty * (h[1:] - h[:-1]).float().square().mean())
        return torch.stack(terms).sum() if terms else None
