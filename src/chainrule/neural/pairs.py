"""What every network that turns one text into another shares: settings, batches, the loss to learn by.

Lives here: `PairNetwork`, a `Network` that starts from a source. Not here: the two kinds of it (seq2seq.py,
encoder_decoder.py), the contract behind a given source (conditional.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary
from chainrule.neural.encoder import EncoderConfig, Reader
from chainrule.neural.network import Network, Tensors
from chainrule.training.examples import moved, padded


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig(EncoderConfig):
    """Settings of a translator."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "frozen_vectors")
    attention: Literal["none", "dot", "scaled-dot", "general", "additive"] = "additive"  # recurrent nets
    label_smoothing: float = 0.1  # ε: part of the probability that the loss wants spread over all words
    joint: bool = True  # one vocabulary and one embedding for both texts
    family: Literal["rnn", "lstm", "gru", "transformer"] = "gru"
    longest: int = 128  # tokens of a source or a target, `</s>` among them; longer pairs are not learnt from
    epochs: int = 30
    batch_size: int = 64  # pairs
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.family == "transformer" and self.attention != "additive":
            raise ConfigError("model.attention is no setting of family 'transformer', which always attends")
        if self.family == "transformer" and self.embedding not in (0, self.hidden):
            raise ConfigError(f"model.embedding is {self.embedding}; a Transformer has one width: leave it at 0")
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"model.label_smoothing is {self.label_smoothing:g}; choose a value in [0, 1)")
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; a translator has the full softmax")


class PairNetwork(Network):
    """An encoder of the source and a decoder that reads the target so far; the state holds what was encoded."""

    reader: Reader
    config: PairConfig

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """(B, S) ids, (B, S) True where there is one -> the state before anything of the target was read."""
        raise NotImplementedError

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) ids -> (B, L, H, T, S): where each prediction looked, by layer and head."""
        raise NotImplementedError

    def start(self, rows: int) -> Tensors:
        """While learning nothing is carried over; what a state starts from is a source (`encode`)."""
        return ()


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Pairs side by side; `targets` is `inputs` one token later."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S)
    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    places: Tensor  # (N,) of the targets there are among all B · T
    starts: bool = True


@dataclass(frozen=True, slots=True)
class Collate:
    """Rows of encoded pairs to a batch on the device; every source ends in `</s>`, so that none is empty."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]
    vocabulary: Vocabulary  # of the targets
    device: torch.device

    def __call__(self, rows: Ids) -> PairBatch:
        """The pairs of these rows."""
        v = self.vocabulary
        wanted = [self.targets[i] for i in rows.tolist()]
        source, source_mask = padded([self.sources[i] for i in rows.tolist()], v.eos, self.device)
        targets, mask = padded(wanted, v.eos, self.device)
        inputs = torch.cat([torch.full_like(targets[:, :1], v.bos), targets[:, :-1]], dim=1)
        return PairBatch(source, source_mask, inputs, targets, mask, moved(_places(wanted), self.device))


def _places(rows: Sequence[Ids]) -> Tensor:
    """(N,) where the ids of rows of different lengths stand in their (B, T) array read row by row.

    Worked out on the processor: to find them by a mask on the GPU is to wait for it.
    """
    lengths = np.array([len(row) for row in rows])
    return torch.from_numpy(np.flatnonzero(np.arange(lengths.max()) < lengths[:, None]))


def pair_loss(network: PairNetwork, batch: PairBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """(1 − ε)(−log p(target)) + ε · mean_w(−log p(w)), and the nats alone (Szegedy et al. 2016)."""
    hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden
    flat, targets = (part.index_select(0, batch.places) for part in (hidden.flatten(0, 1), batch.targets.flatten()))
    nats = network.output.loss(flat, targets)
    epsilon = network.config.label_smoothing
    return (nats + epsilon * _preference(network.output, flat, targets) if epsilon else nats), nats, ()


def _preference(output: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    """mean_w(−log p(w)) − (−log p(target)) over the words w that may come, the mean of the N places.

    The normaliser drops out and z_t − mean_w z_w = h · (W_t − mean_w W_w) + b_t − mean_w b_w is left: no (N, V).
    """
    share = ~output.impossible / (~output.impossible).sum()  # (V,)
    W, b, h = output.weight, output.bias, hidden.float()
    apart = W.index_select(0, targets) - (share[:, None] * W).sum(dim=0)  # (N, D)
    return ((h * apart).sum(dim=-1) + b.index_select(0, targets) - (share * b).sum()).mean()
