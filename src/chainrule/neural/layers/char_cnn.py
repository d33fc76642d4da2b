"""Character CNN (Ma & Hovy 2016): convolution over the characters of a word and max-pooling over positions.

Letters: N words, L characters of the longest word, F filters.
"""

import math

import torch
from torch import Tensor, nn

from chainrule.neural.layers.dropout import units
from chainrule.neural.layers.initialization import initialize

PADDING = 0  # padding id


class CharCNN(nn.Module):
    """max_l (W · [e_{l−1}; e_l; e_{l+1}] + b), then ReLU, with zero padding around the word.

    Features depend only on the characters of the word; a row that is all padding has zero features.
    """

    def __init__(
        self, characters: int, features: int, dropout: float = 0.0, width: int = 32, span: int = 3
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(characters, width, padding_idx=PADDING)  # padding gets no gradient
        self.filters = nn.Conv1d(width, features, span, padding="same")
        initialize(self.embedding.weight, "uniform", math.sqrt(3 / width))  # variance 1 / width
        initialize(self.filters.weight, "xavier")
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0
            self.filters.bias.zero_()

    def forward(self, spellings: Tensor) -> Tensor:
        """(N, L) character ids, right-padded with 0 -> (N, F)."""
        e = units(self.embedding(spellings), self.dropout, self.training)  # (N, L, D)
        z = self.filters(e.transpose(1, 2))  # (N, F, L)
        z = z.masked_fill((spellings == PADDING)[:, None], -torch.inf)
        return z.amax(dim=-1).relu()  # ReLU commutes with max, and maps `-inf` to 0
