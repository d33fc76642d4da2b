"""Softmax, cross-entropy loss and activations, with their derivatives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.errors import ConfigError
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


ActivationName = Literal["tanh", "relu", "leaky", "sigmoid"]

LEAK: Final = 0.01  # slope of the leaky ReLU below 0


@dataclass(frozen=True, slots=True)
class Activation:
    """Element-wise activation h = φ(a)."""

    value: Callable[[Floats], Floats]  # a -> h
    slope: Callable[[Floats, Floats], Floats]  # (a, h) -> φ'(a); h avoids computing φ(a) again


def sigmoid(a: Floats) -> Floats:
    """σ(a) = 1 / (1 + exp(−a)), computed from exp(−|a|) to avoid overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    e = np.exp(-np.abs(a))
    s: Floats = np.where(a >= 0, 1.0, e) / (1 + e)
    return s


ACTIVATIONS: Final[dict[ActivationName, Activation]] = {
    "tanh": Activation(np.tanh, lambda a, h: 1 - h**2),
    "relu": Activation(lambda a: np.maximum(a, 0.0), lambda a, h: np.where(a > 0, 1.0, 0.0)),
    "leaky": Activation(lambda a: np.where(a > 0, a, LEAK * a), lambda a, h: np.where(a > 0, 1.0, LEAK)),
    "sigmoid": Activation(sigmoid, lambda a, h: h * (1 - h)),
}


def get_activation(name: ActivationName) -> Activation:
    """Return the activation with this name."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation is {name!r}; choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
