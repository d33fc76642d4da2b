"""The discriminative classifier: a network that reads the text, behind the surface of tasks/classify.py.

Lives here: texts to ids, learning, what a run may begin from (an encoder learnt from plain text, word vectors).
Not here: the network itself (neural/classifier.py), which is imported with this module.
"""

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from chainrule import config as settings
from chainrule.api import split_settings
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.folder import Sealed
from chainrule.lm import Floats, Ids
from chainrule.neural import classifier, saliency, weights
from chainrule.neural.classifier import ClassifyConfig, Collate, TextClassifier
from chainrule.neural.device import choose
from chainrule.neural.encoder import Reader
from chainrule.neural.learning import Plan, learn
from chainrule.progress import Progress, silent
from chainrule.tasks.running import Running, make_tokenizer
from chainrule.text.labelled import Labelled
from chainrule.text.vectors import initial, read_vectors
from chainrule.tokenizers.config import KINDS
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

    def log_posteriors(self, texts: Sequence[str], progress: Progress = silent) -> Floats:
        """(N, K) log p(label | text)."""
        ids = encode(texts, self.tokenizer, self.network.config.longest)
        return classifier.log_probs(self.network, ids, progress)

    def explain(self, text: str, label: int, other: int, by: str | None) -> tuple[list[str], Floats]:
        """Each token with what it adds to log p(label) − log p(other), or with the attention it was given."""
        if by not in (None, *WAYS):
            raise ConfigError(f"a network is explained by {' or '.join(WAYS)}, not by '{by}'")
        (ids,) = encode([text], self.tokenizer, self.network.config.longest)
        if by == "attention" or (by is None and self.network.attention is not None):
            found = saliency.attention(self.network, ids)
        else:
            found = saliency.gradient(self.network, ids, label, other)
        return self.tokenizer.tokens(ids.tolist()), found

    def files(self) -> dict[str, bytes]:
        """What is saved."""
        return {weights.FILE: weights.to_bytes(self.network)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a run begins from."""

    tokenizer: str | Path | None = None  # None: that of `pretrained`, or words in lower case
    pretrained: str | Path | None = None  # a folder of chainrule pretrain
    vectors: str | Path | None = None  # a file of word vectors


@dataclass(frozen=True, slots=True)
class Prepared:
    """The same, read."""

    config: ClassifyConfig
    tokenizer: Tokenizer
    encoder: Reader | None = None
    vectors: Floats | None = None  # (V, E)
    coverage: float | None = None  # the part of the tokens that have a vector

    def begin(self, reader: Reader) -> None:
        """Give a new reader what is known already."""
        if self.encoder is not None:
            from chainrule.neural.pretraining import adopt

            adopt(reader, self.encoder)
        if self.vectors is not None:
            classifier.begin_from(reader, self.vectors)


def prepare(
    family: str, texts: Sequence[str], given: Beginning, running: Running, chosen: dict[str, Any]
) -> Prepared:
    """Config and tokenizer; `chosen` are settings of both."""
    wanted, own = split_settings(chosen)
    own = own | {"family": family}
    config = settings.make(ClassifyConfig, own, "model", family)  # a wrong name is answered before any work
    if given.pretrained is not None:
        return _pretrained(given, own, wanted, config)
    usual = {"lowercase": True} if given.tokenizer is None or given.tokenizer in KINDS else {}
    tokenizer = make_tokenizer(texts, given.tokenizer or "word", usual | wanted, running.progress)
    if given.vectors is None:
        return Prepared(config, tokenizer)
    names = tokenizer.tokens(range(tokenizer.vocab_size))
    found = read_vectors(given.vectors, {*names, *(name.lower() for name in names)})
    width = found.matrix.shape[1]
    if "embedding" in own and config.embedding != width:
        raise ConfigError(f"model.embedding is {config.embedding}, and the vectors of {given.vectors} have {width}")
    matrix, coverage = initial(found, names, np.random.default_rng(running.seed))
    return Prepared(
        settings.make(ClassifyConfig, own | {"embedding": width}, "model"), tokenizer, None, matrix, coverage
    )


def _pretrained(
    given: Beginning, own: dict[str, object], wanted: dict[str, object], config: ClassifyConfig
) -> Prepared:
    from chainrule.tasks import pretrain

    if given.vectors is not None:
        raise ConfigError("a pre-trained encoder has word vectors of its own; leave out vectors, or pretrained")
    if given.tokenizer is not None or wanted:
        raise ConfigError(f"{given.pretrained} brings its tokenizer; leave out {', '.join(wanted) or 'tokenizer'}")
    assert given.pretrained is not None
    found = pretrain.load(given.pretrained)
    for name, value in found.shape.items():
        if name in own and getattr(config, name) != value:
            raise ConfigError(
                f"model.{name} is {getattr(config, name)}, and {given.pretrained} was learnt with {value}; "
                f"leave {name} out"
                if name != "family"
                else f"the family is '{config.family}', and {given.pretrained} is an encoder of family '{value}'"
            )
    return Prepared(settings.make(ClassifyConfig, own | found.shape, "model"), found.tokenizer, found.reader)


def train(
    prepared: Prepared, data: Labelled, valid: Labelled | None, counts: dict[str, int], running: Running
) -> tuple[Discriminative, dict[str, Any], bytes]:
    """The network, figures of the run, and its log."""
    config, tokenizer = prepared.config, prepared.tokenizer
    numbers = {label: k for k, label in enumerate(counts)}
    by_label = classifier.weigh(np.array(list(counts.values())), config.class_weights)
    parts = [part for part in (data, valid) if part is not None]
    ids = [encode(part.texts, tokenizer, config.longest, part.name) for part in parts]
    labels = [np.array([numbers[label] for label in part.labels], dtype=np.int64) for part in parts]
    job = running.job("classify", config, [t for p in parts for t in (p.texts, p.labels)], {"text": tokenizer})

    def plan(network: TextClassifier, device: Any) -> Plan:
        prepared.begin(network.reader)
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
    metrics: dict[str, Any] = {"train_texts": len(data), "train_seconds": round(time.perf_counter() - start, 3)}
    if prepared.coverage is not None:
        metrics["vectors_coverage"] = prepared.coverage
    return Discriminative(network, tokenizer), metrics, log


def encode(texts: Sequence[str], tokenizer: Tokenizer, longest: int, name: str = "") -> list[Ids]:
    """The ids of each text, line breaks read as blanks, and its `</s>`; what is too long is cut, with a warning."""
    found: list[Ids] = []
    cut = 0
    for text in texts:
        ids = tokenizer.encode(BREAKS.sub(" ", text))
        cut += len(ids) >= longest
        found.append(np.append(ids[: longest - 1], tokenizer.eos).astype(np.int64))
    if cut:
        message = f"{cut} of {len(texts)} texts are longer than {longest} tokens and read up to there"
        whose = f"{name}: " if name else ""
        warnings.warn(f"{whose}{message}; a larger longest reads more", ChainruleWarning, stacklevel=3)
    return found
