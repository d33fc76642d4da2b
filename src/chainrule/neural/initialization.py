"""The first weights: Xavier, He, orthogonal, uniform, normal; biases zero."""

import math

import torch
from torch import Tensor, nn

from chainrule.neural.settings import Initialization


def fill(W: Tensor, how: Initialization, init_range: float = 0.1) -> None:
    """Give a matrix (out, in), or several stacked along their outputs, its first values, in place."""
    with torch.no_grad():
        if how == "xavier":  # Glorot & Bengio 2010: variance 2 / (in + out)
            nn.init.xavier_uniform_(W)
        elif how == "he":  # He et al. 2015: variance 2 / in
            nn.init.kaiming_normal_(W, nonlinearity="relu")
        elif how == "orthogonal":  # keeps the length of what passes through
            nn.init.orthogonal_(W)
        elif how == "uniform":
            W.uniform_(-init_range, init_range)
        else:
            W.normal_(0.0, init_range / math.sqrt(3))  # the variance of the uniform


def fill_gates(W: Tensor, gates: int, how: Initialization, init_range: float = 0.1) -> None:
    """The same for each of `gates` matrices that stand above one another, (gates · D, in)."""
    for part in W.chunk(gates, dim=0):
        fill(part, how, init_range)
