from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.gradients.lstm import (
    Parameters,
    backward,
    cell_path_gradients,
    forward,
    last_loss_gradients,
    state_gradients,
)
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

NET = random_parameters(Parameters, 5, E=(V, D), W=(4 * M, D), R=(4 * M, M), b=(4 * M,), W_o=(V, M), b_o=(V,))
H0, C0 = random_state(6), random_state(7)
FORGET = slice(M, 2 * M)  # the rows of f


def unrolled(
    q: dict[str, Tensor], h0: Tensor, c0: Tensor, window: int | None = None, gates_see: bool = True
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Losses, h and c; detached where a window begins, and before the gates unless `gates_see` the past."""
    h, c, losses, hs, cs = h0, c0, [], [], []
    for t in range(T):
        if window and t and t % window == 0:
            h, c = h.detach(), c.detach()
        past = h if gates_see else h.detach()
        i, f, g, o = (q["W"] @ q["E"][int(IDS[t])] + q["R"] @ past + q["b"]).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h.retain_grad()
        c.retain_grad()
        losses.append(loss_at(h, q, t))
        hs.append(h)
        cs.append(c)
    return losses, hs, cs


@pytest.mark.parametrize("window", [None, 1, 2, 4, T])
def test_lstm_gradients_equal_autograd(window: int | None) -> None:
    q, h0, c0 = tensors(NET), leaf(H0), leaf(C0)
    losses, hs, cs = unrolled(q, h0, c0, window)
    sum(losses).backward()
    trace = forward(NET, IDS, TARGETS, H0, C0)
    assert_close(trace.losses, torch.stack(losses))
    assert_gradients(backward(NET, trace, window), q)
    gradients = state_gradients(NET, trace, window)
    assert_close(gradients.h, torch.stack([h.grad for h in hs]))
    assert_close(gradients.c, torch.stack([c.grad for c in cs]))
    assert_close(gradients.h0, h0.grad)
    assert_close(gradients.c0, c0.grad)


def test_lstm_gradients_equal_the_torch_module() -> None:
    q = tensors(NET)
    lstm = torch.nn.LSTM(D, M, dtype=torch.float64)
    for parameter, name in ((lstm.weight_ih_l0, "W"), (lstm.weight_hh_l0, "R"), (lstm.bias_ih_l0, "b")):
        copy_into(parameter, q[name])
    copy_into(lstm.bias_hh_l0, torch.zeros(4 * M))
    start = torch.from_numpy(H0)[None], torch.from_numpy(C0)[None]
    h, (_, c) = lstm(functional.embedding(torch.from_numpy(IDS), q["E"]), start)
    functional.cross_entropy(
        functional.linear(h, q["W_o"], q["b_o"]), torch.from_numpy(TARGETS), reduction="sum"
    ).backward()
    q |= {"W": lstm.weight_ih_l0, "R": lstm.weight_hh_l0, "b": lstm.bias_ih_l0}
    trace = forward(NET, IDS, TARGETS, H0, C0)
    assert_close(trace.h, h)
    assert_close(trace.c[-1:], c)
    assert_gradients(backward(NET, trace), q)


def test_lstm_gradients_equal_finite_differences() -> None:
    gradients = backward(NET, forward(NET, IDS, TARGETS, H0, C0))
    assert_differences(gradients, lambda q: forward(q, IDS, TARGETS, H0, C0).loss, NET)


def test_lstm_last_loss_gradients_equal_autograd() -> None:
    losses, hs, cs = unrolled(tensors(NET), leaf(H0), leaf(C0))
    by_h, by_c = (torch.autograd.grad(losses[-1], states, retain_graph=True) for states in (hs, cs))
    gradients = last_loss_gradients(NET, forward(NET, IDS, TARGETS, H0, C0))
    assert_close(gradients.h, torch.stack(by_h))
    assert_close(gradients.c, torch.stack(by_c))


def test_lstm_cell_gradient_is_direct_plus_carried_part() -> None:
    trace = forward(NET, IDS, TARGETS, H0, C0)
    gradients = state_gradients(NET, trace)
    assert_close(gradients.c_carried[:-1], trace.f[1:] * gradients.c[1:])
    assert not gradients.c_carried[-1].any()  # nothing comes after the last step
    # The direct part is ∂L/∂h_t through h_t = o⊙tanh(c_t), by autograd of this line alone.
    c = leaf(trace.c)
    (torch.from_numpy(trace.o) * c.tanh() * torch.from_numpy(gradients.h)).sum().backward()
    assert_close(gradients.c_direct, c.grad)


def test_lstm_cell_path_gradient_is_the_product_of_forget_gates() -> None:
    losses, _, cs = unrolled(tensors(NET), leaf(H0), leaf(C0), gates_see=False)
    expected = torch.stack(torch.autograd.grad(losses[-1], cs))
    trace = forward(NET, IDS, TARGETS, H0, C0)
    assert_close(cell_path_gradients(NET, trace), expected)
    at_the_end = last_loss_gradients(NET, trace).c[-1]
    for t in range(T):
        assert_close(cell_path_gradients(NET, trace)[t], np.prod(trace.f[t + 1 :], axis=0) * at_the_end)
    assert (
        np.abs(last_loss_gradients(NET, trace).c - cell_path_gradients(NET, trace)).max() > 1e-3
    )  # the gates also carry some of it


def test_lstm_without_recurrent_weights_has_only_the_cell_path() -> None:
    blind = replace(NET, R=np.zeros_like(NET.R))
    trace = forward(blind, IDS, TARGETS, H0, C0)
    assert_close(last_loss_gradients(blind, trace).c, cell_path_gradients(blind, trace))


def test_lstm_closed_forget_gate_passes_gradients_through_gates_only() -> None:
    b = NET.b.copy()
    b[FORGET] = -1000  # f = 0 exactly
    shut = replace(NET, b=b)
    trace = forward(shut, IDS, TARGETS, H0, C0)
    assert not trace.f.any()
    gradients = last_loss_gradients(shut, trace)
    assert not gradients.c_carried.any()  # none through the cell
    assert not cell_path_gradients(shut, trace)[:-1].any()
    assert (np.abs(gradients.c[:-1]).max(axis=1) > 1e-6).all()  # some through the gates, at every distance
    losses, _, cs = unrolled(tensors(shut), leaf(H0), leaf(C0))
    assert_close(gradients.c, torch.stack(torch.autograd.grad(losses[-1], cs)))
    # With the gates closed too, nothing at all.
    blind = replace(shut, R=np.zeros_like(NET.R))
    assert not last_loss_gradients(blind, forward(blind, IDS, TARGETS, H0, C0)).c[:-1].any()


def test_lstm_open_forget_gate_passes_gradients_undiminished() -> None:
    b = NET.b.copy()
    b[FORGET] = 1000  # f = 1
    open_, long = replace(NET, b=b, R=np.zeros_like(NET.R)), np.tile(IDS, 10)
    flow = last_loss_gradients(open_, forward(open_, long, np.tile(TARGETS, 10), H0, C0)).c
    assert flow[-1].any()
    assert_close(flow, np.tile(flow[-1], (len(long), 1)))


def test_lstm_initial_state_defaults_to_zero() -> None:
    zero = np.zeros(M)
    assert_close(forward(NET, IDS, TARGETS).h, forward(NET, IDS, TARGETS, zero, zero).h)
