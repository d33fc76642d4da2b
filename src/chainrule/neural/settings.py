"""What every neural family can be told beside how it learns: embedding, dropout, output layer, first weights."""

from dataclasses import dataclass
from typing import Literal

from chainrule.errors import ConfigError
from chainrule.training.config import Training

OutputKind = Literal["softmax", "sampled", "nce", "adaptive"]
Initialization = Literal["xavier", "he", "orthogonal", "uniform", "normal"]

LARGEST = 1 << 16  # no layer is wider, no net deeper: refused before memory is taken
MOST_PARAMETERS = 1 << 33


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(Training):
    """Settings that all networks share."""

    hidden: int = 256  # width of the hidden layers; a recurrent net's last, where tied, is as wide as the embedding
    layers: int = 1
    embedding: int = 0  # width of the word vectors, 0: as wide as the hidden layers
    tie: bool = True  # one matrix for reading and for predicting words
    dropout: float = 0.2  # of layer outputs; the more special ones follow it where they are not set
    input_dropout: float | None = None  # of what the first layer reads
    output_dropout: float | None = None  # of what the output layer reads
    embedding_dropout: float = 0.0  # of whole word types (rows of the embedding)
    locked: bool = True  # variational dropout: one mask for all time steps
    output: OutputKind = "softmax"
    samples: int = 1024  # sampled, nce: noise words a batch
    cutoffs: tuple[int, ...] = ()  # adaptive: where the clusters begin; empty: chosen by size
    validation_tokens: int = 0  # language models: of the validation text, read while learning; 0: all of it
    init: Initialization = "xavier"
    init_range: float = 0.1  # of uniform weights and of word vectors

    def __post_init__(self) -> None:
        Training.__post_init__(self)
        for name in ("hidden", "layers", "samples"):
            if not 1 <= getattr(self, name) <= LARGEST:
                raise ConfigError(f"model.{name} is {getattr(self, name)}; choose 1 to {LARGEST}")
        if self.validation_tokens < 0:
            raise ConfigError(f"model.validation_tokens is {self.validation_tokens}; choose 0 or more")
        if not 0 <= self.embedding <= LARGEST:
            raise ConfigError(f"model.embedding is {self.embedding}; choose 0 to {LARGEST}")
        for name in ("dropout", "input_dropout", "output_dropout", "embedding_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"model.{name} is {value:g}; choose a value in [0, 1)")
        if not 0 < self.init_range < float("inf"):
            raise ConfigError(f"model.init_range is {self.init_range:g}; choose a number above 0")

    @property
    def embedding_width(self) -> int:
        """Width of the word vectors."""
        return self.embedding or self.hidden
