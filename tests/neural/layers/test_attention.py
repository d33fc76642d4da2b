"""Attention over past states: the four scores by hand, banded memory, empty memory."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from chainrule.neural.layers import attention
from chainrule.neural.layers.attention import ConcatProjection, MemoryAttention, masked_softmax

H = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]], dtype=torch.float64)  # (1, 3, 2): h_1, h_2, h_3
Kind = Literal["dot", "scaled-dot", "general", "additive"]
KINDS: tuple[Kind, ...] = ("dot", "scaled-dot", "general", "additive")


def empty(M: int, rows: int = 1, width: int = 2) -> tuple[Tensor, Tensor]:
    return torch.zeros(rows, M, width, dtype=torch.float64), torch.zeros(rows, M, dtype=torch.bool)


def attention_with_known_weights(kind: Kind) -> MemoryAttention:
    past: MemoryAttention = MemoryAttention(kind, 2).double()
    with torch.no_grad():
        if kind == "general":
            past.W.copy_(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        if kind == "additive":
            past.W_1.copy_(torch.eye(2))
            past.W_2.copy_(2 * torch.eye(2))
            past.v.copy_(torch.tensor([[1.0, -1.0]]))
    return past


# e_{3,1}, e_{3,2} for h_3 = (1, 1), h_1 = (1, 0), h_2 = (0, 2)
SCORES = {
    "dot": (1.0, 2.0),
    "scaled-dot": (1 / math.sqrt(2), 2 / math.sqrt(2)),
    "general": (1.0, 6.0),  # W h_1 = (1, 0), W h_2 = (4, 2)
    "additive": (
        math.tanh(3) - math.tanh(1),
        math.tanh(1) - math.tanh(5),
    ),  # h_3 + 2 h_1 = (3, 1); h_3 + 2 h_2 = (1, 5)
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_attention_of_three_steps_worked_by_hand(kind: Kind) -> None:
    a, memory, valid = attention_with_known_weights(kind)(H, *empty(4))
    e_1, e_2 = (math.exp(e) for e in SCORES[kind])
    first, second = e_1 / (e_1 + e_2), e_2 / (e_1 + e_2)
    third = [first * 1, second * 2]  # α_1 (1, 0) + α_2 (0, 2)
    expected = torch.tensor([[[0.0, 0.0], [1.0, 0.0], third]], dtype=torch.float64)  # a_1 = 0, a_2 = h_1
    torch.testing.assert_close(a, expected)
    torch.testing.assert_close(memory[0, 1:], H[0])  # newest last
    assert valid.tolist() == [[False, True, True, True]]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_attention_at_once_equals_stepwise(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PIECE", 4)
    torch.manual_seed(3)
    past, h = MemoryAttention(kind, 5).double(), torch.randn(2, 11, 5, dtype=torch.float64)
    memory, valid = torch.randn(2, 3, 5, dtype=torch.float64), torch.tensor([[False, True, True], [False] * 3])
    a, *after = past(h, memory, valid)
    state, steps = [memory, valid], []
    for t in range(11):
        steps.append(past.attend_step(h[:, t], *state))
        state = past.append(h[:, t : t + 1], *state)
    torch.testing.assert_close(torch.stack(steps, dim=1), a)
    torch.testing.assert_close(state, after)
    torch.testing.assert_close(after[0], h[:, -3:])


def test_memory_of_one_is_the_previous_state() -> None:
    a, _, _ = MemoryAttention("dot", 2)(H, *empty(1))
    torch.testing.assert_close(a[:, 1:], H[:, :-1])
    assert not a[:, 0].any()


def test_masked_softmax_of_nothing_is_zero_with_finite_gradient() -> None:
    e = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[[False, False, False], [True, False, True]]])
    alpha = masked_softmax(e, mask)
    assert alpha[0, 0].tolist() == [0, 0, 0]
    assert alpha[0, 1, 1] == 0
    torch.testing.assert_close(alpha[0, 1].sum(), torch.ones((), dtype=torch.float64))
    alpha.square().sum().backward()
    assert e.grad.isfinite().all()
    assert not e.grad[0, 0].any()


def test_invalid_memory_does_not_affect_attention() -> None:
    past, (memory, valid) = MemoryAttention("scaled-dot", 2), empty(3, rows=2)
    h = H.expand(2, 3, 2)
    junk = memory.clone()
    junk[1] = 100.0
    torch.testing.assert_close(past(h, junk, valid)[0][1], past(h, memory, valid)[0][0])


def test_concat_projection_worked_by_hand() -> None:
    concat = ConcatProjection(2).double()
    with torch.no_grad():
        concat.W_c.copy_(torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, -1.0]]))
    h, a = torch.tensor([[0.3, 0.4]]).double(), torch.tensor([[0.2, 0.1]]).double()
    expected = [[math.tanh(0.5), math.tanh(0.1)]]  # 0.3 + 0.2; 0.5 · 0.4 − 0.1
    torch.testing.assert_close(concat(h, a), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)
