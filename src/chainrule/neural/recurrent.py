"""Recurrent layers and the network that stacks them, shared by the RNN, LSTM and GRU families.

Batch normalization is omitted on purpose: it would mix statistics over time steps, and the score of a token would
depend on the other rows of the batch.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, pad

from chainrule.config import check_fractions
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.config import ModelConfig, check_sizes
from chainrule.neural.layers import dropout
from chainrule.neural.layers.attention import ConcatProjection, MemoryAttention
from chainrule.neural.layers.initialization import initialize_gates
from chainrule.neural.layers.output import make_output
from chainrule.neural.network import Network, NetworkOutput, Tensors
from chainrule.training.config import TrainingConfig
from chainrule.training.device import cast

MULTIPLE: Final = 8


def is_aligned(x: Tensor, state: Tensors) -> bool:
    """Whether the input and state widths are already multiples of 8."""
    return not (x.shape[-1] % MULTIPLE or state[0].shape[-1] % MULTIPLE)


def pad_last_dim(x: Tensor) -> Tensor:
    """Zero-pad the last dimension."""
    return pad(x, (0, -x.shape[-1] % MULTIPLE))


def pad_weights(tensors: list[Tensor], gates: int) -> list[Tensor]:
    """Zero-pad W (gates · D, in), R (gates · D, D) and both biases of each layer, gate by gate."""
    padded = []
    for tensor in tensors:
        D, in_shape = len(tensor) // gates, tensor.shape[1:]
        blocks = tensor.view(gates, D, *in_shape)
        padding = (0, -in_shape[0] % MULTIPLE, 0, -D % MULTIPLE) if in_shape else (0, -D % MULTIPLE)
        padded.append(pad(blocks, padding).flatten(0, 1))
    return padded


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """Settings shared by all recurrent networks."""

    weight_dropout: float = 0.0  # DropConnect on the recurrent matrices
    hidden_dropout: float | None = None  # between two layers
    activation_penalty: float = 0.0  # AR, α: penalty on large outputs
    temporal_penalty: float = 0.0  # TAR, β: penalty on changes between steps
    learned_start: bool = False  # learn the initial state instead of zeros
    attention: Literal["none", "dot", "scaled-dot", "general", "additive"] = "none"  # over past states
    attention_use: Literal["sum", "concat", "state"] = "sum"  # in the prediction only, or added to the state
    memory: int = 64  # number of past states attended to
    layer_norm: bool = False  # on the outputs of every layer

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        check_fractions(self, "model", "weight_dropout", "hidden_dropout")
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"model.{name} is {getattr(self, name):g}; choose 0 or more")
        if self.tie and self.layers == 1 and self.embedding not in (0, self.hidden):
            raise ConfigError(
                f"model.embedding is {self.embedding} and model.hidden {self.hidden}, but tied weights make the "
                "last layer, here the only one, as wide as the embedding: set them alike, or --no-tie"
            )
        check_sizes(self, 1, "memory")

    @property
    def widths(self) -> list[int]:
        """Input width of the first layer, then the output width of each: E, D, …, D; the last is E if tied."""
        last = self.embedding_width if self.tie else self.hidden
        return [self.embedding_width, *[self.hidden] * (self.layers - 1), last]

    @property
    def facets(self) -> dict[str, str | int]:
        """Settings shown in comparison tables."""
        sizes: dict[str, str | int] = {"layers": self.layers, "width": self.hidden}
        return sizes if self.attention == "none" else {**sizes, "attention": self.attention}


SMALL: Final[dict[str, Any]] = {
    "hidden": 192,
    "dropout": 0.5,
    "training": TrainingConfig(
        batch_size=40, bptt=35, epochs=12, learning_rate=1e-2, weight_decay=0.05, max_seconds=40.0
    ),
}
"""Base settings of the `compare` candidates, for a text of about ten thousand words on a CPU."""


class RecurrentLayer(nn.Module):
    """One recurrent layer; gates are stacked in W, R and both biases in PyTorch's order."""

    gates: ClassVar[int]
    gate_names: ClassVar[tuple[str, ...]] = ()  # names of the values returned by `compute_gates`
    n_states: ClassVar[int] = 1  # number of (B, D) state tensors; the first is h
    is_bounded: bool = True  # |h| never exceeds 1

    def __init__(self, inputs: int, width: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.width, self.weight_dropout = width, config.weight_dropout
        self.W = nn.Parameter(torch.empty(self.gates * width, inputs))
        self.R = nn.Parameter(torch.empty(self.gates * width, width))
        self.b_W = nn.Parameter(torch.zeros(self.gates * width))
        self.b_R = nn.Parameter(torch.zeros(self.gates * width))
        for matrix in (self.W, self.R):
            initialize_gates(matrix, self.gates, config.init, config.init_range)

    def weights(self) -> list[Tensor]:
        """W, R, b_W, b_R for one pass in the compute dtype; DropConnect on R is the same at all steps."""
        R = dropout.drop_connect(self.R, self.weight_dropout, self.training)
        return cast(self.W, R, self.b_W, self.b_R)

    def forward(self, x: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Read (T, B, in) from a state: all outputs (T, B, D) and the final state."""
        weights = self.weights()
        x, *before = cast(x, *state)
        return self.forward_with(x, tuple(before), weights)

    def forward_with(self, x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        """Forward pass with the given weights, by a fused kernel if available, else by `unroll`."""
        if not self.has_kernel or (len(x) == 1 and not x.is_cuda):
            # The CPU kernel repacks its weights at every call, which is slower for a single step.
            return self.unroll(x, state, weights)
        outputs, after = self.run_kernel(x, tuple(s[None] for s in state), weights, 0.0)
        return outputs, tuple(s[0] for s in after)

    def run_kernel(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """Call `kernel`; on the GPU with packed weights and widths padded for tensor cores."""
        if not x.is_cuda:
            return self.kernel(x, state, weights, p)
        if is_aligned(x, state):
            return self.kernel(x, state, pack_weights(weights), p)
        return self.run_padded_kernel(x, state, weights, p)

    def run_padded_kernel(
        self, x: Tensor, state: Tensors, weights: list[Tensor], p: float
    ) -> tuple[Tensor, Tensors]:
        """Call `kernel` on zero-padded widths and cut the results."""
        D = state[0].shape[-1]
        padded = pack_weights(pad_weights(weights, self.gates))
        outputs, after = self.kernel(pad_last_dim(x), tuple(map(pad_last_dim, state)), padded, p)
        return outputs[..., :D], tuple(s[..., :D] for s in after)

    @property
    def has_kernel(self) -> bool:
        """Whether a fused kernel computes the same function as `step`."""
        return True

    def kernel(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """Fused kernel for all steps of L layers (cuDNN on the GPU, oneDNN on the CPU).

        State tensors are (L, B, D), four weights per layer; `p` is the dropout rate between layers.
        """
        raise NotImplementedError

    def unroll(self, x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        """Unrolled forward pass; the products with all inputs are computed at once."""
        W, R, b_W, b_R = weights
        outputs = []
        for u in linear(x, W, b_W).unbind(0):  # (B, gates · D)
            state = self.step(u, state, R, b_R)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def compute_gates(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """Gates of one step; empty for a layer without gates."""
        return ()

    def step(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """One step, from u = W x_t + b_W (B, gates · D)."""
        raise NotImplementedError


def pack_weights(weights: list[Tensor]) -> list[Tensor]:
    """Copy weights into one contiguous buffer in cuDNN's order: matrices of all layers, then biases."""
    order = sorted(range(len(weights)), key=lambda i: weights[i].dim() == 1)
    parts = torch.cat([weights[i].reshape(-1) for i in order]).split([weights[i].numel() for i in order])
    views = dict(zip(order, parts, strict=True))
    return [views[i].view_as(w) for i, w in enumerate(weights)]


class RecurrentNetwork(Network):
    """Embedding, recurrent layers, optional attention over past states, output layer.

    The state contains the (B, D) tensors of each layer; with attention, the last M states of the top layer
    (B, M, D) and their validity (B, M); with a learned start, which rows have read nothing yet (B,).
    """

    def __init__(
        self,
        config: RecurrentConfig,
        vocabulary: Vocabulary,
        counts: Floats | None,
        layer_class: type[RecurrentLayer],
    ) -> None:
        super().__init__()
        self.config, widths = config, config.widths
        self.embedding = nn.Parameter(torch.empty(vocabulary.size, widths[0]))
        nn.init.uniform_(self.embedding, -config.init_range, config.init_range)
        self.layers = nn.ModuleList(layer_class(i, o, config) for i, o in pairwise(widths))
        self.starts = nn.ParameterList(
            torch.zeros(layer.width)
            for layer in self.layers
            for _ in range(layer.n_states if config.learned_start else 0)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:] if config.layer_norm)
        if config.attention != "none":
            self.past = MemoryAttention(config.attention, widths[-1])
            if config.attention_use == "concat":
                self.concat = ConcatProjection(widths[-1])
        self.output = make_output(config, widths[-1], vocabulary, self.embedding, counts)

    def start(self, rows: int) -> Tensors:
        """Zeros and an empty memory; a learned start is inserted by `forward`, where it gets gradients."""
        new, M = self.embedding.new_zeros, self.config.memory
        state = [new(rows, layer.width) for layer in self.layers for _ in range(layer.n_states)]
        if self.config.attention != "none":
            state += [new(rows, M, self.config.widths[-1]), new(rows, M, dtype=torch.bool)]
        if self.config.learned_start:
            state.append(new(rows, dtype=torch.bool).logical_not())
        return tuple(state)

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of one time step, since steps are sequential."""
        return float(max(layer.R.numel() for layer in self.layers) * rows)

    def saturating_states(self, state: Tensors) -> Tensors:
        """Return the state tensors that can saturate: each bounded h, unless attention is added to it."""
        firsts = [sum(layer.n_states for layer in self.layers[:k]) for k in range(len(self.layers))]
        if self.config.attention != "none" and self.config.attention_use == "state":
            firsts.pop()
        return tuple(state[i] for i, layer in zip(firsts, self.layers, strict=False) if layer.is_bounded)

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """(B, T) ids -> (B, T, D); the layers work on (T, B, D)."""
        c, is_on = self.config, self.training
        cells, memory = self._split(state)
        E = dropout.embedding_rows(self.embedding, c.embedding_dropout, is_on)  # (V, E)
        x = dropout.apply(embedding(ids.t(), E), c, is_on, c.input_dropout, time=0)  # (T, B, E)
        if x.is_cuda and self.is_fusible:
            x, after = self._run_fused(x, cells)
        else:
            x, after, memory = self._run_separately(x, cells, memory)
        y = x.transpose(0, 1)  # (B, T, D)
        if c.attention != "none" and c.attention_use != "state":
            a, *memory = self.past(y, *memory)
            y = self.concat(y, a) if c.attention_use == "concat" else y + a
        if c.locked or (c.attention != "none" and c.attention_use == "concat"):
            dropped = dropout.apply(y, c, is_on, c.output_dropout)
        else:  # in memory, time comes first
            dropped = dropout.apply(y.transpose(0, 1), c, is_on, c.output_dropout, time=0).transpose(0, 1)
        is_new = [torch.zeros_like(state[-1])] if c.learned_start else []
        new_state = tuple(
            s if s.dtype == torch.bool else s.to(self.embedding.dtype) for s in [*after, *memory, *is_new]
        )
        return NetworkOutput(dropped, new_state, self._penalty(dropped, x) if is_on else None)

    def _run_separately(
        self, x: Tensor, cells: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Run the layers one after another: (T, B, E) -> (T, B, D), final layer states, memory."""
        c, after = self.config, list[Tensor]()
        for k, layer in enumerate(self.layers):
            x = dropout.apply(x, c, self.training, c.hidden_dropout, time=0) if k else x
            before, cells = cells[: layer.n_states], cells[layer.n_states :]
            if k == c.layers - 1 and c.attention != "none" and c.attention_use == "state":
                x, new, memory = self._run_with_attention(layer, x, before, memory)
            else:
                x, new = layer(x, before)
            after += new
            x = self.norms[k](x) if c.layer_norm else x
        return x, after, memory

    @property
    def is_fusible(self) -> bool:
        """Whether one fused kernel can run all layers."""
        c = self.config
        is_plain = not (c.layer_norm or (c.attention != "none" and c.attention_use == "state"))
        is_uniform = c.layers > 1 and len(set(c.widths[1:])) == 1
        has_uniform_dropout = not (self.training and c.locked and dropout.rate(c.hidden_dropout, c))
        return is_plain and is_uniform and has_uniform_dropout and self.layers[0].has_kernel

    def _run_fused(self, x: Tensor, cells: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Run all layers in one fused kernel."""
        n = self.layers[0].n_states
        x, *cells = cast(x, *cells)
        weights = [w for layer in self.layers for w in layer.weights()]
        state = tuple(torch.stack(cells[i::n]) for i in range(n))  # (L, B, D)
        p = dropout.rate(self.config.hidden_dropout, self.config) if self.training else 0.0
        x, after = self.layers[0].run_kernel(x, state, weights, p)
        return x, [tensor for layer in zip(*(s.unbind(0) for s in after), strict=True) for tensor in layer]

    def _split(self, state: Tensors) -> tuple[list[Tensor], list[Tensor]]:
        """Split the state into layer tensors, with the learned start in new rows, and the attention memory."""
        n = sum(layer.n_states for layer in self.layers)
        cells = list(state[:n])
        if self.config.learned_start:
            is_new = state[-1][:, None]
            cells = [torch.where(is_new, first, s) for first, s in zip(self.starts, cells, strict=True)]
        return cells, list(state[n : n + 2]) if self.config.attention != "none" else []

    def _run_with_attention(
        self, layer: RecurrentLayer, x: Tensor, state: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, Tensors, list[Tensor]]:
        """h_t = RNN(x_t, h_{t−1}) + a_t as the new state, step by step."""
        W, R, b_W, b_R = layer.weights()
        x, *state_parts = cast(x, *state)
        cell_state, outputs = tuple(state_parts), []
        for u in linear(x, W, b_W).unbind(0):
            h, *rest = layer.step(u, cell_state, R, b_R)
            h = h + self.past.attend_step(h, *memory)  # (B, D)
            memory = self.past.append(h[:, None], *memory)
            cell_state = (h, *rest)
            outputs.append(h)
        return torch.stack(outputs), cell_state, memory

    def _penalty(self, dropped: Tensor, h: Tensor) -> Tensor | None:
        """α · mean(h_dropped²) + β · mean((h_t − h_{t−1})²) of (B, T, D) and (T, B, D) (Merity et al. 2018)."""
        c = self.config
        terms = []
        if c.activation_penalty:
            terms.append(c.activation_penalty * dropped.float().square().mean())
        if c.temporal_penalty and len(h) > 1:
            terms.append(c.temporal_penalty * (h[1:] - h[:-1]).float().square().mean())
        return torch.stack(terms).sum() if terms else None
