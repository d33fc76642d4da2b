"""Gated recurrent unit (Cho et al. 2014), with the reset gate before or after the recurrent product."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from chainrule.errors import ConfigError
from chainrule.neural.family import NeuralFamily
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import SMALL, RecurrentConfig, RecurrentLayer, RecurrentNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RecurrentConfig):
    """Settings of a GRU."""

    reset: Literal["before", "after"] = "after"  # tanh(W x + R (r ⊙ h)), or tanh(W x + r ⊙ (R h)) as in cuDNN

    def __post_init__(self) -> None:
        RecurrentConfig.__post_init__(self)
        if self.attention != "none" and self.attention_use == "state":
            raise ConfigError(
                "model.attention_use is 'state': in a GRU the attention output accumulates in h through z ⊙ h, "
                "so h grows without bound; choose sum or concat, or family lstm or rnn"
            )


class GRULayer(RecurrentLayer):
    """h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}; gates in the order r, z, n."""

    gates = 3
    gate_names = ("r", "z", "n")

    def __init__(self, inputs: int, width: int, config: Config) -> None:
        super().__init__(inputs, width, config)
        self.reset = config.reset

    @property
    def has_kernel(self) -> bool:
        """Fused kernels exist only for a reset after the product."""
        return self.reset == "after"

    def kernel(self, x: Tensor, state: Tensors, weights: list[Tensor], p: float) -> tuple[Tensor, Tensors]:
        """All steps of L layers."""
        is_learning = torch.is_grad_enabled()  # cuDNN then stores the activations for backward
        layers = len(state[0])
        outputs, h = torch.gru(x, state[0], weights, True, layers, p, is_learning, False, False)
        return outputs, (h,)

    def compute_gates(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """r, z and the candidate n; each is (B, D)."""
        (h,), D = state, self.width
        u_r, u_z, u_n = u.chunk(3, dim=-1)
        if self.reset == "after":
            h_r, h_z, h_n = torch.addmm(b_R, h, R.t()).chunk(3, dim=-1)
            r = (u_r + h_r).sigmoid()
            n = (u_n + r * h_n).tanh()  # n = tanh(W x + b_W + r ⊙ (R h + b_R))
        else:
            h_r, h_z = torch.addmm(b_R[: 2 * D], h, R[: 2 * D].t()).chunk(2, dim=-1)
            r = (u_r + h_r).sigmoid()
            h_n = torch.addmm(b_R[2 * D :], r * h, R[2 * D :].t())
            n = (u_n + h_n).tanh()  # n = tanh(W x + b_W + R (r ⊙ h) + b_R)
        return r, (u_z + h_z).sigmoid(), n

    def step(self, u: Tensor, state: Tensors, R: Tensor, b_R: Tensor) -> Tensors:
        """One step."""
        _, z, n = self.compute_gates(u, state, R, b_R)
        return (n + z * (state[0] - n),)  # h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}


build = partial(RecurrentNetwork, layer_class=GRULayer)
"""Build an untrained network from its config, the vocabulary and the word counts."""


def candidates() -> list[Config]:
    """Configs for `compare`: both positions of the reset gate."""
    after = Config(**SMALL)
    return [after, replace(after, reset="before")]


def facets(config: Config) -> dict[str, str | int]:
    """Settings shown in comparison tables."""
    return {**config.facets, "reset": config.reset}


family = NeuralFamily(Config, build, candidates, facets)
