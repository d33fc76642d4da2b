"""Gradients ∂L/∂h_t and ∂L/∂c_t at every step of fused recurrent kernels, which do not expose h_t to autograd.

The next step depends on a state through R h_{t−1}. So the kernel is given the inputs [x_t; ε_t] and the matrix [W,
R] with ε_t = 0: the gradient at ε_t is then Rᵀ δ_t, where δ_t is the gradient at the gate pre-activations, and

    ∂L/∂h_t = (gradient at the kernel's output h_t) + Rᵀ δ_{t+1}

A GRU uses h_{t−1} twice more, in r ⊙ (R_n h_{t−1} + b_R) and z ⊙ h_{t−1}; its ε is wider and yields R_rᵀ δ_r + R_zᵀ
δ_z and δ_n, and the gates are recomputed from all h at once:

    ∂L/∂h_t = (gradient at h_t) + R_rᵀ δ_r + R_zᵀ δ_z + R_nᵀ (r ⊙ δ_n) + z ⊙ ∂L/∂h_{t+1}, all of step t+1

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
from chainrule.neural.watching import replace_layers

Loss = Callable[[Tensor], Tensor]
"""Hidden states (B, T, D) -> scalar loss."""


class LayerGradients(NamedTuple):
    """Gradients at each step of one layer."""

    h: Tensor  # (T, B, D) ∂L/∂h_t
    c: Tensor | None = None  # (T, B, D) ∂L/∂c_t of an LSTM
    f: Tensor | None = None  # (T, B, D) forget gates of an LSTM


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Recorded forward pass of one layer."""

    layer: Layer
    x: Tensor  # (T, B, in)
    state: Tensors  # before the first step; each (B, D)
    weights: list[Tensor]
    epsilon: Tensor  # (T, B, D or 2D) ε, zeros
    outputs: Tensor  # (T, B, D) h

    @property
    def before(self) -> Tensor:
        """(T, B, D) h_{t−1}."""
        return torch.cat([self.state[0][None], self.outputs[:-1]])

    def gates(self) -> Tensors:
        """Gates named by `Layer.gate_names` at all steps; each (T, B, D)."""
        W, R, b_W, b_R = self.weights
        u = linear(self.x, W, b_W).flatten(0, 1)
        gates = self.layer.compute_gates(u, (self.before.flatten(0, 1),), R, b_R)
        return tuple(gate.view_as(self.outputs) for gate in gates)


def is_supported(network: RecurrentNetwork) -> bool:
    """Whether kernels can run all layers; attention added to the state needs step-by-step execution."""
    c = network.config
    is_plain = c.attention == "none" or c.attention_use != "state"
    return is_plain and all(layer.has_kernel for layer in network.layers)


def kernel_gradients(network: RecurrentNetwork, ids: Tensor, state: Tensors, loss: Loss) -> list[LayerGradients]:
    """Gradients of each layer for (B, T) ids; everything around the layers runs unchanged."""
    runs: list[_Run] = []
    view = replace_layers(network, [_perturbed_layer(layer, runs) for layer in network.layers])
    total = loss(view(ids, state).hidden)
    nodes = [node for run in runs for node in (run.outputs, run.epsilon)]
    grads = torch.autograd.grad(total, nodes, materialize_grads=True)
    with torch.no_grad():
        return [
            _layer_gradients(run.layer, run, *both)
            for run, *both in zip(runs, grads[0::2], grads[1::2], strict=True)
        ]


def _perturbed_layer(layer: Any, runs: list[_Run]) -> Layer:
    """Copy of a layer with shared tensors that reads [x; ε] and records the pass."""
    copied: Layer = copy.copy(layer)

    def forward_with(x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        W, R, b_W, b_R = (weight.detach() for weight in weights)
        M = _matrix(layer, R)
        epsilon = x.new_zeros(*x.shape[:2], M.shape[1]).requires_grad_()
        wide = [torch.cat([W, M], dim=1), R, b_W, b_R]
        outputs, after = layer.run_kernel(torch.cat([x, epsilon], dim=-1), tuple(s[None] for s in state), wide, 0.0)
        runs.append(_Run(layer, x, state, [W, R, b_W, b_R], epsilon, outputs))
        return outputs, tuple(s[0] for s in after)

    setattr(copied, "forward_with", forward_with)  # noqa: B010  a method of this one copy
    return copied


@singledispatch
def _matrix(layer: Any, R: Tensor) -> Tensor:
    """Matrix (gates · D, D) that multiplies ε, the same that multiplies h_{t−1}."""
    return R


@_matrix.register
def _of_gru(layer: GRULayer, R: Tensor) -> Tensor:
    """(3D, 2D): R_r, R_z, and an identity for the candidate."""
    D = layer.width
    return torch.block_diag(R[: 2 * D], torch.eye(D, dtype=R.dtype, device=R.device))


@singledispatch
def _layer_gradients(layer: Any, run: _Run, output_grad: Tensor, epsilon_grad: Tensor) -> LayerGradients:
    """Combine the gradient at the outputs (T, B, D) with the gradient at ε, Rᵀ δ_t."""
    return LayerGradients(h=output_grad + _shift(epsilon_grad))


@_layer_gradients.register
def _in_lstm(layer: LSTMLayer, run: _Run, output_grad: Tensor, epsilon_grad: Tensor) -> LayerGradients:
    """∂L/∂c_t = ∂L/∂h_t ⊙ o_t ⊙ (1 − tanh² c_t) + f_{t+1} ⊙ ∂L/∂c_{t+1}."""
    i, f, g, o = run.gates()
    h, c, cells = output_grad + _shift(epsilon_grad), run.state[1], []
    for f_t, ig_t in zip(f, i * g, strict=True):
        c = f_t * c + ig_t  # c_t = f ⊙ c_{t−1} + i ⊙ g
        cells.append(c)
    through_h = h * o * (1 - torch.stack(cells).tanh().square())
    return LayerGradients(h=h, c=_backward_recurrence(through_h, f), f=f)


@_layer_gradients.register
def _in_gru(layer: GRULayer, run: _Run, output_grad: Tensor, epsilon_grad: Tensor) -> LayerGradients:
    """∂L/∂h_t as given in the module docstring."""
    r, z, _ = run.gates()
    gate_grad, delta_n = epsilon_grad.chunk(2, dim=-1)
    R_n = run.weights[1][2 * layer.width :]
    return LayerGradients(h=_backward_recurrence(output_grad + _shift(gate_grad + (r * delta_n) @ R_n), z))


def _shift(x: Tensor) -> Tensor:
    """Shift by one step: x_{t+1} at t, zero at the last."""
    return torch.cat([x[1:], torch.zeros_like(x[:1])])


def _backward_recurrence(x: Tensor, decay: Tensor) -> Tensor:
    """Backward recurrence y_t = x_t + decay_{t+1} ⊙ y_{t+1}."""
    y = torch.zeros_like(x[0])
    values = []
    for x_t, decay_t in zip(x.flip(0), _shift(decay).flip(0), strict=True):
        y = x_t + decay_t * y
        values.append(y)
    return torch.stack(values).flip(0)
