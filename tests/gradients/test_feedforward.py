import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from chainrule.errors import UsageError
from chainrule.gradients.feedforward import Parameters, backward, forward
from gradients.numeric_gradients import (
    TARGETS,
    D,
    M,
    T,
    V,
    assert_close,
    assert_differences,
    assert_gradients,
    random_parameters,
    tensors,
)

WINDOWS = np.array([[0, 3], [3, 3], [3, 1], [1, 6], [6, 3], [3, 0]])  # (T, n−1); n = 3, one word twice in a window
TABLES: dict[str, tuple[int, ...]] = {"E": (V, D), "W_h": (M, 2 * D), "b_h": (M,), "W_o": (V, M), "b_o": (V,)}


def net(direct: bool) -> Parameters:
    return random_parameters(Parameters, 1, **TABLES | ({"W_d": (V, 2 * D)} if direct else {}))


@pytest.mark.parametrize("direct", [False, True])
def test_feedforward_gradients_equal_autograd(direct: bool) -> None:
    parameters = net(direct)
    q = tensors(parameters)
    losses = []
    for t in range(T):
        x = torch.cat([q["E"][int(w)] for w in WINDOWS[t]])
        z = q["W_o"] @ torch.tanh(q["W_h"] @ x + q["b_h"]) + q["b_o"] + (q["W_d"] @ x if direct else 0)
        losses.append(functional.cross_entropy(z, torch.tensor(int(TARGETS[t]))))
    sum(losses).backward()
    trace = forward(parameters, WINDOWS, TARGETS)
    assert_close(trace.losses, torch.stack(losses))
    assert_gradients(backward(parameters, trace), q)


@pytest.mark.parametrize("direct", [False, True])
def test_feedforward_gradients_equal_torch_modules(direct: bool) -> None:
    parameters = net(direct)
    q = tensors(parameters)
    words = functional.embedding(torch.from_numpy(WINDOWS), q["E"]).flatten(1)
    z = functional.linear(functional.linear(words, q["W_h"], q["b_h"]).tanh(), q["W_o"], q["b_o"])
    z = z + functional.linear(words, q["W_d"]) if direct else z
    functional.cross_entropy(z, torch.from_numpy(TARGETS), reduction="sum").backward()
    assert_gradients(backward(parameters, forward(parameters, WINDOWS, TARGETS)), q)


@pytest.mark.parametrize("direct", [False, True])
def test_feedforward_gradients_equal_finite_differences(direct: bool) -> None:
    parameters = net(direct)
    gradients = backward(parameters, forward(parameters, WINDOWS, TARGETS))
    assert_differences(gradients, lambda q: forward(q, WINDOWS, TARGETS).loss, parameters)


def test_feedforward_gradients_worked_by_hand() -> None:
    # One word in (n = 2), one hidden unit kept at tanh(0) = 0, two words out.
    # z = W_d x = (0, log 3): p = (1/4, 3/4); target 0: p − y = (−3/4, 3/4).
    # ∂ℓ/∂h = 2·(−3/4) + 0 = −3/2, the slope of tanh at 0 is 1; ∂ℓ/∂x = 5·(−3/2) + log 3 · 3/4.
    parameters = Parameters(
        E=np.array([[1.0], [9.0]]),
        W_h=np.array([[5.0]]),
        b_h=np.array([-5.0]),
        W_o=np.array([[2.0], [0.0]]),
        b_o=np.zeros(2),
        W_d=np.array([[0.0], [math.log(3)]]),
    )
    trace = forward(parameters, np.array([[0]]), np.array([0]))
    assert trace.loss == pytest.approx(math.log(4))
    gradients = backward(parameters, trace)
    assert_close(gradients.b_h, [-1.5])
    assert_close(gradients.W_h, [[-1.5]])
    assert_close(gradients.W_o, [[0.0], [0.0]])
    assert gradients.W_d is not None
    assert_close(gradients.W_d, [[-0.75], [0.75]])
    assert_close(gradients.E, [[-7.5 + 0.75 * math.log(3)], [0.0]])


def test_only_embedding_rows_in_the_input_get_gradients() -> None:
    gradients = backward(net(True), forward(net(True), WINDOWS, TARGETS))
    assert np.flatnonzero(gradients.E.any(axis=1)).tolist() == [0, 1, 3, 6]


def test_no_direct_connection_equals_zero_direct_weights() -> None:
    plain, zero = net(False), replace(net(False), W_d=np.zeros((V, 2 * D)))
    assert_close(forward(plain, WINDOWS, TARGETS).logits, forward(zero, WINDOWS, TARGETS).logits)
    assert backward(plain, forward(plain, WINDOWS, TARGETS)).W_d is None


def test_parameter_count_of_the_paper() -> None:
    # V=10,000, d=300, m=500, n=3: 3,000,000 + 300,000 + 500 + 5,000,000 + 10,000
    V, d, m, n = 10_000, 300, 500, 3
    shapes = [(V, d), (m, (n - 1) * d), (m,), (V, m), (V,)]
    parameters = Parameters(*(np.broadcast_to(0.0, shape) for shape in shapes))
    assert parameters.size == 8_310_500
    direct = replace(parameters, W_d=np.broadcast_to(0.0, (V, (n - 1) * d)))
    assert direct.size == 8_310_500 + 6_000_000
    trace = forward(parameters, np.array([[1, 2]]), np.array([3]))  # the shapes are consistent
    assert trace.loss == pytest.approx(math.log(V))


def test_windows_of_another_order_are_rejected() -> None:
    with pytest.raises(UsageError, match="give windows of 2 words"):
        forward(net(False), WINDOWS[:, :1], TARGETS)
    with pytest.raises(UsageError, match="give windows of 2 words"):
        forward(net(False), TARGETS, TARGETS)
