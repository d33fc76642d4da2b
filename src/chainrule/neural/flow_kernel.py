"""The errors ∂L/∂h_t and ∂L/∂c_t at every step of recurrent kernels, which run all steps at once and show no h_t.

A state acts on the next step through R h_{t−1} alone, or nearly so. So the kernel reads [x_t; ε_t] by the matrix
[W, R] with ε_t = 0: what it is given to learn by at ε_t is then Rᵀ δ_t, δ_t being the error at the sums inside its
gates, and

    ∂L/∂h_t = (from above, at the kernel's outputs) + Rᵀ δ_{t+1}

A GRU uses h_{t−1} twice more, r ⊙ (R_n h_{t−1} + b_R) and z ⊙ h_{t−1}, both behind a gate; its ε is wider and gives
R_rᵀ δ_r + R_zᵀ δ_z and δ_n, and gates follow from all h at once:

    ∂L/∂h_t = (from above) + R_rᵀ δ_r + R_zᵀ δ_z + R_nᵀ (r ⊙ δ_n) + z ⊙ ∂L/∂h_{t+1}, all of step t+1

Lives here: kernels, on the processor and on the GPU. Not here: step by step (watching.py), norms (flow.py).
Letters: T tokens, B rows, D width.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from chainrule.neural.gru import GRULayer
from chainrule.neural.lstm import LSTMLayer
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import Layer, RecurrentNetwork
from chainrule.neural.watching import with_layers

Loss = Callable[[Tensor], Tensor]
"""(B, T, D) what the output layer reads -> ()."""


class Errors(NamedTuple):
    """What reaches one layer at each step."""

    h: Tensor  # (T, B, D) ∂L/∂h_t
    c: Tensor | None = None  # (T, B, D) ∂L/∂c_t of an LSTM
    f: Tensor | None = None  # (T, B, D) its forget gates


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """One layer's pass."""

    layer: Layer
    x: Tensor  # (T, B, in)
    state: Tensors  # before the first step; each (B, D)
    weights: list[Tensor]
    nudges: Tensor  # (T, B, D or 2D) ε, zeros
    outputs: Tensor  # (T, B, D) h

    @property
    def before(self) -> Tensor:
        """(T, B, D) h_{t−1}."""
        return torch.cat([self.state[0][None], self.outputs[:-1]])

    def gates(self) -> Tensors:
        """What `Layer.gate_names` names, of all steps at once; each (T, B, D)."""
        W, R, b_W, b_R = self.weights
        u = linear(self.x, W, b_W).flatten(0, 1)
        gates = self.layer.gated(u, (self.before.flatten(0, 1),), R, b_R)
        return tuple(gate.view_as(self.outputs) for gate in gates)


def is_possible(network: RecurrentNetwork) -> bool:
    """Whether kernels can run all layers; none takes in attention at every step."""
    c = network.config
    is_plain = c.attention == "none" or c.attention_use != "state"
    return is_plain and all(layer.has_kernel for layer in network.layers)


def errors(network: RecurrentNetwork, ids: Tensor, state: Tensors, loss: Loss) -> list[Errors]:
    """Those of each layer while (B, T) ids are read; what stands around the layers is run as it is."""
    runs: list[_Run] = []
    view = with_layers(network, [_nudged_layer(layer, runs) for layer in network.layers])
    total = loss(view(ids, state).hidden)
    nodes = [node for run in runs for node in (run.outputs, run.nudges)]
    slopes = torch.autograd.grad(total, nodes, materialize_grads=True)
    with torch.no_grad():
        return [_errors(run.layer, run, *both) for run, *both in zip(runs, slopes[0::2], slopes[1::2], strict=True)]


def _nudged_layer(layer: Any, runs: list[_Run]) -> Layer:
    """A copy, its tensors shared, that reads [x; ε] and notes both."""
    copied: Layer = copy.copy(layer)

    def run(x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        W, R, b_W, b_R = (weight.detach() for weight in weights)
        M = _matrix(layer, R)
        nudges = x.new_zeros(*x.shape[:2], M.shape[1]).requires_grad_()
        wide = [torch.cat([W, M], dim=1), R, b_W, b_R]
        outputs, after = layer.fused(torch.cat([x, nudges], dim=-1), tuple(s[None] for s in state), wide, 0.0)
        runs.append(_Run(layer, x, state, [W, R, b_W, b_R], nudges, outputs))
        return outputs, tuple(s[0] for s in after)

    setattr(copied, "run", run)  # noqa: B010  a method of this one copy
    return copied


@singledispatch
def _matrix(layer: Any, R: Tensor) -> Tensor:
    """By which the kernel reads ε, (gates · D, D): as it reads h_{t−1}."""
    return R


@_matrix.register
def _of_gru(layer: GRULayer, R: Tensor) -> Tensor:
    """(3D, 2D): R_r, R_z and, for the candidate, a place of its own."""
    D = layer.width
    return torch.block_diag(R[: 2 * D], torch.eye(D, dtype=R.dtype, device=R.device))


@singledispatch
def _errors(layer: Any, run: _Run, above: Tensor, back: Tensor) -> Errors:
    """From what comes from above, (T, B, D), and what ε was given, Rᵀ δ_t."""
    return Errors(h=above + _later(back))


@_errors.register
def _in_lstm(layer: LSTMLayer, run: _Run, above: Tensor, back: Tensor) -> Errors:
    """∂L/∂c_t = ∂L/∂h_t ⊙ o_t ⊙ (1 − tanh² c_t) + f_{t+1} ⊙ ∂L/∂c_{t+1}."""
    i, f, g, o = run.gates()
    h, c, cells = above + _later(back), run.state[1], []
    for kept, new in zip(f, i * g, strict=True):
        c = kept * c + new  # c_t = f ⊙ c_{t−1} + i ⊙ g
        cells.append(c)
    through_h = h * o * (1 - torch.stack(cells).tanh().square())
    return Errors(h=h, c=_from_the_end(through_h, f), f=f)


@_errors.register
def _in_gru(layer: GRULayer, run: _Run, above: Tensor, back: Tensor) -> Errors:
    """As the module says."""
    r, z, _ = run.gates()
    by_gates, delta_n = back.chunk(2, dim=-1)
    R_n = run.weights[1][2 * layer.width :]
    return Errors(h=_from_the_end(above + _later(by_gates + (r * delta_n) @ R_n), z))


def _later(x: Tensor) -> Tensor:
    """x_{t+1} at t; nothing comes after the last."""
    return torch.cat([x[1:], torch.zeros_like(x[:1])])


def _from_the_end(own: Tensor, kept: Tensor) -> Tensor:
    """y_t = own_t + kept_{t+1} ⊙ y_{t+1}."""
    y = torch.zeros_like(own[0])
    found = []
    for x, k in zip(own.flip(0), _later(kept).flip(0), strict=True):
        y = x + k * y
        found.append(y)
    return torch.stack(found).flip(0)
