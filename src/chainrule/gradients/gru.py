"""Both GRU variants and back-propagation through time, for one sequence.

    r, z = σ(W x_t + R h_{t−1} + b),  h_t = (1 − z)⊙n + z⊙h_{t−1}
    reset before the product:  n = tanh(W_n x_t + b_n + (R_n (r⊙h_{t−1}) + b_R))
    reset after the product:   n = tanh(W_n x_t + b_n + r⊙(R_n h_{t−1} + b_R)), as cuDNN computes it
    p_t = softmax(W_o h_t + b_o),  L = Σ_t −log p_{t,y_t}

n is the candidate state, also written h̃. W, R and b stack r, z, n in this order, as in PyTorch.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from chainrule.errors import ConfigError
from chainrule.gradients.sequence import SequenceTrace, check_tokens, initial_state, truncation_points
from chainrule.gradients.softmax import loss_gradient, sigmoid
from chainrule.lm import Floats, Ids

Reset = Literal["before", "after"]


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """Parameters of the network, or the gradient of the loss with respect to each of them."""

    E: Floats  # (V, d)  one row per word
    W: Floats  # (3m, d)
    R: Floats  # (3m, m)
    b: Floats  # (3m,)
    b_R: Floats  # (m,)  bias of R_n; redundant with b_n if the reset is before the product  # noqa: N815
    W_o: Floats  # (V, m)
    b_o: Floats  # (V,)


@dataclass(frozen=True, slots=True, eq=False)
class Trace(SequenceTrace):
    """All intermediate values of the forward pass over T tokens."""

    reset: Reset
    r: Floats  # (T, m)  reset gate
    z: Floats  # (T, m)  update gate
    u: Floats  # (T, m)  input of R_n: r⊙h_{t−1} or h_{t−1}
    q: Floats  # (T, m)  R_n u + b_R
    n: Floats  # (T, m)  candidate state


@dataclass(frozen=True, slots=True, eq=False)
class StateGradients:
    """Gradients of the loss with respect to the states and pre-activations of every step."""

    h: Floats  # (T, m)   ∂L/∂h_t
    a: Floats  # (T, 3m)  δ_t = ∂L/∂(pre-activations of r, z, n)
    q: Floats  # (T, m)   ∂L/∂q_t
    h0: Floats  # (m,)     ∂L/∂h_0


def forward(
    parameters: Parameters, ids: Ids, targets: Ids, h0: Floats | None = None, reset: Reset = "after"
) -> Trace:
    """Run the forward pass over `ids` (T,) from the state h0 (m,), with the next tokens as `targets` (T,)."""
    if reset not in ("before", "after"):
        raise ConfigError(f"reset is {reset!r}; choose 'before' or 'after' the product with R")
    check_tokens(ids, targets, len(parameters.E))
    R_r, R_z, R_n = np.split(parameters.R, 3)  # each (m, m)
    T, m = len(ids), parameters.R.shape[1]
    h0 = past = initial_state(h0, m)
    x = parameters.E[ids]  # (T, d)  x_t = E[w_t]
    r, z, u, q, n, h = np.empty((6, T, m))
    for t in range(T):
        w_r, w_z, w_n = np.split(parameters.W @ x[t] + parameters.b, 3)  # each (m,)  W x_t + b
        r[t] = sigmoid(w_r + R_r @ past)  # r = σ(W_r x_t + b_r + R_r h_{t−1})
        z[t] = sigmoid(w_z + R_z @ past)  # z = σ(W_z x_t + b_z + R_z h_{t−1})
        u[t] = r[t] * past if reset == "before" else past  # u = r⊙h_{t−1}, or h_{t−1}
        q[t] = R_n @ u[t] + parameters.b_R  # q = R_n u + b_R
        n[t] = np.tanh(
            w_n + (q[t] if reset == "before" else r[t] * q[t])
        )  # n = tanh(W_n x_t + b_n + q), or … + r⊙q
        h[t] = (1 - z[t]) * n[t] + z[t] * past  # h_t = (1 − z)⊙n + z⊙h_{t−1}
        past = h[t]
    logits = h @ parameters.W_o.T + parameters.b_o  # (T, V)  W_o h_t + b_o
    return Trace(ids, targets, h0, x, h, logits, reset=reset, r=r, z=z, u=u, q=q, n=n)


def state_gradients(
    parameters: Parameters, trace: Trace, window: int | None = None, direct: Floats | None = None
) -> StateGradients:
    """Return the gradients of L = Σ_t L_t with respect to the state of every step, from the last to the first.

    With a `window`, back-propagation is truncated: gradients do not cross the borders of segments of `window`
    steps. `direct` (T, m) replaces ∂L_t/∂h_t, for other losses.
    """
    direct = trace.output_gradients(parameters.W_o) if direct is None else direct
    r, z, n, q, past = trace.r, trace.z, trace.n, trace.q, trace.past
    R_r, R_z, R_n = np.split(parameters.R, 3)  # each (m, m)
    T, m = trace.h.shape
    is_cut = truncation_points(T, window)
    dh, da, dq = np.empty((T, m)), np.empty((T, 3 * m)), np.empty((T, m))
    carried = np.zeros(m)
    for t in reversed(range(T)):
        dh[t] = direct[t] + carried  # ∂L/∂h_t = ∂L_t/∂h_t + the gradient from step t+1
        da_n = dh[t] * (1 - z[t]) * (1 - n[t] ** 2)  # δ_n = ∂L/∂h_t ⊙ (1 − z) ⊙ (1 − n²)
        da_z = dh[t] * (past[t] - n[t]) * z[t] * (1 - z[t])  # δ_z = ∂L/∂h_t ⊙ (h_{t−1} − n) ⊙ z(1 − z)
        if trace.reset == "before":
            dq[t] = da_n  # q is added unscaled: ∂L/∂q = δ_n
            du = R_n.T @ dq[t]  # ∂L/∂u = R_nᵀ ∂L/∂q, u = r⊙h_{t−1}
            dr, du_past = du * past[t], du * r[t]  # ∂L/∂r = ∂L/∂u ⊙ h_{t−1};  to h_{t−1}: ∂L/∂u ⊙ r
        else:
            dq[t] = da_n * r[t]  # r⊙q is added: ∂L/∂q = δ_n ⊙ r
            dr, du_past = da_n * q[t], R_n.T @ dq[t]  # ∂L/∂r = δ_n ⊙ q;  to h_{t−1}: R_nᵀ ∂L/∂q
        da_r = dr * r[t] * (1 - r[t])  # δ_r = ∂L/∂r ⊙ r(1 − r)
        da[t] = np.concatenate([da_r, da_z, da_n])  # (3m,)  δ_t
        # ∂L/∂h_{t−1} from step t: z ⊙ ∂L/∂h_t + R_rᵀ δ_r + R_zᵀ δ_z + the path through the candidate
        dh_past = z[t] * dh[t] + R_r.T @ da_r + R_z.T @ da_z + du_past
        carried = np.zeros(m) if is_cut[t] else dh_past
    return StateGradients(dh, da, dq, h0=carried)


def last_loss_gradients(parameters: Parameters, trace: Trace) -> StateGradients:
    """Return the gradients of the last loss L_T only: `h[-1 - k]` is ∂L_T/∂h_{T−k}."""
    return state_gradients(parameters, trace, direct=trace.last_output_gradient(parameters.W_o))


def backward(parameters: Parameters, trace: Trace, window: int | None = None) -> Parameters:
    """Return ∂L/∂θ for every parameter θ; each matrix product sums over t. `window` as in `state_gradients`."""
    gradients = state_gradients(parameters, trace, window)
    da_r, da_z, _ = np.split(gradients.a, 3, axis=1)  # each (T, m)
    dz = loss_gradient(trace.p, trace.targets)  # (T, V)
    dE = np.zeros_like(parameters.E)  # (V, d)  nonzero only in the rows of the input words
    np.add.at(dE, trace.ids, gradients.a @ parameters.W)  # ∂L/∂x_t = Wᵀ δ_t
    dR_r = da_r.T @ trace.past  # (m, m)  Σ_t δ_r h_{t−1}ᵀ
    dR_z = da_z.T @ trace.past  # (m, m)  Σ_t δ_z h_{t−1}ᵀ
    dR_n = gradients.q.T @ trace.u  # (m, m)  Σ_t ∂L/∂q_t u_tᵀ
    return Parameters(
        E=dE,
        W=gradients.a.T @ trace.x,  # (3m, d)  Σ_t δ_t x_tᵀ
        R=np.vstack([dR_r, dR_z, dR_n]),  # (3m, m)
        b=gradients.a.sum(axis=0),  # (3m,)    Σ_t δ_t
        b_R=gradients.q.sum(axis=0),  # (m,)     Σ_t ∂L/∂q_t
        W_o=dz.T @ trace.h,  # (V, m)   Σ_t (p_t − y_t) h_tᵀ
        b_o=dz.sum(axis=0),  # (V,)     Σ_t (p_t − y_t)
    )
