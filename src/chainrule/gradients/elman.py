"""Elman network and back-propagation through time, for one sequence.

h_t = φ(W_xh x_t + W_hh h_{t−1} + b),  p_t = softmax(W_o h_t + b_o),  L = Σ_t L_t,  L_t = −log p_{t,y_t}
"""

from dataclasses import dataclass

import numpy as np

from chainrule.gradients.sequence import SequenceTrace, check_tokens, initial_state, truncation_points
from chainrule.gradients.softmax import ActivationName, get_activation, loss_gradient
from chainrule.lm import Floats, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """Parameters of the network, or the gradient of the loss with respect to each of them."""

    E: Floats  # (V, d)  one row per word
    W_xh: Floats  # (m, d)
    W_hh: Floats  # (m, m)
    b: Floats  # (m,)
    W_o: Floats  # (V, m)
    b_o: Floats  # (V,)


@dataclass(frozen=True, slots=True, eq=False)
class Trace(SequenceTrace):
    """All intermediate values of the forward pass over T tokens."""

    activation: ActivationName
    a: Floats  # (T, m)


@dataclass(frozen=True, slots=True, eq=False)
class StateGradients:
    """Gradients of the loss with respect to the states and pre-activations of every step."""

    h: Floats  # (T, m)  ∂L/∂h_t
    a: Floats  # (T, m)  δ_t = ∂L/∂a_t
    h0: Floats  # (m,)    ∂L/∂h_0, the gradient of a learned initial state


def forward(
    parameters: Parameters,
    ids: Ids,
    targets: Ids,
    h0: Floats | None = None,
    activation: ActivationName = "tanh",
) -> Trace:
    """Run the forward pass over `ids` (T,) from the state h0 (m,), with the next tokens as `targets` (T,)."""
    E, W_xh, W_hh, b = parameters.E, parameters.W_xh, parameters.W_hh, parameters.b
    check_tokens(ids, targets, len(E))
    phi = get_activation(activation).value
    T, m = len(ids), len(b)
    h0 = past = initial_state(h0, m)
    x = E[ids]  # (T, d)  x_t = E[w_t]
    a, h = np.empty((T, m)), np.empty((T, m))
    for t in range(T):
        a[t] = W_xh @ x[t] + W_hh @ past + b  # (m,)  a_t = W_xh x_t + W_hh h_{t−1} + b
        h[t] = phi(a[t])  # (m,)  h_t = φ(a_t)
        past = h[t]
    logits = h @ parameters.W_o.T + parameters.b_o  # (T, V)  W_o h_t + b_o
    return Trace(ids, targets, h0, x, h, logits, a=a, activation=activation)


def state_gradients(
    parameters: Parameters, trace: Trace, window: int | None = None, direct: Floats | None = None
) -> StateGradients:
    """Return the gradients of L = Σ_t L_t with respect to the state of every step, from the last to the first.

    With a `window`, back-propagation is truncated: gradients do not cross the borders of segments of `window`
    steps. `direct` (T, m) replaces ∂L_t/∂h_t, for other losses.
    """
    direct = trace.output_gradients(parameters.W_o) if direct is None else direct
    T, m = trace.h.shape
    slope = get_activation(trace.activation).slope(trace.a, trace.h)  # (T, m)  φ'(a_t); for tanh 1 − h_t²
    is_cut = truncation_points(T, window)
    dh, da = np.empty((T, m)), np.empty((T, m))
    carried = np.zeros(m)
    for t in reversed(range(T)):
        dh[t] = direct[t] + carried  # ∂L/∂h_t = ∂L_t/∂h_t + W_hhᵀ δ_{t+1}
        da[t] = slope[t] * dh[t]  # δ_t = diag(φ'(a_t)) ∂L/∂h_t
        carried = np.zeros(m) if is_cut[t] else parameters.W_hh.T @ da[t]  # W_hhᵀ δ_t
    return StateGradients(dh, da, h0=carried)


def last_loss_gradients(parameters: Parameters, trace: Trace) -> StateGradients:
    """Return the gradients of the last loss L_T only: `h[-1 - k]` is ∂L_T/∂h_{T−k}."""
    return state_gradients(parameters, trace, direct=trace.last_output_gradient(parameters.W_o))


def backward(parameters: Parameters, trace: Trace, window: int | None = None) -> Parameters:
    """Return ∂L/∂θ for every parameter θ; each matrix product sums over t. `window` as in `state_gradients`."""
    da = state_gradients(parameters, trace, window).a  # (T, m)
    dz = loss_gradient(trace.p, trace.targets)  # (T, V)
    dE = np.zeros_like(parameters.E)  # (V, d)  nonzero only in the rows of the input words
    np.add.at(dE, trace.ids, da @ parameters.W_xh)  # ∂L/∂x_t = W_xhᵀ δ_t
    return Parameters(
        E=dE,
        W_xh=da.T @ trace.x,  # (m, d)  Σ_t δ_t x_tᵀ
        W_hh=da.T @ trace.past,  # (m, m)  Σ_t δ_t h_{t−1}ᵀ
        b=da.sum(axis=0),  # (m,)    Σ_t δ_t
        W_o=dz.T @ trace.h,  # (V, m)  Σ_t (p_t − y_t) h_tᵀ
        b_o=dz.sum(axis=0),  # (V,)    Σ_t (p_t − y_t)
    )
