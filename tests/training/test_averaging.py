"""Averages against numpy's mean and the recurrence by hand."""

import pytest
import torch
from torch import Tensor

from chainrule.training.config import Averaging
from chainrule.training.trainer import update_average


def average(kind: Averaging, values: list[Tensor], decay: float) -> Tensor:
    average = torch.full_like(values[0], 17.0)
    for n, weights in enumerate(values, start=1):
        update_average(average, weights, kind, decay, n)
    return average


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_average_equals_the_mean_of_all_weights(dtype: torch.dtype) -> None:
    values = list(torch.randn(20, 7, generator=torch.Generator().manual_seed(1)).to(dtype))
    mean = average("mean", values, 0.9)
    assert mean.dtype == dtype
    torch.testing.assert_close(mean, torch.stack(values).mean(0))


def test_moving_average_worked_by_hand() -> None:
    values = [torch.tensor([8.0]), torch.tensor([0.0]), torch.tensor([4.0])]
    # 8;  ¾·8 + ¼·0 = 6;  ¾·6 + ¼·4 = 5.5
    assert average("ema", values, 0.75).item() == 5.5


@pytest.mark.parametrize("kind", ["mean", "ema"])
def test_first_average_copies_the_weights_exactly(kind: Averaging) -> None:
    weights = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    assert torch.equal(average(kind, [weights], 0.999), weights)


def test_update_average_keeps_weights_and_has_no_gradient() -> None:
    weights = torch.nn.Parameter(torch.ones(3))
    average = torch.zeros(3)
    update_average(average, weights, "mean", 0.9, 2)
    assert not average.requires_grad
    assert average.tolist() == [0.5] * 3
    assert weights.tolist() == [1.0] * 3
