"""The decoder-only Transformer: each token attends to those before it, softmax(QKᵀ/√d_k)V in several heads.

Lives here: the blocks and their key/value cache. Not here: positions (positions.py), starting anew where the window
ends (the adapter does, by `window` and `position`), attention of a recurrent net to its past (attention.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural import dropout
from chainrule.neural.family import NeuralFamily
from chainrule.neural.initialization import fill, fill_gates
from chainrule.neural.network import Features, Network, Tensors
from chainrule.neural.output import make_output
from chainrule.neural.positions import Learned, Rotation, sinusoidal
from chainrule.neural.settings import LARGEST, Architecture, Initialization


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Architecture):
    """What can be chosen; `embedding` is `hidden` here."""

    heads: int = 4
    window: int = 128  # W: the longest context; beyond it the net starts anew
    positions: Literal["sinusoidal", "learned", "rotary"] = "rotary"
    norm: Literal["pre", "post"] = "pre"  # before each branch, or after its sum (2017)
    feedforward: int = 0  # width inside the position-wise net, 0: four times `hidden`
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: float | None = None  # of the attention weights
    bias: bool = False  # in linear maps and norms
    hidden: int = 128
    layers: int = 4
    bptt: int = 0  # a window
    locked: bool = False
    init: Initialization = "normal"
    init_range: float = 0.02 * math.sqrt(3)  # a standard deviation of 0.02 (GPT-2)

    def __post_init__(self) -> None:
        Architecture.__post_init__(self)
        for name, least in (("heads", 1), ("window", 1), ("feedforward", 0)):
            if not least <= getattr(self, name) <= LARGEST:
                raise ConfigError(f"model.{name} is {getattr(self, name)}; choose {least} to {LARGEST}")
        if self.attention_dropout is not None and not 0 <= self.attention_dropout < 1:
            raise ConfigError(f"model.attention_dropout is {self.attention_dropout:g}; choose a value in [0, 1)")
        if self.embedding not in (0, self.hidden):
            raise ConfigError(
                f"model.embedding is {self.embedding} and model.hidden {self.hidden}; "
                "a Transformer has one width: leave embedding at 0"
            )
        if self.hidden % self.heads:
            raise ConfigError(f"model.hidden, {self.hidden}, cannot be divided among model.heads, {self.heads}")
        if self.positions == "rotary" and self.hidden // self.heads % 2:
            raise ConfigError(
                f"rotary positions turn pairs, and model.hidden {self.hidden} / model.heads {self.heads} is odd; "
                "choose an even width of a head, or learned or sinusoidal positions"
            )


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, p: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√d_k)V: (B, H, T, d), (B, H, S, d), (B, H, S, d) -> (B, H, T, d).

    `mask` is True where a query may look, broadcast to (B, H, T, S); each must see something. `p` drops weights.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    alpha = dropout.units(scores.softmax(dim=-1), p, is_on=True)
    return alpha.to(v.dtype) @ v


class Block(nn.Module):
    """Attention to the past, then a net on each position by itself; around each a residual path and a norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        D, wide = config.hidden, config.feedforward or 4 * config.hidden
        self.qkv = nn.Linear(D, 3 * D, bias=config.bias)  # W^Q, W^K, W^V above one another
        self.merge = nn.Linear(D, D, bias=config.bias)  # W^O
        self.widen = nn.Linear(D, wide, bias=config.bias)
        self.narrow = nn.Linear(wide, D, bias=config.bias)
        self.norm_attention = nn.LayerNorm(D, bias=config.bias)
        self.norm_feedforward = nn.LayerNorm(D, bias=config.bias)
        fill_gates(self.qkv.weight, 3, config.init, config.init_range)
        # 2L branches add up on the residual path: scaled so that their sum keeps its variance (GPT-2).
        scale = 1 / math.sqrt(2 * config.layers) if config.init == "normal" else 1.0
        for layer, by in ((self.widen, 1.0), (self.merge, scale), (self.narrow, scale)):
            fill(layer.weight, config.init, config.init_range)
            layer.weight.data.mul_(by)
        for layer in (self.qkv, self.merge, self.widen, self.narrow) if config.bias else ():
            nn.init.zeros_(layer.bias)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor], rotation: Rotation | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, D) -> (B, T, D), and all keys and values so far, (B, P+T, H, d)."""
        if self.config.norm == "pre":
            a, keys, values = self._attention(self.norm_attention(x), past, rotation, mask)
            x = x + a
            return x + self._feedforward(self.norm_feedforward(x)), keys, values
        a, keys, values = self._attention(x, past, rotation, mask)
        x = self.norm_attention(x + a)
        return self.norm_feedforward(x + self._feedforward(x)), keys, values

    def _attention(
        self, x: Tensor, past: tuple[Tensor, Tensor], rotation: Rotation | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Concat(head_1 … head_H) W^O; without a mask nothing is past and what is ahead is hidden."""
        B, T, D = x.shape
        H = self.config.heads
        q, k, v = self.qkv(x).view(B, T, 3, H, D // H).unbind(dim=2)  # (B, T, H, d) each
        if rotation is not None:
            q, k = rotation.turn(q), rotation.turn(k)
        if past[0].shape[1]:
            k, v = (torch.cat([old.to(new.dtype), new], dim=1) for old, new in zip(past, (k, v), strict=True))
        p = _chosen(self.config.attention_dropout, self.config) if self.training else 0.0
        Q, K, V = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, d), (B, H, P+T, d) twice
        if mask is None:
            a = functional.scaled_dot_product_attention(Q, K, V, dropout_p=p, is_causal=True)
        else:
            a = attend(Q, K, V, mask, p)
        a = self.merge(a.transpose(1, 2).reshape(B, T, D))
        return _drop(a, self.config.dropout, self.config, self.training), k, v

    def _feedforward(self, x: Tensor) -> Tensor:
        """W_2 φ(W_1 x): (B, T, D) -> (B, T, D)."""
        inner = self.widen(x)
        inner = functional.gelu(inner) if self.config.activation == "gelu" else functional.relu(inner)
        return _drop(self.narrow(inner), self.config.dropout, self.config, self.training)


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
        x = _drop(x, _chosen(self.config.output_dropout, self.config), self.config, self.training)
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
        return _drop(x, _chosen(self.config.input_dropout, self.config), self.config, self.training)

    def _mask(self, length: Tensor, P: int, T: int) -> Tensor:
        """(B, 1, T, P+T) what each may look at: nothing unread, nothing ahead, the last W."""
        entry = torch.arange(P + T, device=length.device)  # (P+T,)
        own = entry[P:, None]  # (T, 1)  the entry of each token itself
        near = (entry <= own) & (entry > own - self.window)  # (T, P+T)
        read = entry >= P - length[:, None]  # (B, P+T)
        return near & read[:, None, None, :]


def _chosen(special: float | None, config: Config) -> float:
    return config.dropout if special is None else special


def _drop(x: Tensor, p: float, config: Config, is_on: bool) -> Tensor:
    return (dropout.locked if config.locked else dropout.units)(x, p, is_on)


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
