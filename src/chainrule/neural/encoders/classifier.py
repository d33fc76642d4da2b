"""Text classifier: an encoder, pooling of its outputs into one vector, and a softmax over the labels.

A text is read as `<s> words </s>`, as in pre-training. Mean, max and attention pool over the words and `</s>` (so
that an empty text has something to pool), not over `<s>`. `last` is the final state of each direction, or the
Transformer's output at `</s>`. Notation: B texts, T tokens including both markers, D width, K labels, N texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.config import check_fractions
from chainrule.data.encoded import batches_by_length
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.encoders.encoder import EncoderConfig, EncoderOutput, TaskNetwork, TextEncoder
from chainrule.neural.layers import dropout
from chainrule.neural.layers.initialization import initialize
from chainrule.neural.network import Tensors
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.batches import pad_to_device
from chainrule.training.config import TrainingConfig
from chainrule.training.device import device_of, exact_inference, limit_threads

BATCH_SIZE = 64  # texts per batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyConfig(EncoderConfig):
    """Settings of a text classifier."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "tie")
    pooling: Literal["last", "mean", "max", "attention"] = "max"  # over the outputs at words and `</s>`
    class_weights: Literal["none", "balanced"] = "none"  # balanced: loss weight N / (K n_c) of label c
    label_smoothing: float = 0.0  # ε: probability mass spread over all labels
    unknown: float = 0.1  # share of words replaced by `<unk>` in training, so that `<unk>` gets a vector
    hidden: int = 200
    embedding: int = 100
    dropout: float = 0.5
    longest: int = 256  # tokens of a text including `<s>` and `</s>`; longer texts are truncated
    training: TrainingConfig = field(  # batch_size in texts; the gradient norm is usually 2 to 3
        default_factory=lambda: TrainingConfig(epochs=10, batch_size=32, learning_rate=2e-3, clip=5.0)
    )

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        self.check_longest(3)
        check_fractions(self, "model", "label_smoothing", "unknown")
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; a classifier has the full softmax over its labels")


class AttentionPooling(nn.Module):
    """Attention pooling: α = softmax over the words of vᵀ tanh(W h + b) (Yang et al. 2016, eq. 5 and 6)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W = nn.Linear(width, width)
        self.v = nn.Linear(width, 1, bias=False)
        for layer in (self.W, self.v):
            initialize(layer.weight, "xavier")
        nn.init.zeros_(self.W.bias)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D), (B, T) mask -> α (B, T), 0 on padding."""
        e = self.v(self.W(h).tanh()).squeeze(-1)  # (B, T)
        alpha: Tensor = e.float().masked_fill(~mask, -torch.inf).softmax(dim=-1)
        return alpha


class TextClassifier(TaskNetwork):
    """p(label | text) = softmax(W pool(h_2 … h_T) + b); h_1, the output at `<s>`, is not pooled."""

    def __init__(self, config: ClassifyConfig, vocabulary: Vocabulary, labels: int) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.reader = TextEncoder(config, vocabulary.size)
        self.attention = AttentionPooling(self.reader.width) if config.pooling == "attention" else None
        self.output = nn.Linear(self.reader.width, labels)
        initialize(self.output.weight, config.init, config.init_range)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T) ids with boundary markers, (B, T) mask -> logits (B, K)."""
        read, pooled = self.read(self._with_unknown(ids), mask)
        p = dropout.rate(self.config.output_dropout, self.config)
        logits: Tensor = self.output(dropout.units(self.pool(read, pooled), p, self.training))
        return logits

    def read(self, ids: Tensor, mask: Tensor) -> tuple[EncoderOutput, Tensor]:
        """Encode (B, T) ids; return outputs and mask without `<s>`, (B, T − 1, D) and (B, T − 1)."""
        hidden, last = self.reader(ids, mask)
        return EncoderOutput(hidden[:, 1:], last), mask[:, 1:]

    def pool(self, read: EncoderOutput, mask: Tensor) -> Tensor:
        """Pool the encoder outputs of words and `</s>` into (B, D)."""
        if self.attention is not None:
            alpha = self.attention(read.hidden, mask).to(read.hidden.dtype)
            return (alpha[:, None] @ read.hidden).squeeze(1)  # Σ_t α_t h_t
        if self.config.pooling == "max":
            return read.hidden.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        if self.config.pooling == "mean":
            return read.hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True)  # h is 0 on padding
        return read.last

    def _with_unknown(self, ids: Tensor) -> Tensor:
        """During training, replace random words with `<unk>`, never `<s>` or `</s>`."""
        v, p = self.vocabulary, self.config.unknown
        if not self.training or not p or v.unk is None:
            return ids
        is_hidden = torch.rand(ids.shape, device=ids.device) < p
        return torch.where(is_hidden & (ids != v.bos) & (ids != v.eos), v.unk, ids)


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """Padded texts and their labels."""

    inputs: Tensor  # (B, T)
    words: Tensor  # (B, T)  False on padding
    targets: Tensor  # (B,)
    weights: Tensor  # (B,)  loss weight of each text
    mask: None = None  # every target counts
    starts: bool = True


@dataclass(frozen=True, slots=True)
class ClassifierCollator:
    """Collate encoded texts into a batch on the device."""

    texts: Sequence[Ids]  # with boundary markers
    labels: Ids  # (N,)
    weights: Floats  # (K,)  loss weight of each label
    eos: int
    device: torch.device

    def __call__(self, rows: Ids) -> LabelBatch:
        """Build the batch of these rows."""
        inputs, words = pad_to_device([self.texts[i] for i in rows.tolist()], self.eos, self.device)
        labels = self.labels[rows]
        weights = torch.from_numpy(self.weights[labels].astype(np.float32))
        return LabelBatch(inputs, words, torch.from_numpy(labels).to(self.device), weights.to(self.device))


def label_loss(network: TextClassifier, batch: LabelBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """Mean of w_y [(1 − ε)(−log p_y) + ε · mean_k(−log p_k)], and the mean unweighted, unsmoothed nats."""
    log_p = network(batch.inputs, batch.words).float().log_softmax(dim=-1)  # (B, K)
    nats = -log_p.gather(1, batch.targets[:, None])[:, 0]  # (B,)
    epsilon = network.config.label_smoothing
    loss = (1 - epsilon) * nats - epsilon * log_p.mean(dim=-1)
    return (batch.weights * loss).mean(), nats.mean(), ()


def class_weights(counts: Ids, scheme: Literal["none", "balanced"]) -> Floats:
    """(K,) label counts -> (K,) loss weights, whose mean over all texts is 1."""
    return np.ones(len(counts)) if scheme == "none" else counts.sum() / (len(counts) * counts.astype(np.float64))


def log_probs(network: TextClassifier, texts: Sequence[Ids], progress: Progress = silent) -> Floats:
    """(N, K) log p(label | text) in single precision; texts are batched by length."""
    log_p = np.empty((len(texts), network.output.out_features))
    for i, rows in enumerate(batches_by_length([len(text) for text in texts], BATCH_SIZE)):
        progress("classifying", i * BATCH_SIZE, len(texts))
        ids, mask = pad_to_device([texts[i] for i in rows.tolist()], network.vocabulary.eos, device_of(network))
        with exact_inference(), limit_threads(network.largest_matmul(*ids.shape)):
            log_p[rows] = network(ids, mask).double().log_softmax(dim=-1).cpu().numpy()
    return check_outputs(log_p, network)


def error_rate(log_p: Floats, labels: Ids, weights: Floats) -> float:
    """Error rate weighted as in the loss: (N, K) log-probabilities, (N,) labels, (K,) weights."""
    w = weights[labels]
    return float(w[log_p.argmax(axis=1) != labels].sum() / w.sum())
