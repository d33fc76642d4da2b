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
    """Hidden states, weight, bias with two impossible words, targets that avoid them."""
    torch.manual_seed(3)
    hidden = torch.randn(N, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    bias = torch.randn(V, dtype=dtype)
    bias[[0, 7]] = -torch.inf
    targets = torch.tensor([1, 2, 3, 1, 1, 12, 6, 8, 5, 4, 12])
    return hidden, weight, bias.requires_grad_(), targets


def limit_piece_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PIECE_ON_CPU", rows * V + 1)


def gradients(loss: Tensor, *tensors: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, tensors))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("rows", [0, 1, 4, 11, 50])  # 0: not even one row fits, so one at a time
def test_fused_cross_entropy_equals_torch(
    dtype: torch.dtype, close: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_piece_rows(rows, monkeypatch)
    hidden, weight, bias, targets = example(dtype)
    loss = linear_cross_entropy(hidden, weight, bias, targets)
    peer = functional.cross_entropy(functional.linear(hidden, weight, bias), targets)
    assert loss.dtype == dtype
    torch.testing.assert_close(loss, peer, rtol=close, atol=close)
    for ours, theirs in zip(
        gradients(loss, hidden, weight, bias), gradients(peer, hidden, weight, bias), strict=True
    ):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


def test_fused_cross_entropy_gradients_equal_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_piece_rows(3, monkeypatch)
    hidden, weight, bias, targets = example()
    finite = bias.detach().nan_to_num(neginf=0.3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, W, b: linear_cross_entropy(h, W, b, targets), (hidden, weight, finite), fast_mode=True
    )


def test_fused_cross_entropy_worked_by_hand() -> None:
    # Scores (0, 0, 0, −inf): three equals, so log 3; ∂/∂b = p − y = (1/3, 1/3 − 1, 1/3, 0).
    bias = torch.tensor([0.0, 0.0, 0.0, -torch.inf], requires_grad=True)
    loss = linear_cross_entropy(torch.ones(1, 2), torch.zeros(4, 2), bias, torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(3))
    (db,) = gradients(loss, bias)
    assert db.tolist() == pytest.approx([1 / 3, -2 / 3, 1 / 3, 0])


def test_fused_cross_entropy_of_a_vanishing_probability() -> None:
    # log(e^0 + e^200) − 0 = 200, although p(target) = e^−200 underflows in fp32.
    loss = linear_cross_entropy(torch.ones(1, 1), torch.tensor([[0.0], [200.0]]), torch.zeros(2), torch.tensor([0]))
    assert loss.item() == pytest.approx(200)


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_only_required_gradients_are_computed(needed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    limit_piece_rows(4, monkeypatch)
    *three, targets = example()
    inputs = [tensor.detach().requires_grad_(place in needed) for place, tensor in enumerate(three)]
    linear_cross_entropy(inputs[0], inputs[1], inputs[2], targets).backward()
    peers = [tensor.detach().requires_grad_(place in needed) for place, tensor in enumerate(three)]
    functional.cross_entropy(functional.linear(*peers), targets).backward()
    for ours, theirs in zip(inputs, peers, strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_fused_cross_entropy_value_without_gradients() -> None:
    hidden, weight, bias, targets = example()
    with torch.no_grad():
        plain = linear_cross_entropy(hidden, weight, bias, targets)
    assert not plain.requires_grad
    assert plain.item() == linear_cross_entropy(hidden, weight, bias, targets).item()
    assert not linear_cross_entropy(hidden.detach(), weight.detach(), bias.detach(), targets).requires_grad


def test_fused_cross_entropy_gradient_follows_the_chain_rule() -> None:
    hidden, weight, bias, targets = example()
    plain = gradients(linear_cross_entropy(hidden, weight, bias, targets), hidden, weight, bias)
    loss = linear_cross_entropy(hidden, weight, bias, targets)
    squared = gradients(loss**2, hidden, weight, bias)  # chain rule: 2ℓ · ∂ℓ
    for gradient, squared_gradient in zip(plain, squared, strict=True):
        torch.testing.assert_close(squared_gradient, 2 * loss.detach() * gradient)


def test_fused_cross_entropy_in_half_precision_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_piece_rows(40, monkeypatch)
    monkeypatch.setattr(output, "compute_dtype", lambda device: torch.bfloat16)
    hidden, weight, bias, targets = example(torch.float32)
    loss = linear_cross_entropy(hidden, weight, bias, targets)
    peer = functional.cross_entropy(functional.linear(hidden, weight, bias), targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(peer.item(), rel=1e-2)  # 8 bits of mantissa: steps of 0.4 %
    for ours, theirs in zip(
        gradients(loss, hidden, weight, bias), gradients(peer, hidden, weight, bias), strict=True
    ):
        assert ours.shape == theirs.shape  # the tile padding is removed
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 2e-2 * theirs.norm()


def test_softmax_layer_gradient_equals_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_piece_rows(4, monkeypatch)
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
    assert ours[2][[0, 7]].tolist() == [0, 0]  # impossible words get no gradient
