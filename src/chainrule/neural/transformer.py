"""The decoder-only Transformer: each token attends to those before it.

Lives here: the stack of blocks and its key/value cache. Not here: the block (block.py), positions (positions.py),
starting anew where the window ends (the adapter does, by `window` and `position`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural import dropout
from chainrule.neural.block import Block, BlockConfig, chosen, drop
from chainrule.neural.family import NeuralFamily
from chainrule.neural.initialization import fill
from chainrule.neural.network import Features, Network, Tensors
from chainrule.neural.output import make_output
from chainrule.neural.positions import Learned, Rotation, sinusoidal
from chainrule.neural.settings import LARGEST, Initialization


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(BlockConfig):
    """What can be chosen; `embedding` is `hidden` here."""

    window: int = 128  # W: the longest context; beyond it the net starts anew
    hidden: int = 128
    layers: int = 4
    bptt: int = 0  # a window
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
        self.check_blocks()
        if not 1 <= self.window <= LARGEST:
            raise ConfigError(f"model.window is {self.window}; choose 1 to {LARGEST}")


class Transformer(Network):
    """Embedding with positions, blocks, an output layer.

    Its state is (length (B,), keys and values of each layer (B, P, H, d)): row b has read length[b] tokens, and the
    last of its P entries are theirs. While learning, what is read from the empty state leaves it empty: each window
    of the training text stands alone, and no cache is kept. In evaluation the state is the cache.
    """

    window: int

    def __init__(self, config: Config, vocabulary: Vocabulary, counts: Floats | None) -> None:
        super().__init__()
        self.config, self.window = config, config.window
        self.embedding = nn.Parameter(torch.empty(vocabulary.size, config.hidden))
        fill(self.embedding, "normal", config.init_range)
        self.learned = Learned(config.window, config.hidden) if config.positions == "learned" else None
        if self.learned is not None:
            fill(self.learned.table, "normal", config.init_range)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, bias=config.bias) if config.norm == "pre" else None
        self.output = make_output(config, config.hidden, vocabulary, self.embedding, counts)

    def start(self, rows: int) -> Tensors:
        """Nothing read: no entries."""
        H, E = self.config.heads, self.embedding
        empty = torch.empty(rows, 0, H, self.config.hidden // H, device=E.device, dtype=E.dtype)
        return (torch.zeros(rows, dtype=torch.int64, device=E.device), *[empty] * (2 * self.config.layers))

    def position(self, state: Tensors) -> Tensor:
        """(B,) tokens read since the start."""
        return state[0]

    def work(self, rows: int, T: int) -> float:
        """Of the position-wise net."""
        return float(self.config.hidden * (self.config.feedforward or 4 * self.config.hidden) * rows * T)

    def restart(self, state: Tensors, rows: Tensor) -> Tensors:
        """Rows of length 0 see none of their entries."""
        return (state[0].masked_fill(rows, 0), *state[1:])

    def join(self, states: Sequence[Tensors]) -> Tensors:
        """Rows with fewer entries get some in front that nobody looks at."""
        P = max(state[1].shape[1] for state in states)
        lengths, *caches = zip(*states, strict=True)
        padded = ([functional.pad(c, (0, 0, 0, 0, P - c.shape[1], 0)) for c in parts] for parts in caches)
        return (torch.cat(lengths), *(torch.cat(parts) for parts in padded))

    def forward(self, ids: Tensor, state: Tensors) -> Features:
        """Read (B, T) ids, row b's at the positions length[b] … length[b]+T−1; each attends to the last W read."""
        length, *caches = state
        P, T = caches[0].shape[1], ids.shape[1]
        positions = torch.arange(T, device=ids.device)  # (T,), or (B, T) where rows have a past
        positions = positions + length[:, None] if P else positions
        mask = self._mask(length, P, T) if P or self.window < T else None
        rotation = None
        if self.config.positions == "rotary":
            rotation = Rotation.at(positions, self.config.hidden // self.config.heads, self.embedding.dtype)
        x = self._embed(ids, positions)  # (B, T, D)
        after: list[Tensor] = []
        for block, *past in zip(self.blocks, caches[0::2], caches[1::2], strict=True):
            x, *both = block(x, tuple(past), rotation, mask)
            after += [each[:, -self.window :] for each in both]
        x = x if self.norm is None else self.norm(x)
        x = drop(x, chosen(self.config.output_dropout, self.config), self.config, self.training)
        return Features(x, state if self.training and not P else (length + T, *after))

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Word vectors and, unless queries and keys are turned later, positions: (B, T) -> (B, T, D)."""
        D = self.config.hidden
        x = functional.embedding(
            ids, dropout.word_types(self.embedding, self.config.embedding_dropout, self.training)
        )
        if self.config.positions == "sinusoidal":
            x = x * math.sqrt(D) + sinusoidal(positions, D, x.dtype)  # small vectors, raised to the size of a sine
        elif self.learned is not None:
            x = x + self.learned(positions)
        return drop(x, chosen(self.config.input_dropout, self.config), self.config, self.training)

    def _mask(self, length: Tensor, P: int, T: int) -> Tensor:
        """(B, 1, T, P+T) what each may look at: nothing unread, nothing ahead, the last W."""
        entry = torch.arange(P + T, device=length.device)  # (P+T,)
        own = entry[P:, None]  # (T, 1)  the entry of each token itself
        near = (entry <= own) & (entry > own - self.window)  # (T, P+T)
        read = entry >= P - length[:, None]  # (B, P+T)
        return near & read[:, None, None, :]


def build(config: Config, vocabulary: Vocabulary, counts: Floats | None) -> Network:
    """The network with its first weights; `counts` (V,) of the training text, None where they will be loaded."""
    return Transformer(config, vocabulary, counts)


def candidates() -> list[Config]:
    """What `compare` trains: one net that learns a small text in half a minute."""
    small = Config(hidden=96, layers=2, window=64, dropout=0.1)
    return [replace(small, batch_size=16, epochs=10, learning_rate=4e-3, max_seconds=40.0)]


def facets(config: Config) -> dict[str, str | int]:
    """Depth and width."""
    return {"layers": config.layers, "width": config.hidden}


family = NeuralFamily(Config, build, candidates, facets)
