"""Transformer decoder block with self-attention and cross-attention."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from chainrule.neural import dropout
from chainrule.neural.block import BlockConfig, TransformerBlock, apply_dropout, dropout_rate
from chainrule.neural.initialization import initialize, initialize_gates
from chainrule.neural.positions import Rotation

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
        p = dropout_rate(self.config.attention_dropout, self.config) if self.training else 0.0
        a = dropout.units(alpha, p, is_on=True).to(v.dtype) @ v
        a = self.merge_cross(a.transpose(1, 2).reshape(B, T, D))
        return apply_dropout(a, self.config.dropout, self.config, self.training), alpha
