"""Segment runner: each token once, in order, with carried or reset state."""

import pytest
import torch
from torch import Tensor

from chainrule.neural.adaptation import SegmentRunner


def counting(inputs: Tensor, targets: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Scores are targets plus the sum of earlier inputs; the state is that sum, (B,)."""
    return (targets + state[0][:, None]).double(), (state[0] + inputs.sum(1),)


@pytest.mark.parametrize(
    ("is_carried", "second"),
    [(True, [[30 + 3, 40 + 3], [70 + 30, 80 + 30]]), (False, [[30, 40], [70, 80]])],
)
def test_segment_runner_worked_by_hand(is_carried: bool, second: list[list[int]]) -> None:
    inputs = torch.tensor([[1, 2, 3, 4], [10, 20, 30, 40]])
    targets = torch.tensor([[10, 20, 30, 40], [50, 60, 70, 80]])
    columns = SegmentRunner(counting, (torch.zeros(2, dtype=torch.int64),), inputs, targets, 2, is_carried)
    reports: list[tuple[int, int]] = []
    columns.run(lambda: None, lambda done, total: reports.append((done, total)))
    assert columns.scores.tolist() == [[10, 20, *second[0]], [50, 60, *second[1]]]
    assert columns.state[0].tolist() == ([10, 100] if is_carried else [0, 0])
    assert reports == [(2, 2)]
    columns.rewind()
    assert (columns.offset.item(), columns.state[0].tolist()) == (0, [0, 0])
