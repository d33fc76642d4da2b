"""The discriminative classifier: a network that reads the text, behind the surface of tasks/classify.py.

Lives here: texts to ids, and learning. Not here: what a run may begin with (beginning.py); the network itself
(neural/classifier.py), which is imported with this module.
"""

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.folder import Sealed
from chainrule.lm import Floats, Ids
from chainrule.neural import classifier, saliency, weights
from chainrule.neural.classifier import ClassifyConfig, Collate, TextClassifier
from chainrule.neural.device import choose
from chainrule.neural.encoder import framed
from chainrule.neural.learning import Plan, learn
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import beginning
from chainrule.tasks.beginning import Beginning, Given
from chainrule.tasks.classify_page import Span
from chainrule.tasks.running import Running
from chainrule.text.labelled import Labelled
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.examples import Examples

BREAKS = re.compile(r"\r\n?|\n")
WAYS = ("gradient", "attention")


@dataclass(frozen=True, slots=True)
class Discriminative:
    """p(label | text), computed from the text at once."""

    network: TextClassifier
    tokenizer: Tokenizer

    @classmethod
    def load(cls, files: Sealed, config: ClassifyConfig, labels: int, tokenizer: Tokenizer, device: str) -> Self:
        """The classifier of a folder."""
        vocabulary = tokenizer.vocabulary
        network = weights.restore(files, lambda: TextClassifier(config, vocabulary, labels), config.layers)
        return cls(network.to(choose(device)).eval(), tokenizer)

    @property
    def parameters(self) -> int:
        """Weights that were learnt."""
        return sum(p.numel() for p in self.network.parameters())

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(label | text)."""
        progress = as_progress(progress)
        ids = encode(texts, self.tokenizer, self.network.config.longest)
        return classifier.log_probs(self.network, ids, progress)

    @property
    def way(self) -> str:
        """How it is explained unless told otherwise."""
        return "gradient" if self.network.attention is None else "attention"

    def explain(self, text: str, label: int, other: int, by: str) -> tuple[Ids, list[Span], Floats]:
        """Tokens and `</s>`, each with what it adds to log p(label) − log p(other), or with its attention."""
        if by not in WAYS:
            raise ConfigError(f"a network is explained by {' or '.join(WAYS)}, not by '{by}'")
        (ids,) = encode([text], self.tokenizer, self.network.config.longest)
        if by == "attention":
            found = saliency.attention(self.network, ids)
        else:
            found = saliency.gradient(self.network, ids, label, other)
        spans = locate(text, self.tokenizer)
        end = len(text) if len(spans) == len(ids) - 2 else spans[len(ids) - 3][1]  # where reading ended
        return ids[1:], [*spans[: len(ids) - 2], (end, end)], found  # `<s>` has no number

    def files(self) -> dict[str, bytes]:
        """What is saved."""
        return {weights.FILE: weights.to_bytes(self.network)}


def begin(
    family: str, texts: Sequence[str], given: Given, running: Running, chosen: dict[str, Any]
) -> Beginning[ClassifyConfig]:
    """What a run on these texts begins with; `chosen` are settings of tokenizer and network."""
    return beginning.begin(ClassifyConfig, family, chosen, texts, given, running, {"lowercase": True})


def train(
    begun: Beginning[ClassifyConfig],
    data: Labelled,
    valid: Labelled | None,
    counts: dict[str, int],
    running: Running,
) -> tuple[Discriminative, dict[str, Any], bytes]:
    """The network, figures of the run, and its log."""
    config, tokenizer = begun.config, begun.tokenizer
    numbers = {label: k for k, label in enumerate(counts)}
    by_label = classifier.weigh(np.array(list(counts.values())), config.class_weights)
    parts = [part for part in (data, valid) if part is not None]
    ids = [encode(part.texts, tokenizer, config.longest, part.name) for part in parts]
    labels = [np.array([numbers[label] for label in part.labels], dtype=np.int64) for part in parts]
    lines = [t for p in parts for t in (p.texts, p.labels)]
    job = running.job("classify", config, lines, {"text": tokenizer}, begun.digest)

    def plan(network: TextClassifier, device: Any) -> Plan:
        begun.give(network.reader)
        collate = Collate(ids[0], labels[0], by_label, tokenizer.eos, device)
        source = Examples(np.array([len(text) for text in ids[0]]), collate, config, job.seed)

        def validate() -> float:
            return classifier.error(classifier.log_probs(network, ids[1]), labels[1], by_label)

        return Plan(
            source=source,
            objective=classifier.label_loss,
            validate=None if valid is None else validate,
            measure="error",
        )

    start = time.perf_counter()
    network, log = learn(job, config, lambda: TextClassifier(config, tokenizer.vocabulary, len(counts)), plan)
    seconds = round(time.perf_counter() - start, 3)
    metrics = {"train_texts": len(data), "train_seconds": seconds, **job.summary, **begun.metrics}
    return Discriminative(network, tokenizer), metrics, log


def locate(text: str, tokenizer: Tokenizer) -> list[Span]:
    """Which characters of the text each of its tokens stands for; a line break was read as one blank."""
    read = [place for place in range(len(text) + 1) if text[place - 1 : place + 1] != "\r\n"]
    found = tokenizer.encoding(BREAKS.sub(" ", text)).offsets
    return [(read[start], read[end]) for start, end in found]


def encode(texts: Sequence[str], tokenizer: Tokenizer, longest: int, name: str = "") -> list[Ids]:
    """Each text as `<s> words </s>`, line breaks read as blanks; what is too long is cut, with a warning."""
    found: list[Ids] = []
    cut = 0
    for text in texts:
        ids = tokenizer.encode(BREAKS.sub(" ", text))
        cut += len(ids) > longest - 2
        found.append(framed(ids[: longest - 2], tokenizer.vocabulary))
    if cut:
        message = f"{cut} of {len(texts)} texts are longer than {longest} tokens and read up to there"
        whose = f"{name}: " if name else ""
        warnings.warn(f"{whose}{message}; a larger longest reads more", ChainruleWarning, stacklevel=3)
    return found
