"""Encoders of whole texts: recurrent (uni- or bidirectional) and Transformer, with word embeddings."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.config import check_fractions
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.cells import ENCODER_FAMILIES, get_cell
from chainrule.neural.config import check_sizes
from chainrule.neural.layers import dropout
from chainrule.neural.layers.positions import Rotation
from chainrule.neural.layers.transformer_block import BlockConfig, TransformerBlock, add_positions, make_positions
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import RecurrentLayer
from chainrule.training.config import TrainingConfig

SHAPE_OF_ALL: Final = ("family", "hidden", "layers", "embedding")
SHAPE_OF_TRANSFORMERS: Final = ("heads", "positions", "norm", "feedforward", "activation", "bias")
SHAPE_OF_RECURRENT: Final = ("directions",)
OF_TRANSFORMERS: Final = (*SHAPE_OF_TRANSFORMERS, "attention_dropout")
OF_RECURRENT: Final = (*SHAPE_OF_RECURRENT, "weight_dropout")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig(BlockConfig):
    """Settings of an encoder; settings without effect on the chosen family are rejected."""

    without_effect: ClassVar[tuple[str, ...]] = ("samples", "cutoffs")
    family: str = "lstm"  # one of ENCODER_FAMILIES
    directions: Literal["joined", "apart", "forward"] = "joined"  # layers read both, or only their own direction
    weight_dropout: float = 0.0  # DropConnect on the recurrent matrices
    frozen_vectors: bool = False  # do not train pre-trained word vectors
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    locked: bool = False
    longest: int = 256  # maximum tokens of a text for a Transformer, including `<s>` and `</s>`

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        if self.family not in ENCODER_FAMILIES:
            raise ConfigError(f"model.family is '{self.family}'; choose one of {', '.join(ENCODER_FAMILIES)}")
        is_transformer = self.family == "transformer"
        inapplicable = OF_RECURRENT if is_transformer else OF_TRANSFORMERS
        for field in fields(self):
            is_default = getattr(self, field.name) == field.default
            if field.name in inapplicable and not is_default:
                raise ConfigError(f"model.{field.name} is not a setting of family '{self.family}'; leave it out")
            if field.name in self.without_effect and not is_default:
                raise ConfigError(f"model.{field.name} has no effect in this task; leave it out")
        if self.training.bptt != TrainingConfig().bptt:  # texts are processed whole
            raise ConfigError("training.bptt has no effect in this task; leave it out")
        check_fractions(self, "model", "weight_dropout")
        check_sizes(self, 1, "longest")
        if is_transformer:
            self.check_heads()
        elif self.directions != "forward" and self.hidden % 2:
            raise ConfigError(f"model.hidden is {self.hidden}; two directions share it: choose an even number")

    def check_longest(self, least: int) -> None:
        """Raise ConfigError if the maximum length leaves no room between `<s>` and `</s>`."""
        if self.longest < least:
            raise ConfigError(f"model.longest is {self.longest}; choose {least} or more")


def architecture(config: EncoderConfig) -> dict[str, object]:
    """Return the settings that two encoders must share to exchange weights."""
    is_transformer = config.family == "transformer"
    names = (*SHAPE_OF_ALL, *(SHAPE_OF_TRANSFORMERS if is_transformer else SHAPE_OF_RECURRENT))
    settings = {name: getattr(config, name) for name in names} | {"embedding": config.embedding_width}
    if is_transformer:
        settings["feedforward"] = config.inner_width
        if config.positions == "learned":
            settings["longest"] = config.longest  # size of the position table
    return settings


def add_boundaries(words: Ids, vocabulary: Vocabulary) -> Ids:
    """(n,) -> (n + 2,) Add `<s>` and `</s>` around the words of a text."""
    return np.concatenate([[vocabulary.bos], words, [vocabulary.eos]]).astype(np.int64)


class EncoderOutput(NamedTuple):
    """Output of an encoder."""

    hidden: Tensor  # (B, T, D)  zero on padding; bidirectional: forward half, then backward half
    last: Tensor  # (B, D)  final state of each direction; Transformer: output at the last token


def make_layer(inputs: int, width: int, config: EncoderConfig) -> RecurrentLayer:
    """Create one recurrent layer of the configured family."""
    common: dict[str, Any] = {name: getattr(config, name) for name in ("init", "init_range", "weight_dropout")}
    cell = get_cell(config.family)
    return cell.layer(inputs, width, cell.config(**common))


class RecurrentEncoder(nn.Module):
    """Stacked forward and, unless `directions` is 'forward', backward recurrent layers."""

    def __init__(self, inputs: int, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        n_directions = 1 if config.directions == "forward" else 2
        D = config.hidden // n_directions  # width of one direction
        layer_inputs = config.hidden if config.directions == "joined" else D
        widths = [inputs, *[layer_inputs] * (config.layers - 1)]
        self.forwards = nn.ModuleList(make_layer(i, D, config) for i in widths)
        self.backwards = nn.ModuleList(make_layer(i, D, config) for i in widths if n_directions == 2)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        """(B, T, in), (B, T) mask -> encoder output; padding has no effect on the words."""
        order = reversed_positions(mask)
        fwd = bwd = x
        for k, layer in enumerate(self.forwards):
            if k:
                fwd, bwd = self._between(fwd, bwd)
            f = run_layer(layer, fwd)
            b = reorder(run_layer(self.backwards[k], reorder(bwd, order)), order) if self.backwards else f
            fwd, bwd = f, b
        parts = [fwd, bwd] if self.backwards else [fwd]
        hidden = torch.cat(parts, dim=-1) * mask[..., None]
        ends = [last_outputs(fwd, mask), bwd[:, 0]] if self.backwards else [last_outputs(fwd, mask)]
        return EncoderOutput(hidden, torch.cat(ends, dim=-1))

    def _between(self, forward_out: Tensor, backward_out: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs of the next layer in both directions."""
        c = self.config
        if c.directions == "joined":
            joined = dropout.apply(torch.cat([forward_out, backward_out], dim=-1), c, self.training)
            return joined, joined
        return dropout.apply(forward_out, c, self.training), dropout.apply(backward_out, c, self.training)


def run_layer(layer: RecurrentLayer, x: Tensor) -> Tensor:
    """Run a layer from its zero state: (B, T, in) -> (B, T, D)."""
    zeros = x.new_zeros(len(x), layer.width)
    outputs, _ = layer(x.transpose(0, 1), (zeros,) * layer.n_states)
    return outputs.transpose(0, 1)


def reversed_positions(mask: Tensor) -> Tensor:
    """(B, T) mask -> (B, T) positions that reverse the words of each row and keep its padding in place."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - positions, positions)


def reorder(x: Tensor, positions: Tensor) -> Tensor:
    """Reorder the time axis of (B, T, D) by (B, T) positions."""
    return x.gather(1, positions[..., None].expand_as(x))


def last_outputs(x: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) mask -> (B, D) output at the last word of each row."""
    last = (mask.sum(dim=1) - 1)[:, None, None]
    return x.gather(1, last.expand(-1, 1, x.shape[2]))[:, 0]


class TransformerEncoder(nn.Module):
    """Transformer encoder with bidirectional self-attention."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.learned = make_positions(config, config.longest)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, bias=config.bias) if config.norm == "pre" else None

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        """(B, T, D), (B, T) mask -> encoder output; adds positions unless they are rotary."""
        c, (B, T, D) = self.config, x.shape
        positions = torch.arange(T, device=x.device)
        rotation = Rotation.at(positions, D // c.heads, x.dtype) if c.positions == "rotary" else None
        x = add_positions(x, positions, self.learned, c)
        x = dropout.apply(x, c, self.training, c.input_dropout)
        empty_cache = x.new_empty(B, 0, c.heads, D // c.heads)
        for block in self.blocks:
            x, _, _ = block(x, (empty_cache, empty_cache), rotation, mask[:, None, None])
        x = (x if self.norm is None else self.norm(x)) * mask[..., None]
        return EncoderOutput(x, last_outputs(x, mask))


class TextEncoder(nn.Module):
    """Word embeddings, optionally with additional features per word, and an encoder."""

    def __init__(self, config: EncoderConfig, size: int, features: int = 0) -> None:
        super().__init__()
        E, is_transformer = config.embedding_width, config.family == "transformer"
        self.config, self.scale = config, math.sqrt(E)
        self.embedding = nn.Parameter(torch.empty(size, E).normal_(0.0, 1 / self.scale))
        added = config.hidden if is_transformer else 0  # a Transformer adds features, an RNN concatenates them
        self.widen = nn.Linear(E, added, bias=False) if is_transformer and added != E else None
        self.features = nn.Linear(features, added, bias=False) if is_transformer and features else None
        self.encoder: nn.Module = (
            TransformerEncoder(config) if is_transformer else RecurrentEncoder(E + features, config)
        )
        self.embedding.requires_grad_(not config.frozen_vectors)

    @property
    def width(self) -> int:
        """Output width D."""
        return self.config.hidden

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of the largest matrix product: of a block, or of one step of a recurrent layer."""
        c = self.config
        if c.family == "transformer":
            return float(c.hidden * c.inner_width * rows * T)
        return float(max(layer.R.numel() for layer in self.encoder.forwards) * rows)

    def load_word_vectors(self, vectors: Floats) -> None:
        """Initialize the embeddings with pre-trained vectors (V, E), scaled so that the input has variance 1."""
        if vectors.shape != (expected := tuple(self.embedding.shape)):
            raise ConfigError(f"the word vectors are {vectors.shape}, but the encoder reads {expected}")
        deviation = float(vectors.std(dtype=np.float64)) or 1.0  # constant vectors cannot be scaled
        with torch.no_grad():
            self.embedding.copy_(torch.from_numpy(vectors / (deviation * self.scale)))

    def forward(self, ids: Tensor, mask: Tensor, features: Tensor | None = None) -> EncoderOutput:
        """(B, T) ids, (B, T) mask, (B, T, F) features -> encoder output (B, T, D)."""
        c = self.config
        E = dropout.embedding_rows(self.embedding, c.embedding_dropout, self.training)
        x = functional.embedding(ids, E) * self.scale  # unit variance, like positions and features
        if c.family == "transformer":
            x = x if self.widen is None else self.widen(x)
            x = x if self.features is None or features is None else x + self.features(features)
        else:
            x = x if features is None else torch.cat([x, features], dim=-1)
            x = dropout.apply(x, c, self.training, c.input_dropout)
        output: EncoderOutput = self.encoder(x, mask)
        return output


class TaskNetwork(nn.Module):
    """Network of a task on top of an encoder; texts are independent of each other."""

    reader: TextEncoder

    def start(self, rows: int) -> Tensors:
        """Return an empty state: nothing is carried from text to text."""
        return ()

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of the largest matrix product of the encoder over (rows, T) ids."""
        return self.reader.largest_matmul(rows, T)
