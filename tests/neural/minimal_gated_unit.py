"""Minimal gated unit (Zhou et al. 2016): a recurrent cell that is not part of chainrule."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule.lm import Floats, Vocabulary
from chainrule.neural.family import NeuralFamily
from chainrule.neural.network import Network, Tensors
from chainrule.neural.recurrent import RecurrentConfig, RecurrentLayer, RecurrentNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RecurrentConfig):
    """Settings of the cell: none of its own."""


class MinimalGatedLayer(RecurrentLayer):
    """h_t = (1 − f) ⊙ h_{t−1} + f ⊙ tanh(W x_t + R (f ⊙ h_{t−1}) + b); gates in the order f, g."""

    gates = 2

    @property
    def has_kernel(self) -> bool:
        """PyTorch has no fused kernel for it."""
        return False

    def step(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """One step."""
        (h,), D = state, self.width
        f = (u[:, :D] + torch.addmm(b_R[:D], h, R[:D].t())).sigmoid()
        g = (u[:, D:] + torch.addmm(b_R[D:], f * h, R[D:].t())).tanh()
        return ((1 - f) * h + f * g,)


def build(config: Config, vocabulary: Vocabulary, counts: Floats | None) -> Network:
    """Build an untrained language model."""
    return RecurrentNetwork(config, vocabulary, counts, MinimalGatedLayer)


family = NeuralFamily(Config, build, lambda: [Config()], lambda config: config.facets)
