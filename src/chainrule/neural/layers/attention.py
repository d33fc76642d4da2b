"""Attention of recurrent networks over their own past states or over encoder states.

Four score functions (dot, scaled dot, general, additive), and a_t = Σ_l α_{t,l} h_l over the last M states.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from chainrule.neural.layers.initialization import initialize

PIECE = 64  # query positions per chunk, so that the cost stays linear in T


class AttentionScore(nn.Module):
    """Attention score e = score(q, k) of a query and a key."""

    def __init__(self, kind: Literal["dot", "scaled-dot", "general", "additive"], width: int) -> None:
        super().__init__()
        self.kind = kind
        shapes = {"general": {"W": (width, width)}, "additive": {"W_1": (width, width), "W_2": (width, width)}}
        for name, shape in shapes.get(kind, {}).items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
            initialize(getattr(self, name), "xavier")
        if kind == "additive":
            self.v = nn.Parameter(torch.empty(1, width))
            initialize(self.v, "xavier")

    def keys(self, k: Tensor) -> Tensor:
        """Project (B, L, D) states to keys; independent of the queries, so computed once."""
        if self.kind == "additive":
            return linear(k, self.W_2)
        return linear(k, self.W) if self.kind == "general" else k

    def score_keys(self, q: Tensor, keys: Tensor) -> Tensor:
        """Queries (B, T, D), projected keys (B, L, D) -> scores e (B, T, L)."""
        if self.kind == "additive":
            return additive_score(q, keys, self.W_1, self.v)
        e = q @ keys.transpose(1, 2)  # h_tᵀ h_l, or h_tᵀ W h_l
        return e / math.sqrt(q.shape[-1]) if self.kind == "scaled-dot" else e

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Queries (B, T, D), states (B, L, D) -> scores e (B, T, L)."""
        return self.score_keys(q, self.keys(k))


def additive_score(q: Tensor, keys: Tensor, W_1: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(W_1 h_t + W_2 h_l) with keys W_2 h_l: (B, T, D), (B, L, D) -> (B, T, L)."""
    sums = linear(q, W_1)[:, :, None] + keys[:, None]  # (B, T, L, D)
    return linear(sums.tanh(), v).squeeze(-1)


class MemoryAttention(AttentionScore):
    """Attention to the previous M states, a_t = Σ_l softmax(score(h_t, h_l))_l · h_l; a_1 = 0."""

    def forward(self, h: Tensor, memory: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States (B, T, D), memory (B, M, D) and its validity (B, M) -> a (B, T, D) and the updated memory."""
        T, M = h.shape[1], memory.shape[1]
        states = torch.cat([memory.to(h.dtype), h], dim=1)  # (B, M + T, D)
        is_valid = pad(valid, (0, T), value=True)  # (B, M + T)
        steps = range(0, T, PIECE)
        a = [
            self._band(h[:, s : s + PIECE], states[:, s : s + PIECE + M], is_valid[:, s : s + PIECE + M])
            for s in steps
        ]
        return torch.cat(a, dim=1), states[:, T:], is_valid[:, T:]

    def _band(self, h: Tensor, states: Tensor, is_valid: Tensor) -> Tensor:
        """Banded attention: query t sees the states t … t + M − 1 of (B, M + T, D), the M before it."""
        T, L = h.shape[1], states.shape[1]
        offset = torch.arange(L, device=h.device) - torch.arange(T, device=h.device)[:, None]  # (T, M + T)
        is_visible = (offset >= 0) & (offset < L - T) & is_valid[:, None]  # (B, T, M + T)
        return masked_softmax(self.score(h, states), is_visible) @ states

    def attend_step(self, h: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        """One step: (B, D), (B, M, D), (B, M) -> a_t (B, D)."""
        memory = memory.to(h.dtype)
        return (masked_softmax(self.score(h[:, None], memory), valid[:, None]) @ memory).squeeze(1)

    def append(self, h: Tensor, memory: Tensor, valid: Tensor) -> list[Tensor]:
        """Append (B, T, D) states to the memory; keep the last M, newest last."""
        T = h.shape[1]
        states = torch.cat([memory.to(h.dtype), h], dim=1)
        return [states[:, T:], pad(valid, (0, T), value=True)[:, T:]]


def masked_softmax(e: Tensor, is_visible: Tensor) -> Tensor:
    """α = softmax of e (B, T, L) over visible keys; zero, not NaN, for rows in which none is visible."""
    has_visible = is_visible.any(dim=-1, keepdim=True)  # (B, T, 1)
    alpha = torch.softmax(e.masked_fill(~is_visible & has_visible, -torch.inf), dim=-1)
    return (alpha * has_visible).to(e.dtype)


class ConcatProjection(nn.Module):
    """tanh(W_c [h_t; a_t]), of the same width as h_t."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_c = nn.Parameter(torch.empty(width, 2 * width))
        initialize(self.W_c, "xavier")

    def forward(self, h: Tensor, a: Tensor) -> Tensor:
        """(…, D), (…, D) -> (…, D)."""
        return linear(torch.cat([h, a], dim=-1), self.W_c).tanh()
