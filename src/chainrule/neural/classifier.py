"""One label for a whole text: an encoder, its outputs pooled into one vector, a softmax over the labels.

Every text is read as `<s> words </s>`, as in pre-training. Mean, max and attention pool the words and `</s>`, so
that an empty text has something to pool; `<s>`, with which every text begins, is read and not pooled. `last` is the
state after all of it: at `</s>` forwards, at `<s>` backwards; of a Transformer that at `</s>`.

Lives here: settings, pooling, the network, its batches and its loss. Not here: the encoders (encoder.py), which
words weighed how much (saliency.py), texts and labels in words (tasks/classify.py).
Letters: B texts, T tokens, both signs among them, D width, K labels, N texts in all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural import dropout
from chainrule.neural.block import chosen
from chainrule.neural.device import device_of, exact
from chainrule.neural.encoder import EncoderConfig, Family, Read, Reader
from chainrule.neural.initialization import fill
from chainrule.neural.network import Tensors
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training import threads
from chainrule.training.examples import padded

SIDE_BY_SIDE = 64  # texts that are read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyConfig(EncoderConfig):
    """Settings of a classifier of texts."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "tie")
    pooling: Literal["last", "mean", "max", "attention"] = "max"  # how the vectors of words and `</s>` become one
    class_weights: Literal["none", "balanced"] = "none"  # balanced: rare labels weigh more in the loss, N / (K n_c)
    label_smoothing: float = 0.0  # ε: part of the probability that the loss wants spread over all labels
    unknown: float = 0.1  # part of the words read as `<unk>` while learning, so that it gets a vector, too
    family: Family = "lstm"
    hidden: int = 200
    embedding: int = 100
    dropout: float = 0.5
    longest: int = 256  # tokens of a text, `<s>` and `</s>` among them; longer ones are cut
    epochs: int = 10
    batch_size: int = 32  # texts
    learning_rate: float = 2e-3
    clip: float = 5.0  # the norm is usually 2 to 3 here

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        self.check_longest(3)
        for name in ("label_smoothing", "unknown"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"model.{name} is {getattr(self, name):g}; choose a value in [0, 1)")
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; a classifier has the full softmax over its labels")


class Attention(nn.Module):
    """α = softmax over a text's words of vᵀ tanh(W h + b) (Yang et al. 2016, eq. 5 and 6)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W = nn.Linear(width, width)
        self.v = nn.Linear(width, 1, bias=False)
        for layer in (self.W, self.v):
            fill(layer.weight, "xavier")
        nn.init.zeros_(self.W.bias)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D), (B, T) -> α (B, T), 0 where there is no word."""
        e = self.v(self.W(h).tanh()).squeeze(-1)  # (B, T)
        alpha: Tensor = e.float().masked_fill(~mask, -torch.inf).softmax(dim=-1)
        return alpha


class TextClassifier(nn.Module):
    """p(label | text) = softmax(W pool(h_2 … h_T) + b); h_1 stands at `<s>`."""

    def __init__(self, config: ClassifyConfig, vocabulary: Vocabulary, labels: int) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.reader = Reader(config, vocabulary.size)
        self.attention = Attention(self.reader.width) if config.pooling == "attention" else None
        self.output = nn.Linear(self.reader.width, labels)
        fill(self.output.weight, config.init, config.init_range)
        nn.init.zeros_(self.output.bias)

    def start(self, rows: int) -> Tensors:
        """Nothing is carried over from one text to another."""
        return ()

    def work(self, rows: int, T: int) -> float:
        """Multiplications of the reader's largest product over (rows, T) ids."""
        return self.reader.work(rows, T)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T) ids of framed texts, (B, T) True where there is one -> logits (B, K)."""
        read, pooled = self.read(self._with_unknown(ids), mask)
        p = chosen(self.config.output_dropout, self.config)
        logits: Tensor = self.output(dropout.units(self.pool(read, pooled), p, self.training))
        return logits

    def read(self, ids: Tensor, mask: Tensor) -> tuple[Read, Tensor]:
        """(B, T), (B, T) -> what the encoder made of what is pooled, (B, T − 1) of it, and where there is such."""
        hidden, last = self.reader(ids, mask)
        return Read(hidden[:, 1:], last), mask[:, 1:]

    def pool(self, read: Read, mask: Tensor) -> Tensor:
        """What the encoder made of words and `</s>`, and where there is one -> (B, D)."""
        if self.attention is not None:
            alpha = self.attention(read.hidden, mask).to(read.hidden.dtype)
            return (alpha[:, None] @ read.hidden).squeeze(1)  # Σ_t α_t h_t
        if self.config.pooling == "max":
            return read.hidden.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        if self.config.pooling == "mean":
            return read.hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True)  # h is 0 behind a row's end
        return read.last

    def _with_unknown(self, ids: Tensor) -> Tensor:
        """While learning, some words as if they had never been met; `<s>` and `</s>` always stand."""
        v, p = self.vocabulary, self.config.unknown
        if not self.training or not p or v.unk is None:
            return ids
        is_hidden = torch.rand(ids.shape, device=ids.device) < p
        return torch.where(is_hidden & (ids != v.bos) & (ids != v.eos), v.unk, ids)


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """Texts side by side and the label of each."""

    inputs: Tensor  # (B, T)
    words: Tensor  # (B, T)  True where there is one
    targets: Tensor  # (B,)
    weights: Tensor  # (B,)  of each text in the loss
    mask: None = None  # every target counts
    starts: bool = True


@dataclass(frozen=True, slots=True)
class Collate:
    """Rows of encoded texts to a batch on the device; each stands between its signs, so that none is empty."""

    texts: Sequence[Ids]  # framed
    labels: Ids  # (N,)
    weights: Floats  # (K,)  of each label
    eos: int
    device: torch.device

    def __call__(self, rows: Ids) -> LabelBatch:
        """The texts of these rows."""
        inputs, words = padded([self.texts[i] for i in rows.tolist()], self.eos, self.device)
        labels = self.labels[rows]
        weights = torch.from_numpy(self.weights[labels].astype(np.float32))
        return LabelBatch(inputs, words, torch.from_numpy(labels).to(self.device), weights.to(self.device))


def label_loss(network: TextClassifier, batch: LabelBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """Mean of w_y [(1 − ε)(−log p_y) + ε · mean_k(−log p_k)], and the nats alone, neither weighted nor smoothed."""
    log_p = network(batch.inputs, batch.words).float().log_softmax(dim=-1)  # (B, K)
    nats = -log_p.gather(1, batch.targets[:, None])[:, 0]  # (B,)
    epsilon = network.config.label_smoothing
    loss = (1 - epsilon) * nats - epsilon * log_p.mean(dim=-1)
    return (batch.weights * loss).mean(), nats.mean(), ()


def weigh(counts: Ids, how: Literal["none", "balanced"]) -> Floats:
    """(K,) texts of each label -> (K,) its weight in the loss, whose mean over all texts is 1."""
    return np.ones(len(counts)) if how == "none" else counts.sum() / (len(counts) * counts.astype(np.float64))


def log_probs(network: TextClassifier, texts: Sequence[Ids], progress: Progress = silent) -> Floats:
    """(N, K) log p(label | text) of framed texts, in single precision; those of like length are read together."""
    found = np.empty((len(texts), network.output.out_features))
    order = np.argsort([len(text) for text in texts], kind="stable")
    for first in range(0, len(order), SIDE_BY_SIDE):
        progress("classifying", first, len(order))
        rows = order[first : first + SIDE_BY_SIDE]
        ids, mask = padded([texts[i] for i in rows.tolist()], network.vocabulary.eos, device_of(network))
        with exact(), threads.suited(network.work(*ids.shape)):
            found[rows] = network(ids, mask).double().log_softmax(dim=-1).cpu().numpy()
    return check_outputs(found, network)


def error(log_p: Floats, labels: Ids, weights: Floats) -> float:
    """Which part of the texts gets a wrong label, each weighted as in the loss: (N, K), (N,), (K,)."""
    w = weights[labels]
    return float(w[log_p.argmax(axis=1) != labels].sum() / w.sum())
