"""Simple recurrent network (Elman 1990)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import functional

from chainrule.config import with_settings
from chainrule.neural.family import NeuralFamily
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import SMALL, RecurrentConfig, RecurrentLayer, RecurrentNetwork

PHI: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky": functional.leaky_relu,  # 0.01 x below 0
    "sigmoid": torch.sigmoid,
}
FUSED: Final = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RecurrentConfig):
    """Settings of an Elman network."""

    nonlinearity: Literal["tanh", "relu", "leaky", "sigmoid"] = "tanh"


class ElmanLayer(RecurrentLayer):
    """h_t = φ(W x_t + R h_{t−1} + b)."""

    gates = 1

    def __init__(self, inputs: int, width: int, config: Config) -> None:
        super().__init__(inputs, width, config)
        self.nonlinearity = config.nonlinearity
        self.is_bounded = config.nonlinearity in ("tanh", "sigmoid")

    @property
    def has_kernel(self) -> bool:
        """Fused kernels exist for tanh and ReLU."""
        return self.nonlinearity in FUSED

    def kernel(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """All steps of L layers."""
        fused, is_learning = FUSED[self.nonlinearity], torch.is_grad_enabled()
        outputs, h = fused(x, state[0], weights, True, len(state[0]), p, is_learning, False, False)
        return outputs, (h,)

    def step(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """h_t = φ(W x_t + b_W + R h_{t−1} + b_R)."""
        return (PHI[self.nonlinearity](u + torch.addmm(b_R, state[0], R.t())),)  # (B, D)


build = partial(RecurrentNetwork, layer_class=ElmanLayer)
"""Build an untrained network from its config, the vocabulary and the word counts."""


def candidates() -> list[Config]:
    """Configs for `compare`."""
    return [with_settings(Config(**SMALL), learning_rate=5e-3)]


family = NeuralFamily(Config, build, candidates, lambda config: config.facets)
