import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.lm import Vocabulary
from chainrule.neural.layers import output
from chainrule.neural.layers.output import Softmax, linear_cross_entropy

N, D, V = 11, 5, 13


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden, weight, bias with two impossible words, targets that avoid them."""
    torch.manual_seed(3)
    hidden = torch.randn(N, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    bias = torch.randn(V, dtype=dtype)
    bias[[0, 7]] = -torch.inf
    targets = torch.tensor([1, 2, 3, 1, 1, 12, 6, 8, 5, 4, 12])
    return hidden, weight, bias.requires_grad_(), targets


def pieces_of(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PIECE_ON_CPU", rows * V + 1)


def gradients(loss: Tensor, *tensors: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, tensors))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("rows", [0, 1, 4, 11, 50])  # 0: not even one row fits, so one at a time
def test_value_and_gradients_are_those_of_cross_entropy(
    dtype: torch.dtype, close: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces_of(rows, monkeypatch)
    hidden, weight, bias, targets = example(dtype)
    found = linear_cross_entropy(hidden, weight, bias, targets)
    peer = functional.cross_entropy(functional.linear(hidden, weight, bias), targets)
    assert found.dtype == dtype
    torch.testing.assert_close(found, peer, rtol=close, atol=close)
    for ours, theirs in zip(
        gradients(found, hidden, weight, bias), gradients(peer, hidden, weight, bias), strict=True
    ):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


def test_gradients_against_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_of(3, monkeypatch)
    hidden, weight, bias, targets = example()
    finite = bias.detach().nan_to_num(neginf=0.3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, W, b: linear_cross_entropy(h, W, b, targets), (hidden, weight, finite), fast_mode=True
    )


def test_by_hand() -> None:
    # Scores (0, 0, 0, −inf): three equals, so log 3; ∂/∂b = p − y = (1/3, 1/3 − 1, 1/3, 0).
    bias = torch.tensor([0.0, 0.0, 0.0, -torch.inf], requires_grad=True)
    loss = linear_cross_entropy(torch.ones(1, 2), torch.zeros(4, 2), bias, torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(3))
    (db,) = gradients(loss, bias)
    assert db.tolist() == pytest.approx([1 / 3, -2 / 3, 1 / 3, 0])


def test_a_target_of_vanishing_probability() -> None:
    # log(e^0 + e^200) − 0 = 200, though p(target) = e^−200 is 0 in single precision.
    loss = linear_cross_entropy(torch.ones(1, 1), torch.tensor([[0.0], [200.0]]), torch.zeros(2), torch.tensor([0]))
    assert loss.item() == pytest.approx(200)


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_only_what_needs_a_gradient_gets_one(needed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_of(4, monkeypatch)
    *three, targets = example()
    inputs = [tensor.detach().requires_grad_(place in needed) for place, tensor in enumerate(three)]
    linear_cross_entropy(inputs[0], inputs[1], inputs[2], targets).backward()
    peers = [tensor.detach().requires_grad_(place in needed) for place, tensor in enumerate(three)]
    functional.cross_entropy(functional.linear(*peers), targets).backward()
    for ours, theirs in zip(inputs, peers, strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_without_gradients_the_value_is_the_same() -> None:
    hidden, weight, bias, targets = example()
    with torch.no_grad():
        plain = linear_cross_entropy(hidden, weight, bias, targets)
    assert not plain.requires_grad
    assert plain.item() == linear_cross_entropy(hidden, weight, bias, targets).item()
    assert not linear_cross_entropy(hidden.detach(), weight.detach(), bias.detach(), targets).requires_grad


def test_the_gradient_follows_what_the_loss_is_used_for() -> None:
    hidden, weight, bias, targets = example()
    plain = gradients(linear_cross_entropy(hidden, weight, bias, targets), hidden, weight, bias)
    loss = linear_cross_entropy(hidden, weight, bias, targets)
    squared = gradients(loss**2, hidden, weight, bias)  # chain rule: 2ℓ · ∂ℓ
    for one, two in zip(plain, squared, strict=True):
        torch.testing.assert_close(two, 2 * loss.detach() * one)


def test_half_precision_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_of(40, monkeypatch)
    monkeypatch.setattr(output, "compute_dtype", lambda device: torch.bfloat16)
    hidden, weight, bias, targets = example(torch.float32)
    found = linear_cross_entropy(hidden, weight, bias, targets)
    peer = functional.cross_entropy(functional.linear(hidden, weight, bias), targets)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(peer.item(), rel=1e-2)  # 8 bits of mantissa: steps of 0.4 %
    for ours, theirs in zip(
        gradients(found, hidden, weight, bias), gradients(peer, hidden, weight, bias), strict=True
    ):
        assert ours.shape == theirs.shape  # the padding to whole tiles is gone
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 2e-2 * theirs.norm()


def test_softmax_layer_learns_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_of(4, monkeypatch)
    torch.manual_seed(0)
    vocabulary = Vocabulary(size=V, bos=0, eos=1, unk=7, closed=True)
    layer = Softmax(D, vocabulary, None, 0.5).double()
    with torch.no_grad():
        layer.bias.normal_()
    hidden, _, _, targets = example()
    loss = layer.loss(hidden, targets)
    peer = -layer.log_probs(hidden)[torch.arange(N), targets].mean()
    torch.testing.assert_close(loss, peer)
    ours = gradients(loss, hidden, layer.weight, layer.bias)
    theirs = gradients(peer, hidden, layer.weight, layer.bias)
    torch.testing.assert_close(ours, theirs)
    assert ours[2][[0, 7]].tolist() == [0, 0]  # nothing is learnt about what is impossible
