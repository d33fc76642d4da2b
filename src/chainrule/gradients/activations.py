"""The functions φ that bend a layer's sum, each with its slope φ'.

Lives here: one entry per function, and the logistic σ that gates use. Not here: softmax, which mixes its inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.errors import ConfigError
from chainrule.lm import Floats

Name = Literal["tanh", "relu", "leaky", "sigmoid"]

LEAK: Final = 0.01  # slope of the leaky ReLU below 0


@dataclass(frozen=True, slots=True)
class Activation:
    """h = φ(a), element by element."""

    value: Callable[[Floats], Floats]  # a -> h
    slope: Callable[[Floats, Floats], Floats]  # (a, h) -> φ'(a); h where it spares computing φ again


def sigmoid(a: Floats) -> Floats:
    """σ(a) = 1 / (1 + exp(−a)), written with exp(−|a|) so that nothing overflows.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    e = np.exp(-np.abs(a))
    s: Floats = np.where(a >= 0, 1.0, e) / (1 + e)
    return s


ACTIVATIONS: Final[dict[Name, Activation]] = {
    "tanh": Activation(np.tanh, lambda a, h: 1 - h**2),
    "relu": Activation(lambda a: np.maximum(a, 0.0), lambda a, h: np.where(a > 0, 1.0, 0.0)),
    "leaky": Activation(lambda a: np.where(a > 0, a, LEAK * a), lambda a, h: np.where(a > 0, 1.0, LEAK)),
    "sigmoid": Activation(sigmoid, lambda a, h: h * (1 - h)),
}


def named(name: Name) -> Activation:
    """The activation of this name."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"there is no activation {name!r}; choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
