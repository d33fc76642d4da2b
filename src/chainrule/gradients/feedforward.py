"""Feed-forward language model (Bengio et al. 2003): predicts a word from the n−1 words before it.

    x = [e_{k−n+1}; …; e_{k−1}],  h = tanh(W_h x + b_h),  p = softmax(W_o h + b_o [+ W_d x]),  ℓ = −log p_w

The paper writes C, H, d, U, W, b for E, W_h, b_h, W_o, W_d, b_o (eq. 1).
"""

from dataclasses import dataclass

import numpy as np

from chainrule.errors import UsageError
from chainrule.gradients.sequence import check_tokens
from chainrule.gradients.softmax import cross_entropy, loss_gradient, softmax
from chainrule.lm import Floats, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """Parameters of the network, or the gradient of the loss with respect to each of them."""

    E: Floats  # (V, d)  one row per word
    W_h: Floats  # (m, (n−1)d)
    b_h: Floats  # (m,)
    W_o: Floats  # (V, m)
    b_o: Floats  # (V,)
    W_d: Floats | None = None  # (V, (n−1)d)  optional direct connection x -> output

    @property
    def size(self) -> int:
        """Number of parameters."""
        arrays = (self.E, self.W_h, self.b_h, self.W_o, self.b_o, self.W_d)
        return sum(array.size for array in arrays if array is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """All intermediate values of the forward pass over T windows."""

    ids: Ids  # (T, n−1)
    targets: Ids  # (T,)
    x: Floats  # (T, (n−1)d)
    h: Floats  # (T, m)
    logits: Floats  # (T, V)
    p: Floats  # (T, V)
    losses: Floats  # (T,)

    @property
    def loss(self) -> float:
        """L = Σ_t ℓ_t, in nats."""
        return float(self.losses.sum())


def forward(parameters: Parameters, ids: Ids, targets: Ids) -> Trace:
    """Run the forward pass: `ids` (T, n−1) are the words before each of the `targets` (T,)."""
    E, W_h, b_h, W_o, b_o, W_d = _unpack(parameters)
    if ids.ndim != 2 or ids.shape[1] * E.shape[1] != W_h.shape[1]:
        raise UsageError(
            f"ids have shape {ids.shape}; W_h has {W_h.shape[1]} inputs and words have {E.shape[1]} dimensions: "
            f"give windows of {W_h.shape[1] // E.shape[1]} words, (T, n−1)"
        )
    check_tokens(ids, targets, len(E))
    x = E[ids].reshape(len(ids), -1)  # (T, (n−1)d)  x = [e_{k−n+1}; …; e_{k−1}]
    h = np.tanh(x @ W_h.T + b_h)  # (T, m)  h = tanh(W_h x + b_h)
    logits = h @ W_o.T + b_o  # (T, V)  z = W_o h + b_o
    if W_d is not None:
        logits = logits + x @ W_d.T  # (T, V)  … + W_d x
    return Trace(ids, targets, x, h, logits, softmax(logits), cross_entropy(logits, targets))


def backward(parameters: Parameters, trace: Trace) -> Parameters:
    """Return ∂L/∂θ for every parameter θ; each matrix product sums over the T windows."""
    E, W_h, _, W_o, _, W_d = _unpack(parameters)
    x, h = trace.x, trace.h
    dz = loss_gradient(trace.p, trace.targets)  # (T, V)  ∂ℓ/∂z = p − y
    dW_o = dz.T @ h  # (V, m)  ∂ℓ/∂W_o = (p − y) hᵀ
    db_o = dz.sum(axis=0)  # (V,)  ∂ℓ/∂b_o = p − y
    dh = dz @ W_o  # (T, m)  ∂ℓ/∂h = W_oᵀ (p − y)
    da = dh * (1 - h**2)  # (T, m)  δ = ∂ℓ/∂h ⊙ (1 − h²)
    dW_h = da.T @ x  # (m, (n−1)d)  ∂ℓ/∂W_h = δ xᵀ
    db_h = da.sum(axis=0)  # (m,)  ∂ℓ/∂b_h = δ
    dx = da @ W_h  # (T, (n−1)d)  ∂ℓ/∂x = W_hᵀ δ
    dW_d = None
    if W_d is not None:
        dW_d = dz.T @ x  # (V, (n−1)d)  ∂ℓ/∂W_d = (p − y) xᵀ
        dx = dx + dz @ W_d  # (T, (n−1)d)  … + W_dᵀ (p − y)
    dE = np.zeros_like(E)  # (V, d)  nonzero only in the rows of the input words, summed over occurrences
    np.add.at(dE, trace.ids, dx.reshape(*trace.ids.shape, -1))
    return Parameters(dE, dW_h, db_h, dW_o, db_o, dW_d)


def _unpack(q: Parameters) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats | None]:
    return q.E, q.W_h, q.b_h, q.W_o, q.b_o, q.W_d
