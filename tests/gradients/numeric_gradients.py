"""Reference gradients: automatic differentiation and finite differences."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.nn import functional

from chainrule.lm import Floats

P = TypeVar("P")

V, D, M, T = 7, 3, 4, 6
IDS = np.array([0, 3, 3, 1, 6, 3])  # 3 is read three times; 2, 4 and 5 never
TARGETS = np.array([3, 3, 1, 6, 3, 2])
STEP = 1e-5  # finite-difference step: the error is about STEP², the rounding about 1e-16/STEP


def random_parameters(kind: Callable[..., P], seed: int, **shapes: tuple[int, ...]) -> P:
    rng = np.random.default_rng(seed)
    return kind(**{name: rng.normal(scale=0.7, size=shape) for name, shape in shapes.items()})


def random_state(seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=M)


def arrays(parameters: Any) -> dict[str, Floats]:
    all_fields = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {name: array for name, array in all_fields.items() if array is not None}


def tensors(parameters: Any) -> dict[str, Tensor]:
    return {name: leaf(array) for name, array in arrays(parameters).items()}


def leaf(array: Floats) -> Tensor:
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def copy_into(parameter: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(value)


def loss_at(h: Tensor, q: dict[str, Tensor], t: int) -> Tensor:
    """−log softmax(W_o h + b_o) at the target of step t."""
    loss: Tensor = functional.cross_entropy(q["W_o"] @ h + q["b_o"], torch.tensor(int(TARGETS[t])))
    return loss


def assert_gradients(gradients: Any, leaves: dict[str, Tensor]) -> None:
    """Check every hand-derived gradient against autograd."""
    assert arrays(gradients).keys() == leaves.keys()
    for name, array in arrays(gradients).items():
        assert np.abs(array).max() > 1e-3, f"the gradient of {name} is too small to test"
        assert_close(array, leaves[name].grad, name)


def assert_close(actual: Floats, expected: Any, name: str = "") -> None:
    expected = expected.detach().numpy() if isinstance(expected, Tensor) else expected
    assert_allclose(actual, expected, rtol=1e-10, atol=1e-13, err_msg=name)


def assert_differences(gradients: Any, loss: Callable[[Any], float], parameters: Any) -> None:
    """Check every gradient against (L(θ + s) − L(θ − s)) / 2s."""
    for name, array in arrays(parameters).items():
        expected = np.empty_like(array)
        for index in np.ndindex(array.shape):
            nudge = np.zeros_like(array)
            nudge[index] = STEP
            above = loss(replace(parameters, **{name: array + nudge}))
            below = loss(replace(parameters, **{name: array - nudge}))
            expected[index] = (above - below) / (2 * STEP)
        assert_allclose(getattr(gradients, name), expected, rtol=1e-6, atol=1e-8, err_msg=name)
