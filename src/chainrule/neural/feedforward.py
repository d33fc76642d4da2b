"""Feed-forward language model (Bengio et al. 2003): predict the next word from the last n−1.

    x = [e_{k−n+1}; …; e_{k−1}],  h = tanh(W_h x + b_h),  p = softmax(W_o h + b_o)

e_i is the vector of word i.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.config import with_settings
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.config import ModelConfig
from chainrule.neural.family import NeuralFamily
from chainrule.neural.layers import dropout
from chainrule.neural.layers.initialization import initialize
from chainrule.neural.layers.output import make_output
from chainrule.neural.network import Network, NetworkOutput, Tensors
from chainrule.training.config import TrainingConfig

LARGEST_ORDER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ModelConfig):
    """Settings of a feed-forward model."""

    order: int = 5  # n: the context is n−1 words
    direct: bool = False  # direct connections from x to the output
    hidden: int = 200
    dropout: float = 0.3
    locked: bool = False
    training: TrainingConfig = field(  # no recurrent state: many small steps train faster than few large ones
        default_factory=lambda: TrainingConfig(batch_size=16, bptt=35, learning_rate=3e-3)
    )

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        if not 2 <= self.order <= LARGEST_ORDER:
            raise ConfigError(f"model.order is {self.order}; choose 2 to {LARGEST_ORDER}")


class Feedforward(Network):
    """Concatenated word vectors, tanh layers, an output layer.

    The state is the previous (B, n−2) ids, initially `<s>`.
    """

    def __init__(self, config: Config, vocabulary: Vocabulary, counts: Floats | None) -> None:
        super().__init__()
        self.config, self.bos = config, vocabulary.bos
        D, E = config.hidden, config.embedding_width
        X = (config.order - 1) * E
        self.embedding = nn.Parameter(
            torch.empty(vocabulary.size, E).uniform_(-config.init_range, config.init_range)
        )
        self.layers = nn.ModuleList(_linear(config, X if i == 0 else D, D, True) for i in range(config.layers))
        # With tied weights the output reads P h + U x of the embedding width, else [h; x].
        self.project = _linear(config, D, E, False) if config.tie and D != E else None
        self.direct = _linear(config, X, E, False) if config.tie and config.direct else None
        width = E if config.tie else D + (X if config.direct else 0)
        self.output = make_output(config, width, vocabulary, self.embedding, counts)

    def start(self, rows: int) -> Tensors:
        """Initial state: `<s>` at all previous positions."""
        shape = (rows, self.config.order - 2)
        return (torch.full(shape, self.bos, dtype=torch.int64, device=self.embedding.device),)

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of the largest layer."""
        return float(max(layer.weight.numel() for layer in self.layers) * rows * T)

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """Read (B, T) ids; each prediction sees the current id and the n−2 before it."""
        c, T = self.config, ids.shape[1]
        context_ids = torch.cat([state[0], ids], dim=1)  # (B, n−2+T)
        x = self._windows(context_ids, T)  # (B, T, (n−1)E)
        h = x
        for i, layer in enumerate(self.layers):
            h = torch.tanh(layer(dropout.apply(h, c, self.training) if i else h))  # (B, T, D)
        hidden = dropout.apply(self._combine(h, x), c, self.training, c.output_dropout)
        return NetworkOutput(hidden, (context_ids[:, T:],))

    def _windows(self, context_ids: Tensor, T: int) -> Tensor:
        """x = [e_{k−n+1}; …; e_{k−1}] for each of the last T positions: (B, n−2+T) -> (B, T, (n−1)E)."""
        config = self.config
        E = dropout.embedding_rows(self.embedding, config.embedding_dropout, self.training)
        e = functional.embedding(context_ids, E)  # (B, n−2+T, E)
        e = dropout.apply(e, config, self.training, config.input_dropout)
        return torch.cat([e[:, i : i + T] for i in range(config.order - 1)], dim=-1)

    def _combine(self, h: Tensor, x: Tensor) -> Tensor:
        """Input of the output layer."""
        if not self.config.tie:
            return torch.cat([h, x], dim=-1) if self.config.direct else h  # (B, T, D + (n−1)E)
        projected = h if self.project is None else self.project(h)  # (B, T, E)
        return projected if self.direct is None else projected + self.direct(x)


def _linear(config: Config, inputs: int, outputs: int, bias: bool) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    initialize(layer.weight, config.init, config.init_range)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def candidates() -> list[Config]:
    """Configs for `compare`: one network that trains on a small text in half a minute."""
    return [with_settings(Config(hidden=128, dropout=0.4), epochs=8, learning_rate=4e-3, max_seconds=40.0)]


def facets(config: Config) -> dict[str, str | int]:
    """Settings shown in comparison tables."""
    return {"order": config.order, "width": config.hidden}


build = Feedforward
family = NeuralFamily(Config, build, candidates, facets)
