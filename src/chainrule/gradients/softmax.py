"""Softmax, cross-entropy loss and their derivatives."""

import numpy as np

from chainrule.lm import Floats, Ids


def softmax(z: Floats) -> Floats:
    """(…, V) -> (…, V): p_v = exp(z_v) / Σ_u exp(z_u) over the last axis.

    Adding a constant to all z does not change p; subtracting the maximum avoids overflow.

    >>> softmax(np.log([1.0, 2.0, 5.0]) + 1000)
    array([0.125, 0.25 , 0.625])
    """
    e = np.exp(z - z.max(axis=-1, keepdims=True))  # (…, V)
    p: Floats = e / e.sum(axis=-1, keepdims=True)
    return p


def cross_entropy(z: Floats, targets: Ids) -> Floats:
    """(T, V), (T,) -> (T,): ℓ_t = −log p_{t,y_t} = log Σ_u exp(z_{t,u}) − z_{t,y_t}, in nats."""
    top = z.max(axis=-1)  # (T,)
    z_y = np.take_along_axis(z, targets[:, None], axis=-1)[:, 0]  # (T,)
    losses: Floats = top - z_y + np.log(np.exp(z - top[:, None]).sum(axis=-1))
    return losses


def loss_gradient(p: Floats, targets: Ids) -> Floats:
    """(T, V), (T,) -> (T, V): ∂ℓ_t/∂z_t = p_t − y_t, where y_t is the one-hot target.

    By the chain rule this is Jᵀ ∂ℓ/∂p, with J the `jacobian` and ∂ℓ/∂p = −y/p.
    """
    dz = p.copy()
    dz[np.arange(len(p)), targets] -= 1
    return dz


def jacobian(p: Floats) -> Floats:
    """(V,) -> (V, V): ∂p_u/∂z_v = p_u ([u = v] − p_v), in matrix form diag(p) − p pᵀ."""
    J: Floats = np.diag(p) - np.outer(p, p)
    return J
