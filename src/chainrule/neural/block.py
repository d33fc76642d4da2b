"""The Transformer's block: softmax(QKᵀ/√d_k)V in several heads, then a net on each position by itself.

Lives here: what a decoder, an encoder and both together are made of, and its settings. Not here: positions
(positions.py), attention from one text to another (cross.py), the networks.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.neural import dropout
from chainrule.neural.initialization import fill, fill_gates
from chainrule.neural.positions import Rotation
from chainrule.neural.settings import LARGEST, Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig(Architecture):
    """Settings of a stack of blocks."""

    heads: int = 4
    positions: Literal["sinusoidal", "learned", "rotary"] = "rotary"
    norm: Literal["pre", "post"] = "pre"  # before each branch, or after its sum (2017)
    feedforward: int = 0  # width inside the position-wise net, 0: four times `hidden`
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: float | None = None  # of the attention weights
    bias: bool = False  # in linear maps and norms

    def __post_init__(self) -> None:
        Architecture.__post_init__(self)
        for name, least in (("heads", 1), ("feedforward", 0)):
            if not least <= getattr(self, name) <= LARGEST:
                raise ConfigError(f"model.{name} is {getattr(self, name)}; choose {least} to {LARGEST}")
        if self.attention_dropout is not None and not 0 <= self.attention_dropout < 1:
            raise ConfigError(f"model.attention_dropout is {self.attention_dropout:g}; choose a value in [0, 1)")

    def check_blocks(self) -> None:
        """Refuse widths that heads cannot have."""
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

    branches: ClassVar[int] = 2  # that add to the residual path

    def __init__(self, config: BlockConfig) -> None:
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
        for layer, by in ((self.widen, 1.0), (self.merge, self.scale), (self.narrow, self.scale)):
            fill(layer.weight, config.init, config.init_range)
            layer.weight.data.mul_(by)
        for layer in (self.qkv, self.merge, self.widen, self.narrow) if config.bias else ():
            nn.init.zeros_(layer.bias)

    @property
    def scale(self) -> float:
        """Of the last matrix of each branch: the sum of all of them keeps its variance (GPT-2)."""
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
        """Concat(head_1 … head_H) W^O; without a mask nothing is past and what is ahead is hidden."""
        B, T, D = x.shape
        H = self.config.heads
        q, k, v = self.qkv(x).view(B, T, 3, H, D // H).unbind(dim=2)  # (B, T, H, d) each
        if rotation is not None:
            q, k = rotation.turn(q), rotation.turn(k)
        if past[0].shape[1]:
            k, v = (torch.cat([old.to(new.dtype), new], dim=1) for old, new in zip(past, (k, v), strict=True))
        p = chosen(self.config.attention_dropout, self.config) if self.training else 0.0
        Q, K, V = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, d), (B, H, P+T, d) twice
        if mask is None:
            a = functional.scaled_dot_product_attention(Q, K, V, dropout_p=p, is_causal=True)
        else:
            a = attend(Q, K, V, mask, p)
        a = self.merge(a.transpose(1, 2).reshape(B, T, D))
        return drop(a, self.config.dropout, self.config, self.training), k, v

    def _feedforward(self, x: Tensor) -> Tensor:
        """W_2 φ(W_1 x): (B, T, D) -> (B, T, D)."""
        inner = self.widen(x)
        inner = functional.gelu(inner) if self.config.activation == "gelu" else functional.relu(inner)
        return drop(self.narrow(inner), self.config.dropout, self.config, self.training)


def chosen(special: float | None, config: BlockConfig) -> float:
    """The special rate of dropout, or the general one where it is not set."""
    return config.dropout if special is None else special


def drop(x: Tensor, p: float, config: BlockConfig, is_on: bool) -> Tensor:
    """Dropout by one mask for all time steps, or by one for each."""
    return (dropout.locked if config.locked else dropout.units)(x, p, is_on)
