"""Settings shared by all neural models: embedding, dropout, output layer, initialization."""

from dataclasses import dataclass, field
from typing import Literal

from chainrule.config import check_fractions, setting
from chainrule.errors import ConfigError
from chainrule.training.config import TrainingConfig

OutputKind = Literal["softmax", "sampled", "nce", "adaptive"]
Initialization = Literal["xavier", "he", "orthogonal", "uniform", "normal"]

LARGEST = 1 << 16  # limit of widths and depths, checked before memory is allocated
MOST_PARAMETERS = 1 << 33


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Settings shared by all networks, and those of their training."""

    training: TrainingConfig = field(default_factory=TrainingConfig)

    hidden: int = setting(  # the last layer of a tied recurrent network has the embedding width
        256, "Neural models: size of the hidden layers."
    )
    layers: int = setting(1, "Neural models: number of hidden layers.")
    embedding: int = setting(0, "Neural models: embedding size; 0 uses the hidden size.")
    tie: bool = setting(True, "Neural models: tie input embeddings and output weights.", option="--tie/--no-tie")
    dropout: float = setting(0.2, "Neural models: dropout probability.")  # default of the other dropout rates
    input_dropout: float | None = None  # on the inputs of the first layer
    output_dropout: float | None = None  # on the inputs of the output layer
    embedding_dropout: float = 0.0  # of whole embedding rows (word types)
    locked: bool = True  # variational dropout: one mask for all time steps
    output: OutputKind = "softmax"
    samples: int = 1024  # sampled, nce: noise words per batch
    cutoffs: tuple[int, ...] = ()  # adaptive: start ranks of the clusters; empty: automatic
    validation_tokens: int = 0  # language models: validation tokens used during training; 0: all
    init: Initialization = setting(
        "xavier", "Weight initialization (neural models): xavier, he, orthogonal, uniform or normal."
    )
    init_range: float = 0.1  # of uniform weights and word vectors

    def __post_init__(self) -> None:
        check_sizes(self, 1, "hidden", "layers", "samples")
        if self.validation_tokens < 0:
            raise ConfigError(f"model.validation_tokens is {self.validation_tokens}; choose 0 or more")
        check_sizes(self, 0, "embedding")
        check_fractions(self, "model", "dropout", "input_dropout", "output_dropout", "embedding_dropout")
        if not 0 < self.init_range < float("inf"):
            raise ConfigError(f"model.init_range is {self.init_range:g}; choose a number above 0")

    @property
    def embedding_width(self) -> int:
        """Width of the word vectors."""
        return self.embedding or self.hidden


def check_sizes(config: object, least: int, *names: str) -> None:
    """Raise ConfigError for a setting below `least` or above `LARGEST`."""
    for name in names:
        if not least <= getattr(config, name) <= LARGEST:
            raise ConfigError(f"model.{name} is {getattr(config, name)}; choose {least} to {LARGEST}")
