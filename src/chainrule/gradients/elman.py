"""The Elman network, one sequence at a time, and back-propagation through time.

    h_t = φ(W_xh x_t + W_hh h_{t−1} + b),  p_t = softmax(W_o h_t + b_o),  L = Σ_t L_t,  L_t = −log p_{t,y_t}

Not here: the functions φ (activations.py), nets with gates (lstm.py, gru.py).
"""

from dataclasses import dataclass

import numpy as np

from chainrule.gradients import activations
from chainrule.gradients.sequence import check_tokens, cuts, first_state
from chainrule.gradients.softmax import cross_entropy, loss_gradient, softmax
from chainrule.lm import Floats, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The net's numbers, or the loss's gradient by each of them."""

    E: Floats  # (V, d)  one row per word
    W_xh: Floats  # (m, d)
    W_hh: Floats  # (m, m)
    b: Floats  # (m,)
    W_o: Floats  # (V, m)
    b_o: Floats  # (V,)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Every value on the way from T tokens to their losses."""

    ids: Ids  # (T,)
    targets: Ids  # (T,)
    activation: activations.Name
    h0: Floats  # (m,)
    x: Floats  # (T, d)
    a: Floats  # (T, m)
    h: Floats  # (T, m)
    logits: Floats  # (T, V)
    p: Floats  # (T, V)
    losses: Floats  # (T,)

    @property
    def loss(self) -> float:
        """L = Σ_t L_t, in nats."""
        return float(self.losses.sum())

    @property
    def past(self) -> Floats:
        """(T, m): h_{t−1} for every t."""
        return np.vstack([self.h0, self.h[:-1]])


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """The error that reaches each step, directly and from all later ones."""

    h: Floats  # (T, m)  ∂L/∂h_t
    a: Floats  # (T, m)  δ_t = ∂L/∂a_t
    h0: Floats  # (m,)    ∂L/∂h_0, the gradient of a learned first state


def forward(
    parameters: Parameters,
    ids: Ids,
    targets: Ids,
    h0: Floats | None = None,
    activation: activations.Name = "tanh",
) -> Trace:
    """Read T tokens, `ids` (T,), from the state h0 (m,) on, and predict the one after each, `targets` (T,)."""
    E, W_xh, W_hh, b = parameters.E, parameters.W_xh, parameters.W_hh, parameters.b
    check_tokens(ids, targets, len(E))
    phi = activations.named(activation).value
    T, m = len(ids), len(b)
    h0 = past = first_state(h0, m)
    x = E[ids]  # (T, d)  x_t = E[w_t]
    a, h = np.empty((T, m)), np.empty((T, m))
    for t in range(T):
        a[t] = W_xh @ x[t] + W_hh @ past + b  # (m,)  a_t = W_xh x_t + W_hh h_{t−1} + b
        h[t] = phi(a[t])  # (m,)  h_t = φ(a_t)
        past = h[t]
    logits = h @ parameters.W_o.T + parameters.b_o  # (T, V)  W_o h_t + b_o
    losses = cross_entropy(logits, targets)  # (T,)  L_t = −log p_{t,y_t}
    return Trace(ids, targets, activation, h0, x, a, h, logits, softmax(logits), losses)


def signals(parameters: Parameters, trace: Trace, window: int | None = None) -> Signals:
    """The error of L = Σ_t L_t at every step; every L_t adds to it where it arises.

    With a `window` the sequence falls into pieces of so many steps and no error passes from one to the one before.
    """
    dz = loss_gradient(trace.p, trace.targets)  # (T, V)  p_t − y_t
    return _through_time(parameters, trace, dz @ parameters.W_o, window)  # ∂L_t/∂h_t = W_oᵀ (p_t − y_t)


def last_loss_flow(parameters: Parameters, trace: Trace) -> Signals:
    """The error of the last loss alone: `h[-1 - k]` is ∂L_T/∂h_{T−k}."""
    direct = np.zeros_like(trace.h)  # (T, m)  no other step has a loss of its own
    direct[-1] = loss_gradient(trace.p, trace.targets)[-1] @ parameters.W_o
    return _through_time(parameters, trace, direct, None)


def backward(parameters: Parameters, trace: Trace, window: int | None = None) -> Parameters:
    """∂L/∂θ for every parameter θ; each matrix product is a sum over t. `window` as for `signals`."""
    da = signals(parameters, trace, window).a  # (T, m)
    dz = loss_gradient(trace.p, trace.targets)  # (T, V)
    dE = np.zeros_like(parameters.E)  # (V, d)  only the rows that were read
    np.add.at(dE, trace.ids, da @ parameters.W_xh)  # ∂L/∂x_t = W_xhᵀ δ_t
    return Parameters(
        E=dE,
        W_xh=da.T @ trace.x,  # (m, d)  Σ_t δ_t x_tᵀ
        W_hh=da.T @ trace.past,  # (m, m)  Σ_t δ_t h_{t−1}ᵀ
        b=da.sum(axis=0),  # (m,)    Σ_t δ_t
        W_o=dz.T @ trace.h,  # (V, m)  Σ_t (p_t − y_t) h_tᵀ
        b_o=dz.sum(axis=0),  # (V,)    Σ_t (p_t − y_t)
    )


def _through_time(parameters: Parameters, trace: Trace, direct: Floats, window: int | None) -> Signals:
    """From the last step to the first; `direct` (T, m) holds ∂L_t/∂h_t."""
    T, m = trace.h.shape
    slope = activations.named(trace.activation).slope(trace.a, trace.h)  # (T, m)  φ'(a_t); for tanh 1 − h_t²
    is_cut = cuts(T, window)
    dh, da = np.empty((T, m)), np.empty((T, m))
    carried = np.zeros(m)
    for t in reversed(range(T)):
        dh[t] = direct[t] + carried  # ∂L/∂h_t = ∂L_t/∂h_t + W_hhᵀ δ_{t+1}
        da[t] = slope[t] * dh[t]  # δ_t = diag(φ'(a_t)) ∂L/∂h_t
        carried = np.zeros(m) if is_cut[t] else parameters.W_hh.T @ da[t]  # what h_{t−1} gets: W_hhᵀ δ_t
    return Signals(dh, da, h0=carried)
