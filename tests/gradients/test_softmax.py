import math

import numpy as np
import torch
from torch.nn import functional

from chainrule.gradients.softmax import cross_entropy, jacobian, loss_gradient, softmax
from gradients.numeric_gradients import STEP, assert_close, leaf

Z = np.array([[0.3, -1.2, 2.0, 0.0, 0.7], [1.0, 1.0, -3.0, 0.5, 0.2]])
Y = np.array([1, 4])


def test_softmax_and_cross_entropy_worked_by_hand() -> None:
    z = np.log([[1.0, 2.0, 5.0]])  # p = 1/8, 2/8, 5/8
    assert_close(softmax(z), [[0.125, 0.25, 0.625]])
    assert_close(cross_entropy(z, np.array([1])), [math.log(4)])
    assert_close(loss_gradient(softmax(z), np.array([1])), [[0.125, -0.75, 0.625]])
    # p = (1/4, 3/4): diag(p) − ppᵀ = ±3/16
    assert_close(jacobian(np.array([0.25, 0.75])), [[3 / 16, -3 / 16], [-3 / 16, 3 / 16]])


def test_softmax_does_not_overflow() -> None:
    z = np.array([[1e4, 1e4, -1e4], [-1e4, -1e4 - math.log(3), -np.inf]])  # p = ½, ½, 0 and ¾, ¼, 0
    assert_close(softmax(z), [[0.5, 0.5, 0], [0.75, 0.25, 0]])
    assert_close(cross_entropy(z, np.array([2, 1])), [2e4 + math.log(2), math.log(4)])
    assert_close(loss_gradient(softmax(z), np.array([0, 0])), [[-0.5, 0.5, 0], [-0.25, 0.25, 0]])


def test_softmax_jacobian_equals_finite_differences() -> None:
    steps = STEP * np.eye(5)
    expected = np.array([(softmax(Z[0] + s) - softmax(Z[0] - s)) / (2 * STEP) for s in steps]).T
    np.testing.assert_allclose(jacobian(softmax(Z[0])), expected, rtol=1e-6, atol=1e-9)


def test_loss_gradient_equals_jacobian_times_loss_derivative() -> None:
    for z, y in zip(Z, Y, strict=True):
        p = softmax(z)
        by_chain_rule = jacobian(p).T @ (-np.eye(5)[y] / p)  # ∂ℓ/∂p = −y/p
        assert_close(loss_gradient(p[None], np.array([y]))[0], by_chain_rule)


def test_cross_entropy_gradient_equals_autograd() -> None:
    z = leaf(Z)
    losses = functional.cross_entropy(z, torch.from_numpy(Y), reduction="none")
    losses.sum().backward()
    assert_close(cross_entropy(Z, Y), losses)
    assert_close(loss_gradient(softmax(Z), Y), z.grad)


def test_loss_gradient_does_not_modify_the_probabilities() -> None:
    p = softmax(Z)
    loss_gradient(p, Y)
    assert_close(p.sum(axis=-1), [1, 1])
