"""A block that attends to its own past and then to another text: the decoder's half of a Transformer."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from chainrule.neural import dropout
from chainrule.neural.block import Block, BlockConfig, chosen, drop
from chainrule.neural.initialization import fill, fill_gates
from chainrule.neural.positions import Rotation

Past = tuple[Tensor, Tensor]


class CrossBlock(Block):
    """Self-attention, cross-attention softmax(QKᵀ/√d_k)V with K and V of the source, position-wise net."""

    branches: ClassVar[int] = 3

    def __init__(self, config: BlockConfig) -> None:
        super().__init__(config)
        D = config.hidden
        self.q_cross = nn.Linear(D, D, bias=config.bias)
        self.kv_cross = nn.Linear(D, 2 * D, bias=config.bias)
        self.merge_cross = nn.Linear(D, D, bias=config.bias)
        self.norm_cross = nn.LayerNorm(D, bias=config.bias)
        fill_gates(self.kv_cross.weight, 2, config.init, config.init_range)
        for layer in (self.q_cross, self.merge_cross):
            fill(layer.weight, config.init, config.init_range)
        self.merge_cross.weight.data.mul_(self.scale)
        for layer in (self.q_cross, self.kv_cross, self.merge_cross) if config.bias else ():
            nn.init.zeros_(layer.bias)

    def source(self, memory: Tensor) -> Past:
        """Keys and values of the source, made once: (B, S, D) -> twice (B, S, H, d)."""
        B, S, D = memory.shape
        k, v = self.kv_cross(memory).view(B, S, 2, self.config.heads, D // self.config.heads).unbind(dim=2)
        return k, v

    def forward(  # type: ignore[override]
        self, x: Tensor, past: Past, rotation: Rotation | None, mask: Tensor | None, source: Past, there: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, T, D) -> (B, T, D), all keys and values so far, and where it looked, (B, H, T, S)."""
        is_pre = self.config.norm == "pre"
        a, keys, values = self._attention(self.norm_attention(x) if is_pre else x, past, rotation, mask)
        x = x + a if is_pre else self.norm_attention(x + a)
        a, alpha = self._look(self.norm_cross(x) if is_pre else x, source, there)
        x = x + a if is_pre else self.norm_cross(x + a)
        f = self._feedforward(self.norm_feedforward(x) if is_pre else x)
        return (x + f if is_pre else self.norm_feedforward(x + f)), keys, values, alpha

    def _look(self, x: Tensor, source: Past, there: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D), (B, S) -> (B, T, D) and the weights."""
        B, T, D = x.shape
        H, d = self.config.heads, D // self.config.heads
        q = self.q_cross(x).view(B, T, H, d).transpose(1, 2)  # (B, H, T, d)
        k, v = (part.to(q.dtype).transpose(1, 2) for part in source)  # (B, H, S, d)
        e = (q @ k.transpose(-2, -1)) / math.sqrt(d)  # (B, H, T, S)
        alpha = torch.softmax(e.masked_fill(~there[:, None, None], -torch.inf), dim=-1)
        p = chosen(self.config.attention_dropout, self.config) if self.training else 0.0
        a = dropout.units(alpha, p, is_on=True).to(v.dtype) @ v
        a = self.merge_cross(a.transpose(1, 2).reshape(B, T, D))
        return drop(a, self.config.dropout, self.config, self.training), alpha
