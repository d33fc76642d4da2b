"""Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from chainrule.errors import ConfigError
from chainrule.neural.family import NeuralFamily
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import SMALL, RecurrentConfig, RecurrentLayer, RecurrentNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RecurrentConfig):
    """Settings of an LSTM."""

    forget_bias: float = 1.0  # initial bias of the forget gate; above 0 the cell remembers by default

    def __post_init__(self) -> None:
        RecurrentConfig.__post_init__(self)
        if not math.isfinite(self.forget_bias):
            raise ConfigError(f"model.forget_bias is {self.forget_bias:g}; choose a finite number")


class LSTMLayer(RecurrentLayer):
    """Memory cell c with input, forget and output gates; gates in the order i, f, g, o."""

    gates = 4
    gate_names = ("i", "f", "g", "o")
    n_states = 2  # h, c

    def __init__(self, inputs: int, width: int, config: Config) -> None:
        super().__init__(inputs, width, config)
        with torch.no_grad():
            self.b_W[width : 2 * width] = config.forget_bias

    def kernel(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """All steps of L layers."""
        is_learning = torch.is_grad_enabled()  # cuDNN then stores the activations for backward
        layers = len(state[0])
        outputs, *after = torch.lstm(x, state, weights, True, layers, p, is_learning, False, False)
        return outputs, tuple(after)

    def compute_gates(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """i, f, o = σ(W x + R h + b), g = tanh(the same); each is (B, D)."""
        i, f, g, o = (u + torch.addmm(b_R, state[0], R.t())).chunk(4, dim=-1)
        return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()

    def step(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """One step."""
        i, f, g, o = self.compute_gates(u, state, R, b_R)
        c = f * state[1] + i * g  # c_t = f ⊙ c_{t−1} + i ⊙ g
        h = o * c.tanh()  # h_t = o ⊙ tanh(c_t)
        return h, c


build = partial(RecurrentNetwork, layer_class=LSTMLayer)
"""Build an untrained network from its config, the vocabulary and the word counts."""


def candidates() -> list[Config]:
    """Configs for `compare`: without and with attention over past states."""
    plain = Config(**SMALL)
    return [plain, replace(plain, attention="scaled-dot")]


family = NeuralFamily(Config, build, candidates, lambda config: config.facets)
