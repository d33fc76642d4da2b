"""GRU: kernel, cell and torch.nn.GRU agree; update gate and both reset positions."""

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.neural.gru import Config, GRULayer, candidates, facets

T, B, IN, D = 7, 3, 4, 5
Reset = Literal["before", "after"]


def layer(reset: Reset = "after") -> GRULayer:
    torch.manual_seed(1)
    gru_layer: GRULayer = GRULayer(IN, D, Config(init="normal", init_range=1.0, reset=reset)).double()
    nn.init.normal_(gru_layer.b_W)
    nn.init.normal_(gru_layer.b_R)
    return gru_layer


def random_inputs(steps: int = T) -> tuple[Tensor, tuple[Tensor]]:
    return torch.randn(steps, B, IN, dtype=torch.float64), (torch.randn(B, D, dtype=torch.float64),)


@pytest.mark.parametrize("steps", [1, T])
def test_gru_reset_after_equals_torch(steps: int) -> None:
    ours, (x, state) = layer(), random_inputs(steps)
    theirs = nn.GRU(IN, D, dtype=torch.float64)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    outputs, h = theirs(x, state[0][None])
    torch.testing.assert_close(ours(x, state), (outputs, (h[0],)))
    torch.testing.assert_close(ours.unroll(x, state, ours.weights()), (outputs, (h[0],)))


def test_gru_kernel_gradients_equal_the_cell() -> None:
    gru_layer, (x, state) = layer(), random_inputs()
    gradients = [
        torch.autograd.grad(run(x, state, gru_layer.weights())[0].square().sum(), list(gru_layer.parameters()))
        for run in (gru_layer.forward_with, gru_layer.unroll)
    ]
    torch.testing.assert_close(*gradients)


def test_gru_reset_before_equals_the_equations() -> None:
    gru_layer, (x, (h,)) = layer("before"), random_inputs()
    W, R = gru_layer.W.chunk(3), gru_layer.R.chunk(3)
    b_W, b_R = gru_layer.b_W.chunk(3), gru_layer.b_R.chunk(3)
    outputs, (last,) = gru_layer(x, (h,))
    for t in range(T):
        r = torch.sigmoid(x[t] @ W[0].t() + b_W[0] + h @ R[0].t() + b_R[0])
        z = torch.sigmoid(x[t] @ W[1].t() + b_W[1] + h @ R[1].t() + b_R[1])
        n = torch.tanh(x[t] @ W[2].t() + b_W[2] + (r * h) @ R[2].t() + b_R[2])
        h = (1 - z) * n + z * h
        torch.testing.assert_close(outputs[t], h)
    torch.testing.assert_close(last, h)


def test_gru_reset_variants_differ() -> None:
    x, state = random_inputs()
    assert not torch.allclose(layer("before")(x, state)[0], layer("after")(x, state)[0])


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_update_gate_keeps_the_state(reset: Reset) -> None:
    gru_layer, (x, (h,)) = layer(reset), random_inputs()
    with torch.no_grad():
        gru_layer.b_W[D : 2 * D] = 80.0  # z = 1
    torch.testing.assert_close(gru_layer(x, (h,))[0], h.expand(T, B, D))
    with torch.no_grad():
        gru_layer.b_W[D : 2 * D] = -80.0  # z = 0: the candidate alone, which reads h only through r
        gru_layer.b_W[:D] = -80.0  # r = 0
    outputs, _ = gru_layer(x, (h,))
    constant = gru_layer.b_R[2 * D :] if reset == "before" else 0.0
    torch.testing.assert_close(
        outputs, torch.tanh(x @ gru_layer.W[2 * D :].t() + gru_layer.b_W[2 * D :] + constant)
    )


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_with_negated_update_gate_equals_the_other_convention(reset: Reset) -> None:
    """h_t = z ⊙ n + (1 − z) ⊙ h_{t−1}, as other texts write it, equals this GRU with negated weights of z."""
    gru_layer, (x, (h,)) = layer(reset), random_inputs(1)
    (ours,) = gru_layer(x, (h,))[1]
    with torch.no_grad():
        for p in gru_layer.parameters():
            p[D : 2 * D] *= -1
    (theirs,) = gru_layer(x, (h,))[1]  # (1 − z') n + z' h with z' = 1 − z, that is z n + (1 − z) h
    # Both mix the same n and h, with weights that sum to one: ours + theirs = n + h.
    u, R, b_R = x[0] @ gru_layer.W.t() + gru_layer.b_W, gru_layer.R, gru_layer.b_R
    r = torch.sigmoid(u[:, :D] + h @ R[:D].t() + b_R[:D])
    product = (
        (r * h) @ R[2 * D :].t() + b_R[2 * D :] if reset == "before" else r * (h @ R[2 * D :].t() + b_R[2 * D :])
    )
    torch.testing.assert_close(ours + theirs, torch.tanh(u[:, 2 * D :] + product) + h)


def test_gru_has_three_times_the_weights_of_elman() -> None:
    # Elman: W 5·4 + R 5·5 + two biases of 5 = 55
    for reset in ("before", "after"):
        assert sum(p.numel() for p in layer(reset).parameters()) == 3 * 55


def test_gru_candidates_have_distinct_facets() -> None:
    names = {"-".join(str(value) for value in facets(config).values()) for config in candidates()}
    assert len(names) == 2
    assert facets(Config(hidden=8, reset="before")) == {"layers": 1, "width": 8, "reset": "before"}


def test_gru_rejects_attention_in_the_state() -> None:
    with pytest.raises(ConfigError, match="h grows without bound; choose sum or concat"):
        Config(attention="dot", attention_use="state")
