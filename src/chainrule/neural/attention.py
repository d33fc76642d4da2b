"""Attention of a recurrent network: over its own past states, or over those of another text.

Lives here: the four scores, and a_t = Σ_l α_{t,l} h_l over the last M states before t. Not here: what the network
does with a_t (recurrent.py, seq2seq.py), attention of a Transformer (block.py, cross.py).
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from chainrule.neural.initialization import fill

PIECE = 64  # steps attended from at once: the cost stays linear in T


class Score(nn.Module):
    """e = score(q, k), how much a state that looks finds in a state that is looked at."""

    def __init__(self, kind: Literal["dot", "scaled-dot", "general", "additive"], width: int) -> None:
        super().__init__()
        self.kind = kind
        shapes = {"general": {"W": (width, width)}, "additive": {"W_1": (width, width), "W_2": (width, width)}}
        for name, shape in shapes.get(kind, {}).items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
            fill(getattr(self, name), "xavier")
        if kind == "additive":
            self.v = nn.Parameter(torch.empty(1, width))
            fill(self.v, "xavier")

    def keys(self, k: Tensor) -> Tensor:
        """What can be worked out of (B, L, D) states once, whoever looks at them."""
        if self.kind == "additive":
            return linear(k, self.W_2)
        return linear(k, self.W) if self.kind == "general" else k

    def look(self, q: Tensor, keys: Tensor) -> Tensor:
        """(B, T, D) states that look, the keys (B, L, D) of those looked at -> e (B, T, L)."""
        if self.kind == "additive":
            return additive(q, keys, self.W_1, self.v)
        e = q @ keys.transpose(1, 2)  # h_tᵀ h_l, or h_tᵀ W h_l
        return e / math.sqrt(q.shape[-1]) if self.kind == "scaled-dot" else e

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, T, D) states that look, (B, L, D) states looked at -> e (B, T, L)."""
        return self.look(q, self.keys(k))


def additive(q: Tensor, keys: Tensor, W_1: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(W_1 h_t + W_2 h_l) with keys W_2 h_l: (B, T, D), (B, L, D) -> (B, T, L)."""
    sums = linear(q, W_1)[:, :, None] + keys[:, None]  # (B, T, L, D)
    return linear(sums.tanh(), v).squeeze(-1)


class Past(Score):
    """e_{t,l} = score(h_t, h_l) for the M states l < t; α = softmax(e); a_t = Σ_l α_{t,l} h_l; a_1 = 0."""

    def forward(self, h: Tensor, memory: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States (B, T, D) after a memory (B, M, D), (B, M): a (B, T, D) and the memory after the last state."""
        T, M = h.shape[1], memory.shape[1]
        states = torch.cat([memory.to(h.dtype), h], dim=1)  # (B, M + T, D)
        there = pad(valid, (0, T), value=True)  # (B, M + T)
        steps = range(0, T, PIECE)
        a = [
            self._band(h[:, s : s + PIECE], states[:, s : s + PIECE + M], there[:, s : s + PIECE + M])
            for s in steps
        ]
        return torch.cat(a, dim=1), states[:, T:], there[:, T:]

    def _band(self, h: Tensor, states: Tensor, there: Tensor) -> Tensor:
        """The t-th of (B, T, D) sees the states t … t + M − 1 of (B, M + T, D), the M before its own."""
        T, L = h.shape[1], states.shape[1]
        ahead = torch.arange(L, device=h.device) - torch.arange(T, device=h.device)[:, None]  # (T, M + T)
        seen = (ahead >= 0) & (ahead < L - T) & there[:, None]  # (B, T, M + T)
        return weigh(self.score(h, states), seen) @ states

    def read(self, h: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        """One step: (B, D), (B, M, D), (B, M) -> a_t (B, D)."""
        memory = memory.to(h.dtype)
        return (weigh(self.score(h[:, None], memory), valid[:, None]) @ memory).squeeze(1)

    def remember(self, h: Tensor, memory: Tensor, valid: Tensor) -> list[Tensor]:
        """The memory after (B, T, D) more states: the last M, the newest at the end."""
        T = h.shape[1]
        states = torch.cat([memory.to(h.dtype), h], dim=1)
        return [states[:, T:], pad(valid, (0, T), value=True)[:, T:]]


def weigh(e: Tensor, seen: Tensor) -> Tensor:
    """α = softmax of e (B, T, L) over what is seen; all zero, not NaN, where nothing is."""
    any_seen = seen.any(dim=-1, keepdim=True)  # (B, T, 1)
    alpha = torch.softmax(e.masked_fill(~seen & any_seen, -torch.inf), dim=-1)
    return (alpha * any_seen).to(e.dtype)


class Concat(nn.Module):
    """tanh(W_c [h_t; a_t]), as wide as h_t."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_c = nn.Parameter(torch.empty(width, 2 * width))
        fill(self.W_c, "xavier")

    def forward(self, h: Tensor, a: Tensor) -> Tensor:
        """(…, D), (…, D) -> (…, D)."""
        return linear(torch.cat([h, a], dim=-1), self.W_c).tanh()
