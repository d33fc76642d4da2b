"""Weight initialization: Xavier, He, orthogonal, uniform, normal."""

import math

import torch
from torch import Tensor, nn

from chainrule.neural.config import Initialization


def initialize(W: Tensor, method: Initialization, init_range: float = 0.1) -> None:
    """Initialize a matrix (out, in) in place."""
    with torch.no_grad():
        if method == "xavier":  # Glorot & Bengio 2010: variance 2 / (in + out)
            nn.init.xavier_uniform_(W)
        elif method == "he":  # He et al. 2015: variance 2 / in
            nn.init.kaiming_normal_(W, nonlinearity="relu")
        elif method == "orthogonal":  # preserves norms
            nn.init.orthogonal_(W)
        elif method == "uniform":
            W.uniform_(-init_range, init_range)
        else:
            W.normal_(0.0, init_range / math.sqrt(3))  # same variance as uniform


def initialize_gates(W: Tensor, gates: int, method: Initialization, init_range: float = 0.1) -> None:
    """Initialize each of `gates` stacked matrices (gates · D, in) in place."""
    for matrix in W.chunk(gates, dim=0):
        initialize(matrix, method, init_range)
