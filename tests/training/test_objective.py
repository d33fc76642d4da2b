"""Mean of −log p over the unmasked targets."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.training.batches import Window
from chainrule.training.step import next_token


class Read(NamedTuple):
    """Output of the network below."""

    hidden: Tensor
    state: tuple[Tensor, ...]
    penalty: Tensor | None


class Bigram:
    """Logits of the next token that depend only on the last: (V, V)."""

    def __init__(self, scores: Tensor, penalty: Tensor | None = None) -> None:
        self.scores, self.penalty = scores, penalty
        self.output = self

    def __call__(self, ids: Tensor, state: tuple[Tensor, ...]) -> Read:
        return Read(self.scores[ids], (state[0] + 1,), self.penalty)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(hidden, targets)


SCORES = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.5, 0.25]]))
LOG2 = 0.6931471805599453
STATE = (torch.zeros(2, 1),)


def test_next_token_loss_is_the_mean_over_tokens() -> None:
    window = Window(torch.tensor([[0, 1], [2, 0]]), torch.tensor([[1, 1], [1, 0]]))
    loss, nats, state = next_token(Bigram(SCORES), window, STATE)
    # p: 1/4, 1/2, 1/2, 1/2
    assert float(loss) == float(nats) == pytest.approx(5 / 4 * LOG2)
    assert state[0].tolist() == [[1], [1]]


def test_next_token_loss_ignores_padding() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    window = Window(torch.tensor([[0, 1], [2, 1]]), torch.tensor([[1, 2], [1, 0]]), mask)
    _, nats, _ = next_token(Bigram(SCORES), window, STATE)
    assert float(nats) == pytest.approx((2 + 1 + 3) / 3 * LOG2)  # p: 1/4, (3/8 hidden), 1/2, 1/8


def test_penalty_is_minimised_but_not_reported() -> None:
    window = Window(torch.tensor([[0]]), torch.tensor([[0]]))
    loss, nats, _ = next_token(Bigram(SCORES, torch.tensor(2.0)), window, STATE)
    assert float(nats) == pytest.approx(LOG2)
    assert float(loss) == pytest.approx(LOG2 + 2)


def test_next_token_loss_uses_teacher_forcing() -> None:
    """The inputs are the text's, whatever the network would have predicted."""
    read: list[Any] = []

    class Spy(Bigram):
        def __call__(self, ids: Tensor, state: tuple[Tensor, ...]) -> Read:
            read.append(ids.tolist())
            return super().__call__(ids, state)

    next_token(Spy(SCORES), Window(torch.tensor([[0, 2, 1]]), torch.tensor([[2, 1, 1]])), (torch.zeros(1, 1),))
    assert read == [[[0, 2, 1]]]
