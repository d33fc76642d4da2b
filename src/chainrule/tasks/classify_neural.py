"""Discriminative text classifier: a neural encoder with a softmax over labels."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.lm import Floats, Ids
from chainrule.neural import weights
from chainrule.neural.encoders import classifier
from chainrule.neural.encoders.classifier import ClassifierCollator, ClassifyConfig, TextClassifier
from chainrule.neural.encoders.encoder import add_boundaries
from chainrule.neural.family import fit
from chainrule.neural.probes import saliency
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.tasks.classify_report import Span
from chainrule.tasks.initialization import LINE_BREAKS, PretrainedSources, initialize
from chainrule.tasks.run_setup import identify
from chainrule.text.labelled import LabelledTexts
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.batches import ExampleBatches
from chainrule.training.device import select_device
from chainrule.training.trainer import TrainingPlan

EXPLANATIONS = ("gradient", "attention")


@dataclass(frozen=True, slots=True)
class NeuralClassifier:
    """Neural model of p(label | text)."""

    network: TextClassifier
    tokenizer: Tokenizer

    @classmethod
    def load(
        cls, files: VerifiedDir, config: ClassifyConfig, labels: int, tokenizer: Tokenizer, device: str
    ) -> Self:
        """Load the network from a model folder."""
        vocabulary = tokenizer.vocabulary
        network = weights.load_network(files, lambda: TextClassifier(config, vocabulary, labels), config.layers)
        return cls(network.to(select_device(device)).eval(), tokenizer)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.network.parameters())

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(label | text)."""
        ids = encode(texts, self.tokenizer, self.network.config.longest)
        return classifier.log_probs(self.network, ids, as_progress(progress))

    @property
    def default_explanation(self) -> str:
        """Default explanation method."""
        return "gradient" if self.network.attention is None else "attention"

    def explain(self, text: str, label: int, other: int, by: str) -> tuple[Ids, list[Span], Floats]:
        """Tokens and `</s>` with their contributions to log p(label) − log p(other), or their attention weights."""
        if by not in EXPLANATIONS:
            raise ConfigError(f"a network is explained by {' or '.join(EXPLANATIONS)}, not by '{by}'")
        (ids,) = encode([text], self.tokenizer, self.network.config.longest)
        if by == "attention":
            token_weights = saliency.pooling_weights(self.network, ids)
        else:
            token_weights = saliency.integrated_gradients(self.network, ids, label, other)
        spans = _token_spans(text, self.tokenizer)
        end = len(text) if len(spans) == len(ids) - 2 else spans[len(ids) - 3][1]  # end of the text that was read
        return ids[1:], [*spans[: len(ids) - 2], (end, end)], token_weights  # `<s>` has no weight

    def files(self) -> dict[str, bytes]:
        """Files of the model folder."""
        return {weights.FILE: weights.serialize(self.network)}


def train(
    family: str,
    data: LabelledTexts,
    valid: LabelledTexts | None,
    counts: dict[str, int],
    sources: PretrainedSources,
    options: RunOptions,
    chosen: dict[str, Any],
) -> tuple[NeuralClassifier, ClassifyConfig, dict[str, Any], bytes]:
    """Train a network; return it with its config, the run metrics and the training log.

    `chosen` contains tokenizer and network settings.
    """
    initialization = initialize(ClassifyConfig, family, chosen, data.texts, sources, options, {"lowercase": True})
    config, tokenizer = initialization.config, initialization.tokenizer
    numbers = {label: k for k, label in enumerate(counts)}
    class_weights = classifier.class_weights(np.array(list(counts.values())), config.class_weights)
    parts = [part for part in (data, valid) if part is not None]
    ids = [encode(part.texts, tokenizer, config.longest, part.name) for part in parts]
    labels = [np.array([numbers[label] for label in part.labels], dtype=np.int64) for part in parts]
    texts = [t for p in parts for t in (p.texts, p.labels)]
    options = identify(options, "classify", config, texts, [tokenizer], initialization.digest)

    def plan(network: TextClassifier, device: Any) -> TrainingPlan:
        initialization.apply(network.reader)
        collate = ClassifierCollator(ids[0], labels[0], class_weights, tokenizer.eos, device)
        source = ExampleBatches(np.array([len(text) for text in ids[0]]), collate, config.training, options.seed)

        def validate() -> float:
            return classifier.error_rate(classifier.log_probs(network, ids[1]), labels[1], class_weights)

        return TrainingPlan(
            source=source,
            objective=classifier.label_loss,
            validate=None if valid is None else validate,
            measure="error",
        )

    start = time.perf_counter()
    network, log, summary = fit(
        options, config.training, lambda: TextClassifier(config, tokenizer.vocabulary, len(counts)), plan
    )
    seconds = round(time.perf_counter() - start, 3)
    metrics = {"train_texts": len(data), "train_seconds": seconds, **summary, **initialization.metrics}
    return NeuralClassifier(network, tokenizer), config, metrics, log


def _token_spans(text: str, tokenizer: Tokenizer) -> list[Span]:
    """Character span of each token in the text; the tokenizer reads a line break as one space."""
    positions = [i for i in range(len(text) + 1) if text[i - 1 : i + 1] != "\r\n"]
    offsets = tokenizer.encoding(LINE_BREAKS.sub(" ", text)).offsets
    return [(positions[start], positions[end]) for start, end in offsets]


def encode(texts: Sequence[str], tokenizer: Tokenizer, longest: int, name: str = "") -> list[Ids]:
    """Encode each text as `<s> … </s>` with line breaks as spaces; warn about truncated texts."""
    encoded: list[Ids] = []
    truncated = 0
    for text in texts:
        ids = tokenizer.encode(LINE_BREAKS.sub(" ", text))
        truncated += len(ids) > longest - 2
        encoded.append(add_boundaries(ids[: longest - 2], tokenizer.vocabulary))
    if truncated:
        message = f"{truncated} of {len(texts)} texts are longer than {longest} tokens and read up to there"
        prefix = f"{name}: " if name else ""
        warnings.warn(f"{prefix}{message}; increase longest to read more", ChainruleWarning, stacklevel=3)
    return encoded
