"""Softmax, cross-entropy loss and their derivatives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.errors import ConfigError, UsageError, VocabularyError
from chainrule.lm import Floats, Ids, Mask


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


def check_tokens(ids: Ids, targets: Ids, vocab_size: int) -> None:
    """Raise unless ids and targets are in the vocabulary, non-empty and of the same length."""
    if len(ids) != len(targets) or len(targets) == 0:
        raise UsageError(
            f"there are {len(ids)} inputs and {len(targets)} targets; give one target for each input, at least one"
        )
    for name, values in (("ids", ids), ("targets", targets)):
        if values.min() < 0 or values.max() >= vocab_size:
            raise VocabularyError(
                f"{name} run from {values.min()} to {values.max()} but the embedding has {vocab_size} rows; "
                f"use ids from 0 to {vocab_size - 1}"
            )


def initial_state(state: Floats | None, width: int) -> Floats:
    """Return the state before the first token, (m,); zeros if None."""
    if state is None:
        return np.zeros(width)
    if state.shape != (width,):
        raise UsageError(f"the first state has shape {state.shape}; the net is {width} wide, so give ({width},)")
    return state


def truncation_points(T: int, window: int | None) -> Mask:
    """Return a mask (T,) that is True at t if no gradient flows from step t back to step t−1.

    The sequence is divided into segments of `window` steps; the state is carried across segments, the gradient is
    not.

    >>> truncation_points(5, 2)
    array([False, False,  True, False,  True])
    """
    if window is None:
        return np.zeros(T, dtype=bool)
    if window < 1:
        raise UsageError(f"the window is {window} steps; choose 1 or more, or None for the whole sequence")
    steps = np.arange(T)
    is_cut: Mask = (steps > 0) & (steps % window == 0)
    return is_cut
