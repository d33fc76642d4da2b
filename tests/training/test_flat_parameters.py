"""Network parameters are views into one vector of weights and one of gradients."""

import torch
from torch import nn

from chainrule.training.step import ALIGNMENT, FlatParameters


class Tied(nn.Module):
    """Two names for one matrix, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Parameter(torch.arange(6.0).view(2, 3))
        self.predict = self.read
        self.bias = nn.Parameter(torch.tensor([7.0, 8.0]))


def test_parameters_are_views_of_the_flat_vectors() -> None:
    net = Tied()
    flat = FlatParameters(net)
    assert net.read is net.predict
    assert net.read.tolist() == [[0, 1, 2], [3, 4, 5]]
    flat.weights.fill_(3)
    assert net.predict.tolist() == [[3, 3, 3], [3, 3, 3]]
    assert net.bias.tolist() == [3, 3]
    with torch.no_grad():
        net.bias[1] = 9
    assert dict(flat.named_slices(flat.weights))["bias"].tolist() == [3, 9]
    assert flat.parameter.data_ptr() == flat.weights.data_ptr()
    assert flat.parameter.grad is not None
    assert flat.parameter.grad.data_ptr() == flat.gradient.data_ptr()


def test_shared_parameter_is_stored_once_and_slices_are_aligned() -> None:
    flat = FlatParameters(Tied())
    assert [name for name, _, _ in flat.slices] == ["read", "bias"]
    assert flat.slices == [("read", 0, 6), ("bias", ALIGNMENT, ALIGNMENT + 2)]
    assert len(flat.weights) == 2 * ALIGNMENT
    assert flat.weights.count_nonzero() == 7  # 0 … 5 and 7, 8; the padding is zero


def test_gradients_accumulate_in_the_flat_vector() -> None:
    net = Tied()
    flat = FlatParameters(net)
    for _ in range(2):
        (net.read.sum() * 2 + (net.predict * net.predict).sum() + net.bias[0]).backward()
    pieces = dict(flat.named_slices(flat.gradient))
    assert pieces["read"].tolist() == [2 * (2 + 2 * x) for x in range(6)]  # both uses, both times
    assert pieces["bias"].tolist() == [2, 0]
    assert net.read.grad is not None
    assert net.read.grad.data_ptr() == flat.gradient.data_ptr()
    flat.gradient.zero_()
    assert not net.read.grad.any()


def test_optimizer_on_the_flat_vector_updates_parameters() -> None:
    net = Tied()
    flat = FlatParameters(net)
    (net.read.sum() + 3 * net.bias[1]).backward()
    torch.optim.SGD([flat.parameter], lr=0.5).step()
    assert net.read.tolist() == [[-0.5, 0.5, 1.5], [2.5, 3.5, 4.5]]
    assert net.bias.tolist() == [7, 6.5]


def test_flat_parameters_keep_the_dtype() -> None:
    assert FlatParameters(Tied().double()).weights.dtype == torch.float64
