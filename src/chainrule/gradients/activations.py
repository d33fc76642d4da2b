"""Activation functions φ and their derivatives φ'."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.errors import ConfigError
from chainrule.lm import Floats

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
