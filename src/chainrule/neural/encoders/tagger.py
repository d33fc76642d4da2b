"""Sequence tagger: an encoder with optional character CNN, and a CRF or independent softmaxes over tags.

s_t = W h_t + b,   p(y_1 … y_n | words) by a CRF or word by word (Lample et al. 2016, Ma & Hovy 2016)

The encoder reads `<s>` and `</s>` around the words, as in pre-training; these have no characters and no tag.
Notation: B rows, T words, K tags, N distinct words of a batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.config import check_fractions
from chainrule.errors import ConfigError
from chainrule.evaluation.tagging import Transitions
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.neural.config import LARGEST
from chainrule.neural.encoders.encoder import EncoderConfig, TaskNetwork, TextEncoder, add_boundaries
from chainrule.neural.layers import dropout
from chainrule.neural.layers.char_cnn import CharCNN, CharVocabulary
from chainrule.neural.layers.crf import CRF, IndependentTags
from chainrule.neural.network import Tensors
from chainrule.neural.weights import check_outputs
from chainrule.training.batches import pad_to_device
from chainrule.training.config import TrainingConfig
from chainrule.training.device import exact_inference, limit_threads


@dataclass(frozen=True, slots=True, kw_only=True)
class TagConfig(EncoderConfig):
    """Settings of a tagger."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "tie")
    crf: bool = True  # decode tags jointly by a CRF instead of independently
    characters: int = 50  # character features per word; 0: none
    rare_unknown: float = 0.5  # probability of reading a singleton as <unk> in training
    scheme: Literal["auto", "keep", "bioes", "iob2"] = "auto"  # in training; auto: bioes, keep: as given
    hidden: int = 400
    embedding: int = 100
    dropout: float = 0.5
    training: TrainingConfig = field(  # batch_size in sentences
        default_factory=lambda: TrainingConfig(batch_size=16, epochs=30, learning_rate=2e-3)
    )

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        self.check_longest(3)
        if not 0 <= self.characters <= LARGEST:
            raise ConfigError(f"model.characters is {self.characters}; choose 0 to {LARGEST} features")
        check_fractions(self, "model", "rare_unknown", includes_one=True)
        if self.output != "softmax":
            raise ConfigError(
                f"model.output is '{self.output}'; a tagger uses the full softmax: leave it at softmax"
            )


@dataclass(frozen=True, slots=True)
class TagBatch:
    """Padded sentences and tags."""

    inputs: Tensor  # (B, T + 2) ids, each row `<s>`, its words, `</s>`
    targets: Tensor  # (B, T) tags
    mask: Tensor  # (B, T) False on padding
    spellings: Tensor  # (N, L) characters of the distinct words
    word_index: Tensor  # (B, T) index of each word in `spellings`
    is_rare: Tensor | None = None  # (B, T + 2) singleton words
    starts: bool = True


class TagNetwork(TaskNetwork):
    """Encoder over word vectors and character features, a score for each tag, and a CRF."""

    def __init__(
        self, config: TagConfig, vocabulary: Vocabulary, characters: int, tags: int, allowed: Transitions | None
    ) -> None:
        super().__init__()
        self.config, self.unknown = config, vocabulary.unk
        self.spelling = (
            CharCNN(characters, config.characters, dropout.rate(config.input_dropout, config))
            if config.characters
            else None
        )
        self.reader = TextEncoder(config, vocabulary.size, config.characters)
        self.output = nn.Linear(config.hidden, tags)
        nn.init.zeros_(self.output.bias)
        masks = None if allowed is None else tuple(torch.from_numpy(mask) for mask in allowed)
        self.chain: CRF | IndependentTags = CRF(tags, masks) if config.crf else IndependentTags()

    def forward(self, ids: Tensor, mask: Tensor, spellings: Tensor, word_index: Tensor) -> Tensor:
        """(B, T + 2) inputs, (B, T) mask, (N, L) characters, (B, T) word indices -> (B, T, K) tag scores."""
        c, features = self.config, None
        if self.spelling is not None:
            character_features = functional.embedding(word_index, self.spelling(spellings)) * mask[..., None]
            features = functional.pad(character_features, (0, 0, 1, 1))  # (B, T + 2, F)  zero at `<s>` and `</s>`
        read_mask = functional.pad(mask, (2, 0), value=True)  # n words and two markers
        hidden = self.reader(ids, read_mask, features).hidden[:, 1:-1]  # (B, T, D)  without markers
        scores: Tensor = self.output(dropout.apply(hidden, c, self.training, c.output_dropout))
        return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCollator:
    """Collate sentences into a batch on the device; none is empty."""

    ids: Sequence[Ids]  # word ids of each sentence
    words: Sequence[Sequence[str]]  # surface forms
    tags: Sequence[Ids] | None  # None for prediction
    spellings: CharVocabulary | None
    vocabulary: Vocabulary
    device: torch.device
    is_rare: Mask | None = None  # (V,) singleton words of the training text; None for prediction

    def __call__(self, rows: Ids) -> TagBatch:
        """Build the batch of these rows."""
        indices = rows.tolist()
        sentences = [add_boundaries(self.ids[i], self.vocabulary) for i in indices]
        inputs, _ = pad_to_device(sentences, self.vocabulary.eos, self.device)
        gold = [np.zeros_like(self.ids[i]) if self.tags is None else self.tags[i] for i in indices]
        tags, mask = pad_to_device(gold, 0, self.device)
        is_rare = None
        if self.is_rare is not None:
            rare = [self.is_rare[ids].astype(np.int64) for ids in sentences]
            is_rare = pad_to_device(rare, 0, self.device)[0].bool()
        spellings, word_index = self._spell([self.words[i] for i in indices])
        return TagBatch(inputs, tags, mask, spellings, word_index, is_rare)

    def _spell(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """(N, L) characters of the distinct words, (B, T) index of each word among them; padding is index 0."""
        word_index: dict[str, int] = {}
        indices = [
            np.array([word_index.setdefault(word, len(word_index)) for word in words]) for words in sentences
        ]
        characters = (
            np.zeros((1, 1), dtype=np.int64) if self.spellings is None else self.spellings.ids(list(word_index))
        )
        return torch.from_numpy(characters).to(self.device), pad_to_device(indices, 0, self.device)[0]


def tag_loss(network: TagNetwork, batch: TagBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """−log p(tags | words) per word."""
    ids = batch.inputs
    if batch.is_rare is not None and network.unknown is not None and network.config.rare_unknown:
        is_dropped = torch.rand(ids.shape, device=ids.device) < network.config.rare_unknown
        ids = ids.masked_fill(batch.is_rare & is_dropped, network.unknown)
    scores = network(ids, batch.mask, batch.spellings, batch.word_index)
    nats = network.chain.nats(scores, batch.targets, batch.mask).sum() / batch.mask.sum()
    return nats, nats, ()


def best_tags(network: TagNetwork, batch: TagBatch) -> list[Ids]:
    """Most probable tag of each word; with a CRF, the most probable tag sequence."""
    with _tag_scores(network, batch) as scores:
        path, _ = network.chain.decode(scores, batch.mask)
    return _rows(path, batch.mask)


def confidences(network: TagNetwork, batch: TagBatch) -> list[Floats]:
    """(n,) per sentence: p(y_t | words) of the tags returned by `best_tags`."""
    with _tag_scores(network, batch) as scores:
        path, _ = network.chain.decode(scores, batch.mask)
        p = network.chain.marginals(scores, batch.mask).gather(2, path[:, :, None]).squeeze(2)
    return [check_outputs(row, network) for row in _rows(p.double(), batch.mask)]


def marginals(network: TagNetwork, batch: TagBatch) -> list[Floats]:
    """(n, K) per sentence: p(y_t = k | words)."""
    with _tag_scores(network, batch) as scores:
        p = network.chain.marginals(scores, batch.mask)
    return [check_outputs(row, network) for row in _rows(p.double(), batch.mask)]


@contextmanager
def _tag_scores(network: TagNetwork, batch: TagBatch) -> Iterator[Tensor]:
    """(B, T, K) tag scores, with threads limited for small batches."""
    with exact_inference(), limit_threads(network.largest_matmul(*batch.inputs.shape)):
        scores = network(batch.inputs, batch.mask, batch.spellings, batch.word_index)
        check_outputs(scores[batch.mask].double().cpu().numpy(), network, allow_neg_inf=False)
        yield scores


def _rows(values: Tensor, mask: Tensor) -> list[np.ndarray]:
    """Rows without padding."""
    lengths = mask.sum(dim=1).tolist()
    return [row[:n] for row, n in zip(values.cpu().numpy(), lengths, strict=True)]
