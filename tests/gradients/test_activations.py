from typing import cast

import numpy as np
import pytest
import torch
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.gradients.softmax import ACTIVATIONS, ActivationName, get_activation
from gradients.numeric_gradients import assert_close, leaf

PEERS = {"tanh": torch.tanh, "relu": functional.relu, "leaky": functional.leaky_relu, "sigmoid": torch.sigmoid}
A = np.array([-800.0, -30.0, -1.5, 0.0, 0.2, 3.0, 30.0, 800.0])


@pytest.mark.parametrize("name", PEERS)
def test_activation_value_and_slope_equal_autograd(name: ActivationName) -> None:
    a = leaf(A)
    h = PEERS[name](a)
    h.sum().backward()
    phi = get_activation(name)
    assert_close(phi.value(A), h)
    assert_close(phi.slope(A, phi.value(A)), a.grad)


def test_every_activation_has_a_torch_peer() -> None:
    assert ACTIVATIONS.keys() == PEERS.keys()


def test_unknown_activation_is_rejected() -> None:
    with pytest.raises(ConfigError, match="activation is 'swish'; choose one of tanh, relu, leaky, sigmoid"):
        get_activation(cast(ActivationName, "swish"))
