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
    made: GRULayer = GRULayer(IN, D, Config(init="normal", init_range=1.0, reset=reset)).double()
    nn.init.normal_(made.b_W)
    nn.init.normal_(made.b_R)
    return made


def given(steps: int = T) -> tuple[Tensor, tuple[Tensor]]:
    return torch.randn(steps, B, IN, dtype=torch.float64), (torch.randn(B, D, dtype=torch.float64),)


@pytest.mark.parametrize("steps", [1, T])
def test_reset_after_is_what_torch_computes(steps: int) -> None:
    made, (x, state) = layer(), given(steps)
    theirs = nn.GRU(IN, D, dtype=torch.float64)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), made.state_dict().values(), strict=True)))
    outputs, h = theirs(x, state[0][None])
    torch.testing.assert_close(made(x, state), (outputs, (h[0],)))
    torch.testing.assert_close(made.unroll(x, state, made.weights()), (outputs, (h[0],)))


def test_gradients_are_those_of_the_cell() -> None:
    made, (x, state) = layer(), given()
    found = [
        torch.autograd.grad(run(x, state, made.weights())[0].square().sum(), list(made.parameters()))
        for run in (made.forward_with, made.unroll)
    ]
    torch.testing.assert_close(*found)


def test_reset_before_as_the_equations_say() -> None:
    made, (x, (h,)) = layer("before"), given()
    W, R = made.W.chunk(3), made.R.chunk(3)
    b_W, b_R = made.b_W.chunk(3), made.b_R.chunk(3)
    outputs, (last,) = made(x, (h,))
    for t in range(T):
        r = torch.sigmoid(x[t] @ W[0].t() + b_W[0] + h @ R[0].t() + b_R[0])
        z = torch.sigmoid(x[t] @ W[1].t() + b_W[1] + h @ R[1].t() + b_R[1])
        n = torch.tanh(x[t] @ W[2].t() + b_W[2] + (r * h) @ R[2].t() + b_R[2])
        h = (1 - z) * n + z * h
        torch.testing.assert_close(outputs[t], h)
    torch.testing.assert_close(last, h)


def test_the_two_resets_differ() -> None:
    x, state = given()
    assert not torch.allclose(layer("before")(x, state)[0], layer("after")(x, state)[0])


@pytest.mark.parametrize("reset", ["before", "after"])
def test_z_keeps_the_past(reset: Reset) -> None:
    made, (x, (h,)) = layer(reset), given()
    with torch.no_grad():
        made.b_W[D : 2 * D] = 80.0  # z = 1
    torch.testing.assert_close(made(x, (h,))[0], h.expand(T, B, D))
    with torch.no_grad():
        made.b_W[D : 2 * D] = -80.0  # z = 0: the candidate alone, which reads h only through r
        made.b_W[:D] = -80.0  # r = 0
    outputs, _ = made(x, (h,))
    constant = made.b_R[2 * D :] if reset == "before" else 0.0
    torch.testing.assert_close(outputs, torch.tanh(x @ made.W[2 * D :].t() + made.b_W[2 * D :] + constant))


@pytest.mark.parametrize("reset", ["before", "after"])
def test_the_other_letter_is_the_negated_gate(reset: Reset) -> None:
    """h_t = z ⊙ n + (1 − z) ⊙ h_{t−1}, as other texts write it, is this GRU with the weights of z negated."""
    made, (x, (h,)) = layer(reset), given(1)
    (ours,) = made(x, (h,))[1]
    with torch.no_grad():
        for p in made.parameters():
            p[D : 2 * D] *= -1
    (theirs,) = made(x, (h,))[1]  # (1 − z') n + z' h with z' = 1 − z, that is z n + (1 − z) h
    # Both mix the same n and h, with weights that sum to one: ours + theirs = n + h.
    u, R, b_R = x[0] @ made.W.t() + made.b_W, made.R, made.b_R
    r = torch.sigmoid(u[:, :D] + h @ R[:D].t() + b_R[:D])
    product = (
        (r * h) @ R[2 * D :].t() + b_R[2 * D :] if reset == "before" else r * (h @ R[2 * D :].t() + b_R[2 * D :])
    )
    torch.testing.assert_close(ours + theirs, torch.tanh(u[:, 2 * D :] + product) + h)


def test_three_times_the_weights_of_an_elman_layer() -> None:
    # Elman: W 5·4 + R 5·5 + two biases of 5 = 55
    for reset in ("before", "after"):
        assert sum(p.numel() for p in layer(reset).parameters()) == 3 * 55


def test_candidates_have_names_of_their_own() -> None:
    names = {"-".join(str(value) for value in facets(config).values()) for config in candidates()}
    assert len(names) == 2
    assert facets(Config(hidden=8, reset="before")) == {"layers": 1, "width": 8, "reset": "before"}


def test_attention_is_not_fed_on_as_its_state() -> None:
    with pytest.raises(ConfigError, match="h grows without limit; choose sum or concat"):
        Config(attention="dot", attention_use="state")
