"""Encoder pre-training on plain text: bidirectional language models (ELMo) or masked words (BERT)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.neural.encoders.encoder import EncoderConfig, TaskNetwork, TextEncoder, architecture
from chainrule.neural.layers import dropout
from chainrule.neural.layers.output import make_output
from chainrule.neural.weights import check_outputs
from chainrule.training.config import TrainingConfig
from chainrule.training.device import device_of, exact_inference, limit_threads, use_all_threads

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # shares of the chosen words; the rest are kept (Devlin et al. 2019)
FIXED_SEED = 0  # of the masks in evaluation: the same at each call
LOG_PROBS_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig(EncoderConfig):
    """Settings of an encoder and its pre-training."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "frozen_vectors")
    mask: float = 0.15  # transformer: share of words to predict, at least one per piece
    directions: Literal["joined", "apart", "forward"] = "apart"
    layers: int = 2
    longest: int = 128  # tokens of a piece including `<s>` and `</s>`; longer lines are split
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(epochs=10, learning_rate=1e-3))

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.directions != "apart":
            raise ConfigError(
                f"model.directions is '{self.directions}'; pre-training needs independent "
                "forward and backward networks: use 'apart'"
            )
        if self.family != "transformer" and self.mask != 0.15:
            raise ConfigError(f"model.mask is not a setting of family '{self.family}', which masks no words")
        if not 0 < self.mask < 1:
            raise ConfigError(f"model.mask is {self.mask:g}; choose a value in (0, 1)")
        self.check_longest(2)
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; an encoder is trained with the full softmax")


def copy_encoder_weights(reader: TextEncoder, pretrained: TextEncoder) -> None:
    """Copy embeddings and layers of a pre-trained encoder; weights of additional features stay unchanged."""
    _check_fit(reader, pretrained)
    sources = dict(pretrained.named_parameters())
    with torch.no_grad():
        for name, target in reader.named_parameters():
            if not name.startswith("features."):
                source = sources[name]
                target[..., : source.shape[-1]].copy_(source)


def _check_fit(reader: TextEncoder, pretrained: TextEncoder) -> None:
    expected, actual = (
        architecture(part.config) | {"vocabulary": len(part.embedding)} for part in (reader, pretrained)
    )
    for fields in (expected, actual):
        if fields["layers"] == 1 and fields.get("directions") == "joined":
            fields["directions"] = "apart"  # equivalent with one layer
    names = [name for name in expected if expected[name] != actual.get(name)]
    if names:
        needs, has = (
            ", ".join(f"{name} {fields.get(name, 'none')}" for name in names) for fields in (expected, actual)
        )
        raise ConfigError(f"the pre-trained encoder does not fit: it has {has}, but the encoder here {needs}")


def maskable_words(vocabulary: Vocabulary) -> Mask:
    """(V,) mask of the ids that can be masked: predictable words, without `</s>`."""
    mask = vocabulary.predictable
    mask[vocabulary.eos] = False
    return mask


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Padded pieces of text and prediction targets."""

    inputs: Tensor  # (B, T)
    words: Tensor  # (B, T)  False on padding
    mask_features: Tensor | None  # (B, T, 1)  1 for masked words
    target_positions: Tensor  # (N,)  b·T + t; plus B·T for the backward half
    targets: Tensor  # (N,)
    mask: None = None  # all targets count
    starts: bool = True


class PretrainingNetwork(TaskNetwork):
    """Encoder with an output layer that predicts words."""

    predicts: ClassVar[tuple[str, ...]]  # kinds of predictions, in the order of their positions
    config: PretrainConfig

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary, width: int, features: int) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.reader = TextEncoder(config, vocabulary.size, features)
        E = config.embedding_width
        self.map = nn.Linear(width, E) if config.tie and width != E else None
        self.output = make_output(config, E if config.tie else width, vocabulary, self.reader.embedding, None)

    def collate(self, ids: Ids, mask: Mask, generator: torch.Generator | None = None) -> TextBatch:
        """(B, T) ids, (B, T) mask -> batch on the network's device; `generator` defaults to torch's global one."""
        raise NotImplementedError

    def prediction_vectors(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (…, width): prediction vectors, in the order of the batch's target positions."""
        raise NotImplementedError

    def forward(self, batch: TextBatch) -> Tensor:
        """Input of the output layer, (N, E), or (N, width) without weight tying."""
        c = self.config
        hidden = self.reader(batch.inputs, batch.words, batch.mask_features).hidden
        hidden = dropout.apply(hidden, c, self.training, c.output_dropout)
        vectors = self.prediction_vectors(hidden)[batch.target_positions]
        return vectors if self.map is None else self.map(vectors)

    def tensors(self, *arrays: Any) -> list[Tensor]:
        """Move arrays to the network's device."""
        return [torch.from_numpy(array).to(device_of(self)) for array in arrays]


class BidirectionalLM(PretrainingNetwork):
    """Bidirectional language model (ELMo, Peters et al. 2018): w_t predicts w_{t+1} forwards and w_{t−1} backwards.

    Both directions share embedding, output layer and projection. The forward half predicts w_1 … w_n and `</s>`,
    the backward half w_n … w_1; `<s>` is never predicted.
    """

    predicts = ("forward", "backward")

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary, config.hidden // 2, 0)

    def collate(self, ids: Ids, mask: Mask, generator: torch.Generator | None = None) -> TextBatch:
        """Targets of the forward half, then those of the backward half."""
        B, T = ids.shape
        known = mask & self.vocabulary.predictable[ids]
        b, t = np.nonzero(known[:, 1:])  # w_{t+1}, from t
        b2, t2 = np.nonzero(known[:, :-1] & mask[:, 1:])  # w_t, from t + 1
        positions = np.concatenate([b * T + t, B * T + b2 * T + t2 + 1])
        targets = np.concatenate([ids[b, t + 1], ids[b2, t2]])
        inputs, words, positions_, targets_ = self.tensors(ids, mask, positions, targets)
        return TextBatch(inputs, words, None, positions_, targets_)

    def prediction_vectors(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (2·B·T, D/2): all forward halves, then all backward ones."""
        return torch.cat([half.flatten(0, 1) for half in hidden.chunk(2, dim=-1)])


class MaskedLM(PretrainingNetwork):
    """Masked language model (BERT, Devlin et al. 2019), without next-sentence prediction.

    A masked word is read as `<s>` plus a learned feature vector, so that the embedding needs no extra row.
    """

    predicts = ("masked",)

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary, config.hidden, 1)

    def collate(self, ids: Ids, mask: Mask, generator: torch.Generator | None = None) -> TextBatch:
        """Choose the same share of words in each row; mask most of them, replace some, keep some."""
        possible = maskable_words(self.vocabulary)
        known = mask & possible[ids]
        order_draws, kind_draws = (torch.rand(ids.shape, generator=generator).numpy() for _ in range(2))
        count = known.sum(axis=1)
        number = np.clip(np.rint(self.config.mask * count), 1, count)  # at least one, as in BERT
        rank = np.where(known, order_draws, np.inf).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        is_chosen = rank < number[:, None]
        is_masked = is_chosen & (kind_draws < MASK_SHARE)
        is_replaced = is_chosen & (kind_draws >= 1 - RANDOM_SHARE)
        word_ids = np.flatnonzero(possible)
        random_words = word_ids[torch.randint(len(word_ids), ids.shape, generator=generator).numpy()]
        inputs = np.where(is_masked, self.vocabulary.bos, np.where(is_replaced, random_words, ids))
        mask_features = is_masked[..., None].astype(np.float32)
        positions = np.flatnonzero(is_chosen)
        return TextBatch(*self.tensors(inputs, mask, mask_features, positions, ids.flatten()[positions]))

    def prediction_vectors(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B·T, D)."""
        return hidden.flatten(0, 1)


def build(config: PretrainConfig, vocabulary: Vocabulary) -> PretrainingNetwork:
    """Build an untrained network of the configured family."""
    return (MaskedLM if config.family == "transformer" else BidirectionalLM)(config, vocabulary)


def pretraining_loss(network: Any, batch: TextBatch, state: Any) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Mean of −log p over all predictions, of both directions if there are two."""
    nats = network.output.loss(network(batch), batch.targets)
    return nats, nats, ()


@dataclass(frozen=True, slots=True)
class PredictionMetrics:
    """Prediction quality on a text."""

    tokens: int  # predicted tokens
    nats: float  # per token
    accuracy: float  # share of targets that were the most probable word

    @property
    def perplexity(self) -> float:
        """Perplexity of the predicted tokens."""
        return float(np.exp(min(self.nats, 700)))


def evaluate(network: PretrainingNetwork, texts: Iterable[tuple[Ids, Mask]]) -> dict[str, PredictionMetrics]:
    """Evaluate on batches of (B, T) ids and masks by kind of prediction; masked words are the same at each call."""
    names = network.predicts
    sums = np.zeros((len(names), 3))  # tokens, nats, right
    generator = torch.Generator().manual_seed(FIXED_SEED)
    for ids, mask in texts:
        batch = network.collate(ids, mask, generator)
        kind = (batch.target_positions // batch.inputs.numel()).cpu().numpy()
        for k, values in enumerate((np.ones(len(kind)), *_scores(network, batch))):
            sums[:, k] += np.bincount(kind, values, minlength=len(names))
    rows = zip(names, sums.tolist(), strict=True)
    return {name: PredictionMetrics(int(n), nats / n, right / n) for name, (n, nats, right) in rows if n}


def mean_nats(figures: dict[str, PredictionMetrics]) -> float:
    """Mean nats per token over all predictions."""
    return sum(f.tokens * f.nats for f in figures.values()) / sum(f.tokens for f in figures.values())


def _scores(network: PretrainingNetwork, batch: TextBatch) -> tuple[Floats, Floats]:
    """(N,) −log p(target), (N,) 1 if the target is the most probable word."""
    rows = max(1, LOG_PROBS_AT_ONCE // network.vocabulary.size)
    log_probs, right = [], []
    with exact_inference(), limit_threads(network.largest_matmul(*batch.inputs.shape)):
        for hidden, targets in zip(network(batch).split(rows), batch.targets.split(rows), strict=True):
            with use_all_threads(hidden.numel() * network.vocabulary.size):
                log_p = network.output.log_probs(hidden)
            log_probs.append(log_p.gather(1, targets[:, None])[:, 0])
            right.append(log_p.argmax(dim=-1) == targets)
    values = check_outputs(torch.cat(log_probs).double().cpu().numpy(), network)
    return -values, torch.cat(right).double().cpu().numpy()
