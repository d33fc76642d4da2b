import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.gradients.elman import Parameters, backward, forward, last_loss_gradients, state_gradients
from chainrule.gradients.softmax import ActivationName
from gradients.numeric_gradients import (
    IDS,
    TARGETS,
    D,
    M,
    T,
    V,
    assert_close,
    assert_differences,
    assert_gradients,
    copy_into,
    leaf,
    loss_at,
    random_parameters,
    random_state,
    tensors,
)

PHI = {"tanh": torch.tanh, "relu": functional.relu, "leaky": functional.leaky_relu, "sigmoid": torch.sigmoid}
NET = random_parameters(Parameters, 3, E=(V, D), W_xh=(M, D), W_hh=(M, M), b=(M,), W_o=(V, M), b_o=(V,))
H0 = random_state(4)


def unrolled(
    q: dict[str, Tensor], h0: Tensor, activation: ActivationName, window: int | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Losses and states with autograd's graph; the state is detached where a window begins."""
    h, losses, states = h0, [], []
    for t in range(T):
        h = h.detach() if window and t and t % window == 0 else h
        h = PHI[activation](q["W_xh"] @ q["E"][int(IDS[t])] + q["W_hh"] @ h + q["b"])
        h.retain_grad()
        losses.append(loss_at(h, q, t))
        states.append(h)
    return losses, states


@pytest.mark.parametrize("activation", PHI)
@pytest.mark.parametrize("window", [None, 1, 2, 4, T])
def test_elman_gradients_equal_autograd(activation: ActivationName, window: int | None) -> None:
    q, h0 = tensors(NET), leaf(H0)
    losses, states = unrolled(q, h0, activation, window)
    sum(losses).backward()
    trace = forward(NET, IDS, TARGETS, H0, activation)
    assert_close(trace.losses, torch.stack(losses))
    assert_gradients(backward(NET, trace, window), q)
    gradients = state_gradients(NET, trace, window)
    assert_close(gradients.h, torch.stack([h.grad for h in states]))
    assert_close(gradients.h0, h0.grad)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_elman_gradients_equal_the_torch_module(activation: ActivationName) -> None:
    q = tensors(NET)
    rnn = torch.nn.RNN(D, M, nonlinearity=activation, dtype=torch.float64)
    for parameter, name in ((rnn.weight_ih_l0, "W_xh"), (rnn.weight_hh_l0, "W_hh"), (rnn.bias_ih_l0, "b")):
        copy_into(parameter, q[name])
    copy_into(rnn.bias_hh_l0, torch.zeros(M))
    h, _ = rnn(functional.embedding(torch.from_numpy(IDS), q["E"]), torch.from_numpy(H0)[None])
    functional.cross_entropy(
        functional.linear(h, q["W_o"], q["b_o"]), torch.from_numpy(TARGETS), reduction="sum"
    ).backward()
    q |= {"W_xh": rnn.weight_ih_l0, "W_hh": rnn.weight_hh_l0, "b": rnn.bias_ih_l0}
    trace = forward(NET, IDS, TARGETS, H0, activation)
    assert_close(trace.h, h)
    assert_gradients(backward(NET, trace), q)


@pytest.mark.parametrize("activation", PHI)
def test_elman_gradients_equal_finite_differences(activation: ActivationName) -> None:
    trace = forward(NET, IDS, TARGETS, H0, activation)
    assert np.abs(trace.a).min() > 1e-3  # no finite difference crosses the kink of ReLU
    assert_differences(backward(NET, trace), lambda q: forward(q, IDS, TARGETS, H0, activation).loss, NET)


def test_elman_gradients_of_two_steps_worked_by_hand() -> None:
    # h_1 = 1·1 = 1; h_2 = 2 − h_1 = 1; both p = softmax(0, log 3) = (1/4, 3/4). Targets 0, 1: ∂L_1/∂h_1 = 3/4 log
    # 3, ∂L_2/∂h_2 = −1/4 log 3, and W_hh = −1 passes +1/4 log 3 back to h_1.
    parameters = Parameters(
        E=np.array([[1.0], [2.0]]),
        W_xh=np.array([[1.0]]),
        W_hh=np.array([[-1.0]]),
        b=np.zeros(1),
        W_o=np.array([[0.0], [math.log(3)]]),
        b_o=np.zeros(2),
    )
    trace = forward(parameters, np.array([0, 1]), np.array([0, 1]), activation="relu")
    assert trace.loss == pytest.approx(math.log(4) + math.log(4 / 3))
    assert_close(state_gradients(parameters, trace).h, [[math.log(3)], [-math.log(3) / 4]])
    assert_close(last_loss_gradients(parameters, trace).h, [[math.log(3) / 4], [-math.log(3) / 4]])
    gradients = backward(parameters, trace)
    assert_close(gradients.W_hh, [[-math.log(3) / 4]])  # δ_2 h_1; h_0 is 0
    assert_close(gradients.E, [[math.log(3)], [-math.log(3) / 4]])
    assert_close(gradients.W_o, [[-0.5], [0.5]])  # (−3/4 + 1/4), (3/4 − 1/4)
    cut = backward(parameters, trace, window=1)
    assert_close(cut.E, [[math.log(3) * 3 / 4], [-math.log(3) / 4]])  # L_2 no longer reaches the first word


def test_elman_last_loss_gradients_equal_autograd() -> None:
    losses, states = unrolled(tensors(NET), leaf(H0), "tanh")
    expected = torch.autograd.grad(losses[-1], states)
    trace = forward(NET, IDS, TARGETS, H0)
    assert_close(last_loss_gradients(NET, trace).h, torch.stack(expected))
    # Every loss contributes: the gradients of the sequences truncated after 1, 2, …, T steps sum to the total.
    total = np.zeros((T, M))
    for length in range(1, T + 1):
        shorter = forward(NET, IDS[:length], TARGETS[:length], H0)
        total[:length] += last_loss_gradients(NET, shorter).h
    assert_close(state_gradients(NET, trace).h, total)


def test_spectral_norm_bounds_gradient_flow_from_above_only() -> None:
    ids, targets = np.tile(IDS, 5), np.tile(TARGETS, 5)
    sigma = np.linalg.norm(NET.W_hh, 2)
    for factor in (0.5 / sigma, 2.0 / sigma):
        parameters = replace(NET, W_hh=factor * NET.W_hh)
        norms = np.linalg.norm(last_loss_gradients(parameters, forward(parameters, ids, targets)).h, axis=1)[::-1]
        bound = norms[0] * (factor * sigma) ** np.arange(len(ids))  # φ' ≤ 1
        assert (norms <= bound * (1 + 1e-12)).all()
    # σ_max = 2 does not imply exploding gradients: this nilpotent matrix forgets everything in two steps.
    nilpotent = np.zeros((M, M))
    nilpotent[0, 1] = 2
    parameters = replace(NET, W_hh=nilpotent)
    flow = last_loss_gradients(parameters, forward(parameters, ids, targets)).h
    assert flow[-2].any()
    assert not flow[:-2].any()


def test_elman_initial_state_defaults_to_zero() -> None:
    assert_close(forward(NET, IDS, TARGETS).h, forward(NET, IDS, TARGETS, np.zeros(M)).h)
