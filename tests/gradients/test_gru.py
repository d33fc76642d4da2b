from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.gradients.gru import Parameters, Reset, backward, forward, last_loss_gradients, state_gradients
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

NET = random_parameters(
    Parameters, 8, E=(V, D), W=(3 * M, D), R=(3 * M, M), b=(3 * M,), b_R=(M,), W_o=(V, M), b_o=(V,)
)
H0 = random_state(9)
UPDATE = slice(M, 2 * M)  # the rows of z
RESETS: list[Reset] = ["before", "after"]


def unrolled(
    q: dict[str, Tensor], h0: Tensor, reset: Reset, window: int | None = None, z_keeps: bool = True
) -> tuple[list[Tensor], list[Tensor]]:
    """Losses and states; detached where a window begins; without `z_keeps`, z weighs the candidate as in other
    texts.
    """
    W_r, W_z, W_n = q["W"].chunk(3)
    R_r, R_z, R_n = q["R"].chunk(3)
    b_r, b_z, b_n = q["b"].chunk(3)
    h, losses, states = h0, [], []
    for t in range(T):
        h = h.detach() if window and t and t % window == 0 else h
        x = q["E"][int(IDS[t])]
        r = torch.sigmoid(W_r @ x + R_r @ h + b_r)
        z = torch.sigmoid(W_z @ x + R_z @ h + b_z)
        recurrent_part = R_n @ (r * h) + q["b_R"] if reset == "before" else r * (R_n @ h + q["b_R"])
        candidate = torch.tanh(W_n @ x + recurrent_part + b_n)
        h = torch.lerp(candidate, h, z) if z_keeps else torch.lerp(h, candidate, z)
        h.retain_grad()
        losses.append(loss_at(h, q, t))
        states.append(h)
    return losses, states


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("window", [None, 1, 2, 4, T])
def test_gru_gradients_equal_autograd(reset: Reset, window: int | None) -> None:
    q, h0 = tensors(NET), leaf(H0)
    losses, states = unrolled(q, h0, reset, window)
    sum(losses).backward()
    trace = forward(NET, IDS, TARGETS, H0, reset)
    assert_close(trace.losses, torch.stack(losses))
    assert_gradients(backward(NET, trace, window), q)
    gradients = state_gradients(NET, trace, window)
    assert_close(gradients.h, torch.stack([h.grad for h in states]))
    assert_close(gradients.h0, h0.grad)


def test_gru_gradients_equal_the_torch_module() -> None:
    q = tensors(NET)
    gru = torch.nn.GRU(D, M, dtype=torch.float64)
    for parameter, name in ((gru.weight_ih_l0, "W"), (gru.weight_hh_l0, "R"), (gru.bias_ih_l0, "b")):
        copy_into(parameter, q[name])
    copy_into(gru.bias_hh_l0, torch.cat([torch.zeros(2 * M, dtype=torch.float64), q["b_R"].detach()]))
    h, _ = gru(functional.embedding(torch.from_numpy(IDS), q["E"]), torch.from_numpy(H0)[None])
    functional.cross_entropy(
        functional.linear(h, q["W_o"], q["b_o"]), torch.from_numpy(TARGETS), reduction="sum"
    ).backward()
    q |= {"W": gru.weight_ih_l0, "R": gru.weight_hh_l0, "b": gru.bias_ih_l0}
    q["b_R"].grad = gru.bias_hh_l0.grad[2 * M :]
    trace = forward(NET, IDS, TARGETS, H0, "after")
    assert_close(trace.h, h)
    assert_gradients(backward(NET, trace), q)


@pytest.mark.parametrize("reset", RESETS)
def test_gru_gradients_equal_finite_differences(reset: Reset) -> None:
    gradients = backward(NET, forward(NET, IDS, TARGETS, H0, reset))
    assert_differences(gradients, lambda q: forward(q, IDS, TARGETS, H0, reset).loss, NET)


@pytest.mark.parametrize("reset", RESETS)
def test_gru_last_loss_gradients_equal_autograd(reset: Reset) -> None:
    losses, states = unrolled(tensors(NET), leaf(H0), reset)
    expected = torch.stack(torch.autograd.grad(losses[-1], states))
    assert_close(last_loss_gradients(NET, forward(NET, IDS, TARGETS, H0, reset)).h, expected)


@pytest.mark.parametrize("reset", RESETS)
def test_negated_update_gate_equals_the_opposite_convention(reset: Reset) -> None:
    def negated(array: np.ndarray) -> np.ndarray:
        result = array.copy()
        result[UPDATE] *= -1
        return result

    flipped = replace(NET, W=negated(NET.W), R=negated(NET.R), b=negated(NET.b))
    # σ(−x) = 1 − σ(x): at the first step, where both have the same past, one gate is 1 minus the other.
    ours, theirs = forward(NET, IDS, TARGETS, H0, reset), forward(flipped, IDS, TARGETS, H0, reset)
    assert_close(theirs.z[0], 1 - ours.z[0])
    # With the opposite convention, h = (1 − z)⊙h_{t−1} + z⊙h̃, the negated weights give the same function …
    q = tensors(flipped)
    losses, states = unrolled(q, leaf(H0), reset, z_keeps=False)
    assert_close(ours.h, torch.stack(states))
    # … and the same gradients, except for the sign of the gate's own.
    sum(losses).backward()
    for name in ("W", "R", "b"):
        q[name].grad[UPDATE] *= -1
    assert_gradients(backward(NET, ours), q)


@pytest.mark.parametrize("reset", RESETS)
def test_gru_with_saturated_update_gate_keeps_its_state(reset: Reset) -> None:
    b = NET.b.copy()
    b[UPDATE] = 1000  # z = 1
    keeps = replace(NET, b=b)
    trace = forward(keeps, IDS, TARGETS, H0, reset)
    assert_close(trace.h, np.tile(H0, (T, 1)))
    flow = last_loss_gradients(keeps, trace).h
    assert flow[-1].any()
    assert_close(flow, np.tile(flow[-1], (T, 1)))  # the error is passed back undiminished


def test_gru_reset_variants_agree_only_if_r_is_one() -> None:
    before, after = (forward(NET, IDS, TARGETS, H0, reset).h for reset in RESETS)
    assert np.abs(before - after).max() > 1e-2
    b = NET.b.copy()
    b[:M] = 1000  # r = 1
    always = replace(NET, b=b)
    before, after = (forward(always, IDS, TARGETS, H0, reset).h for reset in RESETS)
    assert_close(before, after)


def test_unknown_gru_reset_is_rejected() -> None:
    with pytest.raises(ConfigError, match="reset is 'never'; choose 'before' or 'after'"):
        forward(NET, IDS, TARGETS, H0, cast(Reset, "never"))
