"""A word's features from its spelling: a convolution over its characters and the largest value of each filter.

Lives here: character ids (N, L) -> features (N, F), as in Ma & Hovy 2016. Not here: which character has which id
(data/spellings.py). Letters: N words, L places of the longest spelling, F filters.
"""

import math

import torch
from torch import Tensor, nn

from chainrule.neural.dropout import units
from chainrule.neural.initialization import fill

PADDING = 0  # the id of no character


class CharacterFeatures(nn.Module):
    """max over places of (W · [e_{l−1}; e_l; e_{l+1}] + b), then ReLU; e is zero before and after the spelling.

    A word's features depend on its own characters alone; a row that is all padding has features zero.
    """

    def __init__(
        self, characters: int, features: int, dropout: float = 0.0, width: int = 32, span: int = 3
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(characters, width, padding_idx=PADDING)  # its padding row gets no gradient
        self.filters = nn.Conv1d(width, features, span, padding="same")
        fill(self.embedding.weight, "uniform", math.sqrt(3 / width))  # variance 1 / width
        fill(self.filters.weight, "xavier")
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0
            self.filters.bias.zero_()

    def forward(self, spellings: Tensor) -> Tensor:
        """(N, L) ids, padding 0 after the characters -> (N, F)."""
        e = units(self.embedding(spellings), self.dropout, self.training)  # (N, L, D)
        z = self.filters(e.transpose(1, 2))  # (N, F, L)
        z = z.masked_fill((spellings == PADDING)[:, None], -torch.inf)
        return z.amax(dim=-1).relu()  # ReLU of the largest is the largest ReLU, and 0 for `-inf`
