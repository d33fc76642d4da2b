"""LSTM and back-propagation through time, for one sequence.

    i, f, o = σ(W x_t + R h_{t−1} + b),  g = tanh(W_g x_t + R_g h_{t−1} + b_g)
    c_t = f⊙c_{t−1} + i⊙g,  h_t = o⊙tanh(c_t),  p_t = softmax(W_o h_t + b_o),  L = Σ_t −log p_{t,y_t}

W, R and b stack the gates in the order i, f, g, o, as in PyTorch.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.gradients.sequence import SequenceTrace, check_tokens, initial_state, truncation_points
from chainrule.gradients.softmax import loss_gradient, sigmoid
from chainrule.lm import Floats, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """Parameters of the network, or the gradient of the loss with respect to each of them."""

    E: Floats  # (V, d)  one row per word
    W: Floats  # (4m, d)
    R: Floats  # (4m, m)
    b: Floats  # (4m,)
    W_o: Floats  # (V, m)
    b_o: Floats  # (V,)


@dataclass(frozen=True, slots=True, eq=False)
class Trace(SequenceTrace):
    """All intermediate values of the forward pass over T tokens."""

    c0: Floats  # (m,)
    i: Floats  # (T, m)  input gate
    f: Floats  # (T, m)  forget gate
    g: Floats  # (T, m)  cell candidate
    o: Floats  # (T, m)  output gate
    c: Floats  # (T, m)

    @property
    def past_cell(self) -> Floats:
        """c_{t−1} for every t, (T, m)."""
        return np.vstack([self.c0, self.c[:-1]])


@dataclass(frozen=True, slots=True, eq=False)
class StateGradients:
    """Gradients of the loss with respect to the states and pre-activations of every step."""

    h: Floats  # (T, m)   ∂L/∂h_t
    c_direct: Floats  # (T, m)   part of ∂L/∂c_t through h_t
    c_carried: Floats  # (T, m)   part of ∂L/∂c_t through c_{t+1}: f_{t+1} ⊙ ∂L/∂c_{t+1}
    a: Floats  # (T, 4m)  δ_t = ∂L/∂(pre-activations of i, f, g, o)
    h0: Floats  # (m,)     ∂L/∂h_0
    c0: Floats  # (m,)     ∂L/∂c_0

    @property
    def c(self) -> Floats:
        """∂L/∂c_t, (T, m), the sum of both parts."""
        total: Floats = self.c_direct + self.c_carried
        return total


def forward(
    parameters: Parameters, ids: Ids, targets: Ids, h0: Floats | None = None, c0: Floats | None = None
) -> Trace:
    """Run the forward pass over `ids` (T,) from the state h0, c0 (m,), with the next tokens as `targets` (T,)."""
    W, R, b = parameters.W, parameters.R, parameters.b
    check_tokens(ids, targets, len(parameters.E))
    T, m = len(ids), R.shape[1]
    h0, c0 = initial_state(h0, m), initial_state(c0, m)
    x = parameters.E[ids]  # (T, d)  x_t = E[w_t]
    i, f, g, o, c, h = np.empty((6, T, m))
    past, past_cell = h0, c0
    for t in range(T):
        a_i, a_f, a_g, a_o = np.split(W @ x[t] + R @ past + b, 4)  # each (m,)  a = W x_t + R h_{t−1} + b
        i[t], f[t], o[t] = sigmoid(a_i), sigmoid(a_f), sigmoid(a_o)  # i, f, o = σ(a)
        g[t] = np.tanh(a_g)  # g = tanh(a_g)
        c[t] = f[t] * past_cell + i[t] * g[t]  # c_t = f⊙c_{t−1} + i⊙g
        h[t] = o[t] * np.tanh(c[t])  # h_t = o⊙tanh(c_t)
        past, past_cell = h[t], c[t]
    logits = h @ parameters.W_o.T + parameters.b_o  # (T, V)  W_o h_t + b_o
    return Trace(ids, targets, h0, x, h, logits, c0=c0, i=i, f=f, g=g, o=o, c=c)


def state_gradients(
    parameters: Parameters, trace: Trace, window: int | None = None, direct: Floats | None = None
) -> StateGradients:
    """Return the gradients of L = Σ_t L_t with respect to the state of every step, from the last to the first.

    With a `window`, back-propagation is truncated: gradients do not cross the borders of segments of `window`
    steps. `direct` (T, m) replaces ∂L_t/∂h_t, for other losses.
    """
    direct = trace.output_gradients(parameters.W_o) if direct is None else direct
    i, f, g, o, past_cell = trace.i, trace.f, trace.g, trace.o, trace.past_cell
    tanh_c = np.tanh(trace.c)  # (T, m)
    T, m = trace.h.shape
    is_cut = truncation_points(T, window)
    dh, dc_direct, dc_carried, da = np.empty((T, m)), np.empty((T, m)), np.empty((T, m)), np.empty((T, 4 * m))
    h_carried, c_carried = np.zeros(m), np.zeros(m)
    for t in reversed(range(T)):
        dh[t] = direct[t] + h_carried  # ∂L/∂h_t = ∂L_t/∂h_t + Rᵀ δ_{t+1}
        dc_direct[t] = dh[t] * o[t] * (1 - tanh_c[t] ** 2)  # ∂L/∂h_t ⊙ o ⊙ (1 − tanh²c_t)
        dc_carried[t] = c_carried  # f_{t+1} ⊙ ∂L/∂c_{t+1}
        dc = dc_direct[t] + dc_carried[t]  # ∂L/∂c_t
        di = dc * g[t]  # ∂L/∂i = ∂L/∂c_t ⊙ g
        df = dc * past_cell[t]  # ∂L/∂f = ∂L/∂c_t ⊙ c_{t−1}
        dg = dc * i[t]  # ∂L/∂g = ∂L/∂c_t ⊙ i
        do = dh[t] * tanh_c[t]  # ∂L/∂o = ∂L/∂h_t ⊙ tanh(c_t)
        da[t] = np.concatenate(
            [
                di * i[t] * (1 - i[t]),  # σ' = σ(1 − σ)
                df * f[t] * (1 - f[t]),
                dg * (1 - g[t] ** 2),  # tanh' = 1 − tanh²
                do * o[t] * (1 - o[t]),
            ]
        )  # (4m,)  δ_t
        h_carried = np.zeros(m) if is_cut[t] else parameters.R.T @ da[t]  # through the gates: Rᵀ δ_t
        c_carried = np.zeros(m) if is_cut[t] else f[t] * dc  # through the cell: f_t ⊙ ∂L/∂c_t
    return StateGradients(dh, dc_direct, dc_carried, da, h0=h_carried, c0=c_carried)


def last_loss_gradients(parameters: Parameters, trace: Trace) -> StateGradients:
    """Return the gradients of the last loss only: `h[-1 - k]` is ∂L_T/∂h_{T−k}, `c[-1 - k]` is ∂L_T/∂c_{T−k}."""
    return state_gradients(parameters, trace, direct=trace.last_output_gradient(parameters.W_o))


def cell_path_gradients(parameters: Parameters, trace: Trace) -> Floats:
    """Return ∂L_T/∂c_t along the cell path only, without the gates, (T, m): (f_{t+1} ⊙ … ⊙ f_T) ⊙ ∂L_T/∂c_T."""
    f_after = np.vstack([trace.f[1:], np.ones_like(trace.h0)])  # (T, m)  f_{t+1}, 1 after the last step
    product = np.cumprod(f_after[::-1], axis=0)[::-1]  # (T, m)  Π_{s>t} f_s
    flow: Floats = product * last_loss_gradients(parameters, trace).c[-1]
    return flow


def backward(parameters: Parameters, trace: Trace, window: int | None = None) -> Parameters:
    """Return ∂L/∂θ for every parameter θ; each matrix product sums over t. `window` as in `state_gradients`."""
    da = state_gradients(parameters, trace, window).a  # (T, 4m)
    dz = loss_gradient(trace.p, trace.targets)  # (T, V)
    dE = np.zeros_like(parameters.E)  # (V, d)  nonzero only in the rows of the input words
    np.add.at(dE, trace.ids, da @ parameters.W)  # ∂L/∂x_t = Wᵀ δ_t
    return Parameters(
        E=dE,
        W=da.T @ trace.x,  # (4m, d)  Σ_t δ_t x_tᵀ
        R=da.T @ trace.past,  # (4m, m)  Σ_t δ_t h_{t−1}ᵀ
        b=da.sum(axis=0),  # (4m,)    Σ_t δ_t
        W_o=dz.T @ trace.h,  # (V, m)   Σ_t (p_t − y_t) h_tᵀ
        b_o=dz.sum(axis=0),  # (V,)     Σ_t (p_t − y_t)
    )
