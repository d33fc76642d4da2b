"""The feed-forward model (Bengio et al. 2003): the last n−1 words, side by side, predict the next.

    x = [e_{k−n+1}; …; e_{k−1}],  h = tanh(W_h x + b_h),  p = softmax(W_o h + b_o)

Lives here: the window and the layers. Not here: the softmax (output.py), the same net with its
gradients worked by hand (gradients/feedforward.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural import dropout
from chainrule.neural.family import NeuralFamily
from chainrule.neural.initialization import fill
from chainrule.neural.network import Features, Network, Tensors
from chainrule.neural.output import make_output
from chainrule.neural.settings import Architecture

LARGEST_ORDER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Architecture):
    """What can be chosen."""

    order: int = 5  # n: it reads the last n−1 words
    direct: bool = False  # x is connected to the output, past h
    hidden: int = 200
    dropout: float = 0.3
    locked: bool = False
    batch_size: int = 16
    bptt: int = 35  # nothing is carried over but words: many small steps learn faster than few large ones
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        Architecture.__post_init__(self)
        if not 2 <= self.order <= LARGEST_ORDER:
            raise ConfigError(f"model.order is {self.order}; choose 2 to {LARGEST_ORDER}")


class Feedforward(Network):
    """A window of word vectors, tanh layers, an output layer.

    Its state is (B, n−2) ids, read before those it is given; `<s>` where nothing was.
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
        # Tied, all that predicts must be as wide as a word vector: W_o (P h + U x). Else W_o [h; x].
        self.project = _linear(config, D, E, False) if config.tie and D != E else None
        self.direct = _linear(config, X, E, False) if config.tie and config.direct else None
        width = E if config.tie else D + (X if config.direct else 0)
        self.output = make_output(config, width, vocabulary, self.embedding, counts)

    def start(self, rows: int) -> Tensors:
        """As though all that came before were `<s>`."""
        shape = (rows, self.config.order - 2)
        return (torch.full(shape, self.bos, dtype=torch.int64, device=self.embedding.device),)

    def work(self, rows: int, T: int) -> float:
        """Of the largest layer."""
        return float(max(layer.weight.numel() for layer in self.layers) * rows * T)

    def forward(self, ids: Tensor, state: Tensors) -> Features:
        """Read (B, T) ids; each prediction sees the id read last and the n−2 before it."""
        T = ids.shape[1]
        read = torch.cat([state[0], ids], dim=1)  # (B, n−2+T)
        x = self._windows(read, T)  # (B, T, (n−1)E)
        h = x
        for i, layer in enumerate(self.layers):
            h = torch.tanh(layer(self._drop(h, self.config.dropout) if i else h))  # (B, T, D)
        return Features(self._drop(self._combine(h, x), self._output_dropout), (read[:, T:],))

    def _windows(self, read: Tensor, T: int) -> Tensor:
        """x = [e_{k−n+1}; …; e_{k−1}] for each of the last T: (B, n−2+T) -> (B, T, (n−1)E)."""
        config = self.config
        E = dropout.word_types(self.embedding, config.embedding_dropout, self.training)
        first = config.dropout if config.input_dropout is None else config.input_dropout
        e = self._drop(functional.embedding(read, E), first)  # (B, n−2+T, E)
        return torch.cat([e[:, i : i + T] for i in range(config.order - 1)], dim=-1)

    def _combine(self, h: Tensor, x: Tensor) -> Tensor:
        """What the output layer reads."""
        if not self.config.tie:
            return torch.cat([h, x], dim=-1) if self.config.direct else h  # (B, T, D + (n−1)E)
        made = h if self.project is None else self.project(h)  # (B, T, E)
        return made if self.direct is None else made + self.direct(x)

    @property
    def _output_dropout(self) -> float:
        chosen = self.config.output_dropout
        return self.config.dropout if chosen is None else chosen

    def _drop(self, x: Tensor, p: float) -> Tensor:
        return (dropout.locked if self.config.locked else dropout.units)(x, p, self.training)


def _linear(config: Config, inputs: int, outputs: int, bias: bool) -> nn.Linear:
    made = nn.Linear(inputs, outputs, bias=bias)
    fill(made.weight, config.init, config.init_range)
    if bias:
        nn.init.zeros_(made.bias)
    return made


def build(config: Config, vocabulary: Vocabulary, counts: Floats | None) -> Network:
    """The network with its first weights; `counts` (V,) of the training text, None where they will be loaded."""
    return Feedforward(config, vocabulary, counts)


def candidates() -> list[Config]:
    """What `compare` trains: one net that learns a small text in half a minute."""
    return [Config(hidden=128, dropout=0.4, epochs=8, learning_rate=4e-3, max_seconds=40.0)]


def facets(config: Config) -> dict[str, str | int]:
    """Order and width."""
    return {"order": config.order, "width": config.hidden}


family = NeuralFamily(Config, build, candidates, facets)
