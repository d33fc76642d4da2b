"""Transformer block (Vaswani et al. 2017): multi-head attention softmax(QKᵀ/√d_k)V and a position-wise network."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.config import check_fractions
from chainrule.errors import ConfigError
from chainrule.neural.config import ModelConfig, check_sizes
from chainrule.neural.layers import dropout
from chainrule.neural.layers.initialization import initialize, initialize_gates
from chainrule.neural.layers.positions import LearnedPositions, Rotation, sinusoidal


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig(ModelConfig):
    """Settings of a stack of Transformer blocks."""

    heads: int = 4
    positions: Literal["sinusoidal", "learned", "rotary"] = "rotary"
    norm: Literal["pre", "post"] = "pre"  # pre-norm, or post-norm as in the 2017 paper
    feedforward: int = 0  # inner width of the position-wise network; 0: 4 · hidden
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: float | None = None  # of the attention weights
    bias: bool = False  # in linear layers and norms

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        check_sizes(self, 1, "heads")
        check_sizes(self, 0, "feedforward")
        check_fractions(self, "model", "attention_dropout")

    @property
    def inner_width(self) -> int:
        """Inner width of the position-wise network."""
        return self.feedforward or 4 * self.hidden

    def check_heads(self) -> None:
        """Raise ConfigError if the width is not divisible among the heads."""
        if self.hidden % self.heads:
            raise ConfigError(f"model.hidden, {self.hidden}, cannot be divided among model.heads, {self.heads}")
        if self.positions == "rotary" and self.hidden // self.heads % 2:
            raise ConfigError(
                f"rotary positions rotate pairs of dimensions, but model.hidden {self.hidden} / "
                f"model.heads {self.heads} is odd; "
                "choose an even width of a head, or learned or sinusoidal positions"
            )


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, p: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√d_k)V: (B, H, T, d), (B, H, S, d), (B, H, S, d) -> (B, H, T, d).

    `mask`, broadcast to (B, H, T, S), is True for visible keys; every query must see one. `p` is the dropout rate.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    alpha = dropout.units(scores.softmax(dim=-1), p, is_on=True)
    return alpha.to(v.dtype) @ v


class TransformerBlock(nn.Module):
    """Causal self-attention and a position-wise network, each with a residual connection and layer norm."""

    branches: ClassVar[int] = 2  # residual branches

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config = config
        D, inner_width = config.hidden, config.inner_width
        self.qkv = nn.Linear(D, 3 * D, bias=config.bias)  # W^Q, W^K, W^V stacked
        self.merge = nn.Linear(D, D, bias=config.bias)  # W^O
        self.widen = nn.Linear(D, inner_width, bias=config.bias)
        self.narrow = nn.Linear(inner_width, D, bias=config.bias)
        self.norm_attention = nn.LayerNorm(D, bias=config.bias)
        self.norm_feedforward = nn.LayerNorm(D, bias=config.bias)
        initialize_gates(self.qkv.weight, 3, config.init, config.init_range)
        for layer, factor in ((self.widen, 1.0), (self.merge, self.scale), (self.narrow, self.scale)):
            initialize(layer.weight, config.init, config.init_range)
            layer.weight.data.mul_(factor)
        for layer in (self.qkv, self.merge, self.widen, self.narrow) if config.bias else ():
            nn.init.zeros_(layer.bias)

    @property
    def scale(self) -> float:
        """Initial scale of the last matrix of each branch, so that the residual sum keeps its variance (GPT-2)."""
        return 1 / math.sqrt(self.branches * self.config.layers) if self.config.init == "normal" else 1.0

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
        """Concat(head_1 … head_H) W^O; without a mask the cache must be empty and attention is causal."""
        B, T, D = x.shape
        H = self.config.heads
        q, k, v = self.qkv(x).view(B, T, 3, H, D // H).unbind(dim=2)  # (B, T, H, d) each
        if rotation is not None:
            q, k = rotation.rotate(q), rotation.rotate(k)
        if past[0].shape[1]:
            k, v = (torch.cat([old.to(new.dtype), new], dim=1) for old, new in zip(past, (k, v), strict=True))
        p = dropout.rate(self.config.attention_dropout, self.config) if self.training else 0.0
        Q, K, V = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, d), (B, H, P+T, d) twice
        if mask is None and p and dropout.is_sliced(x):
            mask = torch.ones(T, T, dtype=torch.bool).tril()  # `attend` slices the dropout mask
        if mask is None:
            a = functional.scaled_dot_product_attention(Q, K, V, dropout_p=p, is_causal=True)
        else:
            a = attend(Q, K, V, mask, p)
        a = self.merge(a.transpose(1, 2).reshape(B, T, D))
        return dropout.apply(a, self.config, self.training), k, v

    def _feedforward(self, x: Tensor) -> Tensor:
        """W_2 φ(W_1 x): (B, T, D) -> (B, T, D)."""
        inner = self.widen(x)
        inner = functional.gelu(inner) if self.config.activation == "gelu" else functional.relu(inner)
        return dropout.apply(self.narrow(inner), self.config, self.training)


def make_positions(config: BlockConfig, window: int) -> LearnedPositions | None:
    """Return the table of learned positions; None if others are configured."""
    if config.positions != "learned":
        return None
    learned = LearnedPositions(window, config.hidden)
    initialize(learned.table, "normal", config.init_range)
    return learned


def add_positions(x: Tensor, positions: Tensor, learned: LearnedPositions | None, config: BlockConfig) -> Tensor:
    """Add sinusoidal or learned positions (T,) or (B, T) to (B, T, D); rotary ones are applied in attention."""
    if config.positions == "sinusoidal":
        return x + sinusoidal(positions, config.hidden, x.dtype)
    return x if learned is None else x + learned(positions)


def causal_mask(length: Tensor, P: int, T: int, window: int | None = None) -> Tensor:
    """(B, 1, T, P+T) mask of T new tokens after P cache entries, of which the last `length` (B,) are valid.

    A token sees the tokens up to itself, or the last `window` of them.
    """
    entry = torch.arange(P + T, device=length.device)  # (P+T,)
    current = entry[P:, None]  # (T, 1)  cache entry of each token
    is_past = entry <= current  # (T, P+T)
    if window is not None:
        is_past &= entry > current - window
    is_valid = entry >= P - length[:, None]  # (B, P+T)
    return is_past & is_valid[:, None, None, :]


KeysValues = tuple[Tensor, Tensor]


class CrossBlock(TransformerBlock):
    """Self-attention, cross-attention softmax(QKᵀ/√d_k)V over the source, position-wise network."""

    branches: ClassVar[int] = 3

    def __init__(self, config: BlockConfig) -> None:
        super().__init__(config)
        D = config.hidden
        self.q_cross = nn.Linear(D, D, bias=config.bias)
        self.kv_cross = nn.Linear(D, 2 * D, bias=config.bias)
        self.merge_cross = nn.Linear(D, D, bias=config.bias)
        self.norm_cross = nn.LayerNorm(D, bias=config.bias)
        initialize_gates(self.kv_cross.weight, 2, config.init, config.init_range)
        for layer in (self.q_cross, self.merge_cross):
            initialize(layer.weight, config.init, config.init_range)
        self.merge_cross.weight.data.mul_(self.scale)
        for layer in (self.q_cross, self.kv_cross, self.merge_cross) if config.bias else ():
            nn.init.zeros_(layer.bias)

    def source(self, memory: Tensor) -> KeysValues:
        """Project the encoder outputs to keys and values, once per source: (B, S, D) -> twice (B, S, H, d)."""
        B, S, D = memory.shape
        k, v = self.kv_cross(memory).view(B, S, 2, self.config.heads, D // self.config.heads).unbind(dim=2)
        return k, v

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        past: KeysValues,
        rotation: Rotation | None,
        mask: Tensor | None,
        source: KeysValues,
        memory_mask: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, T, D) -> (B, T, D), all keys and values so far, and the cross-attention weights (B, H, T, S)."""
        is_pre = self.config.norm == "pre"
        a, keys, values = self._attention(self.norm_attention(x) if is_pre else x, past, rotation, mask)
        x = x + a if is_pre else self.norm_attention(x + a)
        a, alpha = self._cross_attention(self.norm_cross(x) if is_pre else x, source, memory_mask)
        x = x + a if is_pre else self.norm_cross(x + a)
        f = self._feedforward(self.norm_feedforward(x) if is_pre else x)
        return (x + f if is_pre else self.norm_feedforward(x + f)), keys, values, alpha

    def _cross_attention(self, x: Tensor, source: KeysValues, memory_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-attention: (B, T, D), (B, S) -> (B, T, D) and the weights (B, H, T, S)."""
        B, T, D = x.shape
        H, d = self.config.heads, D // self.config.heads
        q = self.q_cross(x).view(B, T, H, d).transpose(1, 2)  # (B, H, T, d)
        k, v = (part.to(q.dtype).transpose(1, 2) for part in source)  # (B, H, S, d)
        e = (q @ k.transpose(-2, -1)) / math.sqrt(d)  # (B, H, T, S)
        alpha = torch.softmax(e.masked_fill(~memory_mask[:, None, None], -torch.inf), dim=-1)
        p = dropout.rate(self.config.attention_dropout, self.config) if self.training else 0.0
        a = dropout.units(alpha, p, is_on=True).to(v.dtype) @ v
        a = self.merge_cross(a.transpose(1, 2).reshape(B, T, D))
        return dropout.apply(a, self.config, self.training), alpha
