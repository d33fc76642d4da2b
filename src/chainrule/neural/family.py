"""What the table of families knows of a network: train, save, load; the same for all of them.

Lives here: the way from a config and a text to a `NeuralModel` and back from its files.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.folder import Sealed
from chainrule.lm import Context, Floats, Vocabulary
from chainrule.neural import validation, weights
from chainrule.neural.adaptation import Adapted, Kind, adapt
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import choose
from chainrule.neural.learning import Plan, learn
from chainrule.neural.network import Network
from chainrule.progress import Progress, silent
from chainrule.training.batches import Lines, Source, Stream
from chainrule.training.objective import next_token

LOG = "train_log.jsonl"


@dataclass(frozen=True, slots=True)
class NeuralFamily:
    """One architecture as a family."""

    Config: type[Any]
    build: Callable[[Any, Vocabulary, Floats | None], Network]
    candidates: Callable[[], list[Any]]
    facets: Callable[[Any], dict[str, str | int]]

    def train(self, data: TrainingData, config: Any) -> NeuralModel:
        """Learn by gradients, from first weights that the seed decides."""
        counts = np.bincount(data.train.ids, minlength=data.vocabulary.size).astype(np.float64)

        def plan(network: Network, device: torch.device) -> Plan:
            return Plan(
                source=training_source(data, config, network, device),
                objective=next_token,
                validate=_validation(NeuralModel(network, data.vocabulary, data.context), data.valid, config),
                unigram_nats=_entropy(counts) if config.output != "nce" else float("inf"),  # its loss is no log p
            )

        network, log = learn(data, config, lambda: self.build(config, data.vocabulary, counts), plan)
        return NeuralModel(network, data.vocabulary, data.context, log)

    def files(self, lm: NeuralModel) -> dict[str, bytes]:
        """The weights, and the log of the training that made them."""
        return {weights.FILE: weights.to_bytes(lm.network)} | ({LOG: lm.log} if lm.log else {})

    def load(
        self, files: Sealed, config: Any, vocabulary: Vocabulary, context: Context, device: str = "auto"
    ) -> NeuralModel:
        """The network of saved weights."""
        counts = np.ones(vocabulary.size)  # what they decide is among what is loaded
        network = weights.restore(files, lambda: self.build(config, vocabulary, counts), config.layers)
        log = files.bytes(LOG) if LOG in files.files else b""
        return NeuralModel(network.to(choose(device)), vocabulary, context, log)

    def parameters(self, lm: NeuralModel) -> int:
        """Weights that were learnt; a shared matrix counts once."""
        return sum(p.numel() for p in lm.network.parameters())

    def adapt(
        self,
        lm: NeuralModel,
        text: Encoded,
        valid: Encoded | None,
        kind: Kind,
        *,
        train: Encoded | None = None,
        stride: int | None = None,
        progress: Progress = silent,
    ) -> Adapted:
        """A text scored with the model adapted to it, as settings chosen on `valid` say."""
        return adapt(lm, text, valid, kind, train=train, stride=stride, progress=progress)


def training_source(data: TrainingData, config: Any, network: Network, device: torch.device) -> Source:
    """Lines or one stream; a network with a window never reads more than that at once."""
    if network.window is not None:
        config = dataclasses.replace(config, bptt=min(config.bptt or network.window, network.window))
    if data.context == "stream":
        return Stream(data.train.ids, config, data.seed, device)
    return Lines(data.train.ids, data.vocabulary.bos, data.vocabulary.eos, config, data.seed, device)


def _validation(model: NeuralModel, valid: Encoded | None, config: Any) -> Callable[[], float] | None:
    if valid is None or not model.vocabulary.predictable[valid.ids].any():
        return None
    sample = validation.sample(valid, config.validation_tokens, model.context)
    if not model.vocabulary.predictable[sample.ids].any():
        sample = valid
    return lambda: validation.mean_nats(model, sample)


def _entropy(counts: Floats) -> float:
    """H of the words' frequencies in nats: what a model without any context reaches on this text."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
