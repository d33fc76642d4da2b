"""Reading a whole text at once: each word's vector knows what stands before it and after it.

Lives here: the recurrent encoder in one or two directions, the Transformer encoder, the reader that puts word
vectors before either, and which settings decide its shape. Not here: what is predicted from it (tags, labels,
another text); a language model, which may not see what is ahead (recurrent.py, transformer.py).
"""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural import dropout, gru, lstm, rnn
from chainrule.neural.block import Block, BlockConfig, chosen, drop
from chainrule.neural.initialization import fill
from chainrule.neural.positions import Learned, Rotation, sinusoidal
from chainrule.neural.recurrent import Layer
from chainrule.neural.settings import LARGEST

Family = Literal["rnn", "lstm", "gru", "transformer"]
SHAPE_OF_ALL: Final = ("family", "hidden", "layers", "embedding")
SHAPE_OF_TRANSFORMERS: Final = ("heads", "positions", "norm", "feedforward", "activation", "bias")
SHAPE_OF_RECURRENT: Final = ("directions",)
OF_TRANSFORMERS: Final = (*SHAPE_OF_TRANSFORMERS, "attention_dropout")
OF_RECURRENT: Final = (*SHAPE_OF_RECURRENT, "weight_dropout")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig(BlockConfig):
    """Settings of whatever reads whole texts; those that change nothing there cannot be set."""

    without_effect: ClassVar[tuple[str, ...]] = ("bptt", "samples", "cutoffs")  # a text is read and learnt at once
    family: Family = "lstm"
    directions: Literal["joined", "apart", "forward"] = "joined"  # both feed the next layer, each its own, or one
    weight_dropout: float = 0.0  # of the recurrent matrices
    frozen_vectors: bool = False  # those learnt elsewhere stay as they are
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    locked: bool = False
    longest: int = 256  # tokens of a text, its signs `<s>` and `</s>` among them, that a Transformer can read

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        is_transformer = self.family == "transformer"
        foreign = OF_RECURRENT if is_transformer else OF_TRANSFORMERS
        for field in fields(self):
            is_usual = getattr(self, field.name) == field.default
            if field.name in foreign and not is_usual:
                raise ConfigError(f"model.{field.name} is no setting of family '{self.family}'; leave it out")
            if field.name in self.without_effect and not is_usual:
                raise ConfigError(
                    f"model.{field.name} is no setting of this task, it changes nothing; leave it out"
                )
        if not 0 <= self.weight_dropout < 1:
            raise ConfigError(f"model.weight_dropout is {self.weight_dropout:g}; choose a value in [0, 1)")
        if not 1 <= self.longest <= LARGEST:
            raise ConfigError(f"model.longest is {self.longest}; choose 1 to {LARGEST}")
        if is_transformer:
            self.check_blocks()
        elif self.directions != "forward" and self.hidden % 2:
            raise ConfigError(f"model.hidden is {self.hidden}; two directions share it: choose an even number")

    def check_longest(self, least: int) -> None:
        """Refuse a length that leaves no room between `<s>` and `</s>`."""
        if self.longest < least:
            raise ConfigError(f"model.longest is {self.longest}; choose {least} or more")


def shape(config: EncoderConfig) -> dict[str, object]:
    """The settings that two encoders must share for one to take over the other's weights."""
    is_transformer = config.family == "transformer"
    names = (*SHAPE_OF_ALL, *(SHAPE_OF_TRANSFORMERS if is_transformer else SHAPE_OF_RECURRENT))
    found = {name: getattr(config, name) for name in names} | {"embedding": config.embedding_width}
    if is_transformer:
        found["feedforward"] = config.feedforward or 4 * config.hidden
        if config.positions == "learned":
            found["longest"] = config.longest  # a vector for each position
    return found


def framed(words: Ids, vocabulary: Vocabulary) -> Ids:
    """(n,) -> (n + 2,) `<s>`, the words, `</s>`: how every task shows a text to its encoder, pre-trained or not."""
    return np.concatenate([[vocabulary.bos], words, [vocabulary.eos]]).astype(np.int64)


class Read(NamedTuple):
    """What an encoder makes of a text."""

    hidden: Tensor  # (B, T, D)  zero behind a row's end; two directions: the forward half, then the backward one
    last: Tensor  # (B, D)  the last state of each direction; of a Transformer that at the row's last token


def make_layer(inputs: int, width: int, config: EncoderConfig) -> Layer:
    """One recurrent layer of the family."""
    common: dict[str, Any] = {name: getattr(config, name) for name in ("init", "init_range", "weight_dropout")}
    if config.family == "lstm":
        return lstm.LSTMLayer(inputs, width, lstm.Config(**common))
    if config.family == "gru":
        return gru.GRULayer(inputs, width, gru.Config(**common))
    return rnn.ElmanLayer(inputs, width, rnn.Config(**common))


class Recurrent(nn.Module):
    """Layers that read from the first word on, and such that read from the last word back."""

    def __init__(self, inputs: int, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        ways = 1 if config.directions == "forward" else 2
        D = config.hidden // ways  # of one direction
        between = config.hidden if config.directions == "joined" else D
        widths = [inputs, *[between] * (config.layers - 1)]
        self.forwards = nn.ModuleList(make_layer(i, D, config) for i in widths)
        self.backwards = nn.ModuleList(make_layer(i, D, config) for i in widths if ways == 2)

    def forward(self, x: Tensor, mask: Tensor) -> Read:
        """(B, T, in), (B, T) True where there is a word: rows end, and what is behind their end changes nothing."""
        turned = reversal(mask)
        ahead = back = x
        for k, layer in enumerate(self.forwards):
            if k:
                ahead, back = self._between(ahead, back)
            f = run(layer, ahead)
            b = turn(run(self.backwards[k], turn(back, turned)), turned) if self.backwards else f
            ahead, back = f, b
        parts = [ahead, back] if self.backwards else [ahead]
        hidden = torch.cat(parts, dim=-1) * mask[..., None]
        ends = [at_end(ahead, mask), back[:, 0]] if self.backwards else [at_end(ahead, mask)]
        return Read(hidden, torch.cat(ends, dim=-1))

    def _between(self, ahead: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        """What the next layers of both directions read."""
        c = self.config
        if c.directions == "joined":
            joined = drop(torch.cat([ahead, back], dim=-1), c.dropout, c, self.training)
            return joined, joined
        return drop(ahead, c.dropout, c, self.training), drop(back, c.dropout, c, self.training)


def run(layer: Layer, x: Tensor) -> Tensor:
    """All outputs of a layer from its zero state: (B, T, in) -> (B, T, D)."""
    zeros = x.new_zeros(len(x), layer.width)
    outputs, _ = layer(x.transpose(0, 1), (zeros,) * layer.memories)
    return outputs.transpose(0, 1)


def reversal(mask: Tensor) -> Tensor:
    """(B, T) -> (B, T) places: row b's words from its last to its first, then the padding as it stands."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)


def turn(x: Tensor, places: Tensor) -> Tensor:
    """(B, T, D) -> the same with the words of each row in this order."""
    return x.gather(1, places[..., None].expand_as(x))


def at_end(x: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D) each row's last."""
    last = (mask.sum(dim=1) - 1)[:, None, None]
    return x.gather(1, last.expand(-1, 1, x.shape[2]))[:, 0]


class Blocks(nn.Module):
    """Every word attends to every other of its text."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.learned = Learned(config.longest, config.hidden) if config.positions == "learned" else None
        if self.learned is not None:
            fill(self.learned.table, "normal", config.init_range)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, bias=config.bias) if config.norm == "pre" else None

    def forward(self, x: Tensor, mask: Tensor) -> Read:
        """(B, T, D), (B, T): positions are added here, unless queries and keys are turned by them."""
        c, (B, T, D) = self.config, x.shape
        positions = torch.arange(T, device=x.device)
        rotation = None
        if c.positions == "rotary":
            rotation = Rotation.at(positions, D // c.heads, x.dtype)
        elif c.positions == "sinusoidal":
            x = x + sinusoidal(positions, D, x.dtype)
        elif self.learned is not None:
            x = x + self.learned(positions)
        x = drop(x, chosen(c.input_dropout, c), c, self.training)
        nothing = x.new_empty(B, 0, c.heads, D // c.heads)
        for block in self.blocks:
            x, _, _ = block(x, (nothing, nothing), rotation, mask[:, None, None])
        x = (x if self.norm is None else self.norm(x)) * mask[..., None]
        return Read(x, at_end(x, mask))


class Reader(nn.Module):
    """Word vectors, perhaps with other features of each word, and an encoder over them."""

    def __init__(self, config: EncoderConfig, size: int, features: int = 0) -> None:
        super().__init__()
        E, is_transformer = config.embedding_width, config.family == "transformer"
        self.config, self.scale = config, math.sqrt(E)
        self.embedding = nn.Parameter(torch.empty(size, E).normal_(0.0, 1 / self.scale))
        added = config.hidden if is_transformer else 0  # features are added to its vectors, put beside a layer's
        self.widen = nn.Linear(E, added, bias=False) if is_transformer and added != E else None
        self.features = nn.Linear(features, added, bias=False) if is_transformer and features else None
        self.encoder: nn.Module = Blocks(config) if is_transformer else Recurrent(E + features, config)
        self.embedding.requires_grad_(not config.frozen_vectors)

    @property
    def width(self) -> int:
        """D of what it gives."""
        return self.config.hidden

    def work(self, rows: int, T: int) -> float:
        """Multiplications of its largest product: of a block, or of one time step, for which the next one waits."""
        c = self.config
        if c.family == "transformer":
            return float(c.hidden * (c.feedforward or 4 * c.hidden) * rows * T)
        return float(max(layer.R.numel() for layer in self.encoder.forwards) * rows)

    def take_vectors(self, vectors: Floats) -> None:
        """Make given ones, (V, E), the first word vectors, scaled so that what the encoder reads has variance 1."""
        if vectors.shape != (wanted := tuple(self.embedding.shape)):
            raise ConfigError(f"the word vectors are {vectors.shape}, and the encoder reads {wanted}")
        deviation = float(vectors.std(dtype=np.float64)) or 1.0  # where all are alike there is nothing to scale
        with torch.no_grad():
            self.embedding.copy_(torch.from_numpy(vectors / (deviation * self.scale)))

    def forward(self, ids: Tensor, mask: Tensor, features: Tensor | None = None) -> Read:
        """(B, T) ids, (B, T) True where there is a word, (B, T, F) -> (B, T, D) and more."""
        c = self.config
        E = dropout.word_types(self.embedding, c.embedding_dropout, self.training)
        x = functional.embedding(ids, E) * self.scale  # of variance 1, as positions and features are
        if c.family == "transformer":
            x = x if self.widen is None else self.widen(x)
            x = x if self.features is None or features is None else x + self.features(features)
        else:
            x = x if features is None else torch.cat([x, features], dim=-1)
            x = drop(x, chosen(c.input_dropout, c), c, self.training)
        found: Read = self.encoder(x, mask)
        return found
