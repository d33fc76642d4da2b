"""Base class, settings, batches and loss of translation models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary
from chainrule.neural.encoder import EncoderConfig, TextEncoder
from chainrule.neural.network import Network, Tensors
from chainrule.training.examples import pad_to_device, to_device


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig(EncoderConfig):
    """Settings of a translation model."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "frozen_vectors")
    attention: Literal["none", "dot", "scaled-dot", "general", "additive"] = "additive"  # recurrent families
    label_smoothing: float = 0.1  # ε: probability mass spread over all words
    joint: bool = True  # one vocabulary and one embedding for both texts
    family: Literal["rnn", "lstm", "gru", "transformer"] = "gru"
    longest: int = 128  # tokens of a source or target including `</s>`; longer pairs are skipped
    epochs: int = 30
    batch_size: int = 64  # pairs
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.family == "transformer" and self.attention != "additive":
            raise ConfigError("model.attention is not a setting of family 'transformer', which always attends")
        if self.family == "transformer" and self.embedding not in (0, self.hidden):
            raise ConfigError(f"model.embedding is {self.embedding}; a Transformer has one width: leave it at 0")
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"model.label_smoothing is {self.label_smoothing:g}; choose a value in [0, 1)")
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; a translator has the full softmax")


class PairNetwork(Network):
    """Encoder of the source and decoder of the target; the state holds the encoded source."""

    reader: TextEncoder
    config: PairConfig

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """(B, S) ids, (B, S) mask -> initial decoder state."""
        raise NotImplementedError

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) ids -> (B, L, H, T, S) attention weights over the source, by layer and head."""
        raise NotImplementedError

    def start(self, rows: int) -> Tensors:
        """Return an empty state: training carries nothing across batches; decoding starts from `encode`."""
        return ()


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Padded pairs; `targets` is `inputs` shifted by one token."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S)
    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    target_positions: Tensor  # (N,) flat indices of the valid targets among B · T
    starts: bool = True


@dataclass(frozen=True, slots=True)
class PairCollator:
    """Collate encoded pairs into a batch on the device; every source ends in `</s>`."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]
    vocabulary: Vocabulary  # of the targets
    device: torch.device

    def __call__(self, rows: Ids) -> PairBatch:
        """Build the batch of these rows."""
        v = self.vocabulary
        target_rows = [self.targets[i] for i in rows.tolist()]
        source, source_mask = pad_to_device([self.sources[i] for i in rows.tolist()], v.eos, self.device)
        targets, mask = pad_to_device(target_rows, v.eos, self.device)
        inputs = torch.cat([torch.full_like(targets[:, :1], v.bos), targets[:, :-1]], dim=1)
        return PairBatch(
            source, source_mask, inputs, targets, mask, to_device(_valid_indices(target_rows), self.device)
        )


def _valid_indices(rows: Sequence[Ids]) -> Tensor:
    """(N,) flat indices of the valid ids of right-padded rows.

    Computed on the CPU: finding them from a mask on the GPU would synchronise.
    """
    lengths = np.array([len(row) for row in rows])
    return torch.from_numpy(np.flatnonzero(np.arange(lengths.max()) < lengths[:, None]))


def pair_loss(network: PairNetwork, batch: PairBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """(1 − ε)(−log p(target)) + ε · mean_w(−log p(w)), and the mean nats (Szegedy et al. 2016)."""
    hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden
    flat, targets = (
        part.index_select(0, batch.target_positions) for part in (hidden.flatten(0, 1), batch.targets.flatten())
    )
    nats = network.output.loss(flat, targets)
    epsilon = network.config.label_smoothing
    return (nats + epsilon * _smoothing_term(network.output, flat, targets) if epsilon else nats), nats, ()


def _smoothing_term(output: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    """mean_w(−log p(w)) − (−log p(target)) over possible words w, averaged over N targets.

    The normaliser cancels: z_t − mean_w z_w = h · (W_t − mean_w W_w) + b_t − mean_w b_w, without (N, V) logits.
    """
    share = ~output.impossible / (~output.impossible).sum()  # (V,)
    W, b, h = output.weight, output.bias, hidden.float()
    difference = W.index_select(0, targets) - (share[:, None] * W).sum(dim=0)  # (N, D)
    return ((h * difference).sum(dim=-1) + b.index_select(0, targets) - (share * b).sum()).mean()
