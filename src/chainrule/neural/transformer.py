"""Decoder-only Transformer language model with a key/value cache."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.config import with_settings
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.config import Initialization, check_sizes
from chainrule.neural.family import NeuralFamily
from chainrule.neural.layers import dropout
from chainrule.neural.layers.initialization import initialize
from chainrule.neural.layers.output import make_output
from chainrule.neural.layers.positions import Rotation
from chainrule.neural.layers.transformer_block import (
    BlockConfig,
    TransformerBlock,
    add_positions,
    causal_mask,
    make_positions,
)
from chainrule.neural.network import Network, NetworkOutput, Tensors
from chainrule.training.config import TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(BlockConfig):
    """Settings of a Transformer; `embedding` equals `hidden`."""

    window: int = 128  # W: maximum context; the state is reset when it is full
    hidden: int = 128
    layers: int = 4
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(bptt=0))  # bptt 0: a window
    locked: bool = False
    init: Initialization = "normal"
    init_range: float = 0.02 * math.sqrt(3)  # a standard deviation of 0.02 (GPT-2)

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        if self.embedding not in (0, self.hidden):
            raise ConfigError(
                f"model.embedding is {self.embedding} and model.hidden {self.hidden}; "
                "a Transformer has one width: leave embedding at 0"
            )
        self.check_heads()
        check_sizes(self, 1, "window")


class Transformer(Network):
    """Embedding with positions, blocks, an output layer.

    The state is (length (B,), keys and values of each layer (B, P, H, d)): row b has read length[b] tokens, whose
    entries are right-aligned in the cache. In training from the empty state no cache is kept, since windows are
    independent.
    """

    window: int

    def __init__(self, config: Config, vocabulary: Vocabulary, counts: Floats | None) -> None:
        super().__init__()
        self.config, self.window = config, config.window
        self.embedding = nn.Parameter(torch.empty(vocabulary.size, config.hidden))
        initialize(self.embedding, "normal", config.init_range)
        self.learned = make_positions(config, config.window)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, bias=config.bias) if config.norm == "pre" else None
        self.output = make_output(config, config.hidden, vocabulary, self.embedding, counts)

    def start(self, rows: int) -> Tensors:
        """Empty cache."""
        H, E = self.config.heads, self.embedding
        empty = torch.empty(rows, 0, H, self.config.hidden // H, device=E.device, dtype=E.dtype)
        return (torch.zeros(rows, dtype=torch.int64, device=E.device), *[empty] * (2 * self.config.layers))

    def position(self, state: Tensors) -> Tensor:
        """(B,) tokens read since the last reset."""
        return state[0]

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of the position-wise network."""
        return float(self.config.hidden * self.config.inner_width * rows * T)

    def reset_rows(self, state: Tensors, rows: Tensor) -> Tensors:
        """Reset rows: with length 0 none of their cache entries is visible."""
        return (state[0].masked_fill(rows, 0), *state[1:])

    def join(self, states: Sequence[Tensors]) -> Tensors:
        """Concatenate states, padding shorter caches on the left with masked entries."""
        P = max(state[1].shape[1] for state in states)
        lengths, *caches = zip(*states, strict=True)
        padded = ([functional.pad(c, (0, 0, 0, 0, P - c.shape[1], 0)) for c in parts] for parts in caches)
        return (torch.cat(lengths), *(torch.cat(parts) for parts in padded))

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """Read (B, T) ids, row b at positions length[b] … length[b]+T−1; each attends to the last W tokens."""
        length, *caches = state
        P, T = caches[0].shape[1], ids.shape[1]
        positions = torch.arange(T, device=ids.device)  # (T,), or (B, T) with a cache
        positions = positions + length[:, None] if P else positions
        mask = causal_mask(length, P, T, self.window) if P or self.window < T else None
        rotation = None
        if self.config.positions == "rotary":
            rotation = Rotation.at(positions, self.config.hidden // self.config.heads, self.embedding.dtype)
        x = self._embed(ids, positions)  # (B, T, D)
        after: list[Tensor] = []
        for block, *past in zip(self.blocks, caches[0::2], caches[1::2], strict=True):
            x, *keys_values = block(x, tuple(past), rotation, mask)
            after += [cache[:, -self.window :] for cache in keys_values]
        x = x if self.norm is None else self.norm(x)
        x = dropout.apply(x, self.config, self.training, self.config.output_dropout)
        return NetworkOutput(x, state if self.training and not P else (length + T, *after))

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Word vectors plus positions, unless rotary: (B, T) -> (B, T, D)."""
        x = functional.embedding(
            ids, dropout.embedding_rows(self.embedding, self.config.embedding_dropout, self.training)
        )
        if self.config.positions == "sinusoidal":
            x = x * math.sqrt(self.config.hidden)  # scaled to the magnitude of the sinusoids
        x = add_positions(x, positions, self.learned, self.config)
        return dropout.apply(x, self.config, self.training, self.config.input_dropout)


def candidates() -> list[Config]:
    """Configs for `compare`: one network that trains on a small text in half a minute."""
    small = Config(hidden=96, layers=2, window=64, dropout=0.1)
    return [with_settings(small, batch_size=16, epochs=10, learning_rate=4e-3, max_seconds=40.0)]


def facets(config: Config) -> dict[str, str | int]:
    """Settings shown in comparison tables."""
    return {"layers": config.layers, "width": config.hidden}


build = Transformer
family = NeuralFamily(Config, build, candidates, facets)
