"""Labels for whole texts: learn from labelled ones, label new ones, say how sure and why, measure.

Lives here: one surface for both kinds of classifier, and the folder. Not here: the generative kind
(classify_ngram.py), which needs no torch; the discriminative kind (classify_neural.py); figures and the temperature
(classify_report.py). Letters: N texts, K labels.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from chainrule import artifact, folder
from chainrule.errors import ConfigError, InputError, MissingExtra, UsageError
from chainrule.evaluation.classes import calibration
from chainrule.evaluation.classes import evaluate as compare
from chainrule.folder import Content
from chainrule.lm import Floats, Ids
from chainrule.model import Origin
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import classify_ngram, store
from chainrule.tasks.classify_ngram import BayesConfig, Generative
from chainrule.tasks.classify_page import Piece, Span, cut
from chainrule.tasks.classify_report import (
    COOLEST,
    HOTTEST,
    Report,
    count,
    fit_temperature,
    number,
    tempered,
    unmet_labels,
    validation_figures,
)
from chainrule.tasks.running import Running, digest, warn_of_unknown
from chainrule.text.labelled import Labelled, as_texts, read_labelled
from chainrule.tokenizers.config import EOS
from chainrule.tokenizers.tokenizer import Tokenizer

MOST_LABELS: Final = 1 << 20
FAMILIES: Final = ("ngram", "rnn", "lstm", "gru", "transformer")


class Posterior(Protocol):
    """What both kinds of classifier offer: p(label | text), and why."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts the texts."""
        ...

    @property
    def parameters(self) -> int:
        """How many numbers were estimated."""
        ...

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(label | text)."""
        ...

    @property
    def way(self) -> str:
        """How it is explained unless told otherwise: gradient, attention or evidence."""
        ...

    def explain(self, text: str, label: int, other: int, by: str) -> tuple[Ids, list[Span], Floats]:
        """The tokens of a text, the characters of each, and what each says for one label against another."""
        ...

    def files(self) -> Mapping[str, Content]:
        """What is saved of it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Classifier:
    """A trained model of p(label | text), whatever its family."""

    task: ClassVar = "classify"
    posterior: Posterior
    config: Any  # a ClassifyConfig, or a BayesConfig
    counts: dict[str, int]  # training texts of each label, by name of the label
    temperature: float = 1.0  # what log-probabilities are divided by, fitted to the validation texts
    origin: Origin = field(default_factory=Origin)
    metrics: dict[str, Any] = field(default_factory=dict)
    log: bytes = b""

    def __repr__(self) -> str:
        labels = ", ".join(self.labels[:5]) + (", …" if len(self.labels) > 5 else "")
        return f"<{self.config.family} classifier of {self.origin.text}: {labels}; {self.parameters:,} parameters>"

    @property
    def labels(self) -> tuple[str, ...]:
        """K of them, sorted by name."""
        return tuple(self.counts)

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts the texts."""
        return self.posterior.tokenizer

    @property
    def parameters(self) -> int:
        """How many numbers were estimated."""
        return self.posterior.parameters

    def probabilities(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) p(label | text); a network reads the first `longest` tokens of a text, and warns where it cuts."""
        progress = as_progress(progress)
        if isinstance(texts, str):
            raise UsageError("texts is a single text; give a list of them, such as [text]")
        log_p = self.posterior.log_posteriors(as_texts(texts), progress)
        return np.exp(tempered(log_p, self.temperature))

    def predict(self, texts: Sequence[str], progress: Progress | bool = silent) -> list[str]:
        """The most probable label of each text, the first by name among equals; long texts as above."""
        progress = as_progress(progress)
        return [self.labels[k] for k in self.probabilities(texts, progress).argmax(axis=1)]

    def explain(self, text: str, by: str | None = None) -> list[tuple[str, float]]:
        """Each piece of a text as typed with its weight for the label found, `</s>` the last; `<s>` has none."""
        return [(piece.text, piece.weight) for piece in self.pieces(text, by)]

    def pieces(self, text: str, by: str | None = None) -> list[Piece]:
        """The same with each piece's place in the text, and whether the model knows it.

        By "gradient" or, of n-grams, "evidence" a weight is in nats and has a sign: what the token adds to
        log p(label found) − log p(next most probable label), before the temperature. By "attention" it is the
        part of the text's vector that comes from the token. None: attention where there is such, else the first.
        """
        (text,) = as_texts([text])
        label, other = np.argsort(-self.posterior.log_posteriors([text])[0], kind="stable")[:2].tolist()
        ids, spans, found = self.posterior.explain(text, label, other, by or self.posterior.way)
        return cut(text, spans, found.tolist(), [i != self.tokenizer.unk for i in ids.tolist()], EOS)

    def evaluate(
        self,
        data: str | Path | Labelled,
        *,
        bins: int = 10,
        column: str = "text",
        label: str = "label",
        progress: Progress | bool = silent,
    ) -> Report:
        """Label the texts of a file and compare; `bins` are those of the reliability table.

        `column` and `label` name the columns of JSON Lines, or of a table. A label the model never met counts as an
        error, its probability is 0, and a warning names it.
        """
        progress = as_progress(progress)
        examples = _read(data, column, label)
        unmet = unmet_labels(examples, self.counts)
        gold = number(examples, self.counts | dict.fromkeys(unmet, 0))
        start = time.perf_counter()
        p = self.probabilities(examples.texts, progress)
        seconds = time.perf_counter() - start
        p = np.pad(p, ((0, 0), (0, len(unmet))))
        majority = max(self.counts, key=lambda label: self.counts[label])
        labels = (*self.labels, *unmet)
        return Report(
            classes=compare(examples.labels, [labels[k] for k in p.argmax(axis=1)], labels),
            calibration=calibration(p, gold, bins),
            majority=majority,
            majority_accuracy=examples.labels.count(majority) / len(examples),
            seconds=seconds,
        )

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; another model or an unfinished run there is replaced only with `force`."""
        parts = store.Parts(
            task="classify",
            config=self.config,
            tokenizers={"text": self.tokenizer},
            more={"labels": self.counts, "temperature": self.temperature},
            origin=self.origin,
            metrics=self.metrics,
        )
        log: dict[str, Content] = {store.LOG: self.log} if self.log else {}
        store.save(path, parts, {**self.posterior.files(), **log}, force=force)


def load(path: str | Path, device: str = "auto") -> Classifier:
    """The classifier of a folder, every file verified first."""
    model = folder.read_json(folder.read(Path(path)), artifact.CONFIG).get("model")
    is_generative = isinstance(model, dict) and model.get("family") == "ngram"
    sealed, parts = store.load(path, "classify", config_of("ngram" if is_generative else "lstm"))
    with artifact.refusing(sealed):
        counts, temperature = _facts(parts.more)
        tokenizer = parts.tokenizers["text"]
        posterior: Posterior = (
            Generative.load(sealed, parts.config, counts, tokenizer)
            if is_generative
            else _neural().Discriminative.load(sealed, parts.config, len(counts), tokenizer, device)
        )
    return Classifier(
        posterior=posterior,
        config=parts.config,
        counts=counts,
        temperature=temperature,
        origin=parts.origin,
        metrics=dict(parts.metrics),
        log=sealed.bytes(store.LOG) if store.LOG in sealed.files else b"",
    )


def train(
    family: str,
    data: str | Path | Labelled,
    *,
    valid: str | Path | Labelled | None = None,
    tokenizer: str | Path | None = None,
    pretrained: str | Path | None = None,
    vectors: str | Path | None = None,
    column: str = "text",
    label: str = "label",
    running: Running | None = None,
    **chosen: Any,
) -> Classifier:
    """Learn from labelled texts; `chosen` are settings of the tokenizer and of the model.

    Text is lower-cased, unless told otherwise. A network may begin from a folder of `pretrain`, or with the word
    vectors of a file. With `valid` the best of its epochs is kept, and the temperature is fitted there.
    `column` and `label` name the columns of JSON Lines, or of a table.
    """
    running = Running.of(running, chosen)
    check_family(family, pretrained=pretrained, vectors=vectors)
    examples, held_out = _read(data, column, label), None if valid is None else _read(valid, column, label)
    counts = count(examples)
    if held_out is not None:
        number(held_out, counts)  # a label that is not learnt is refused before any work
    origin = running.origin("classify", examples.name, digest([*examples.texts, *examples.labels]))
    if family == "ngram":
        posterior, config, metrics = classify_ngram.train(examples, tokenizer, running, chosen)
        warn_of_unknown(posterior.tokenizer)
        made = Classifier(posterior=posterior, config=config, counts=counts, origin=origin, metrics=metrics)
    else:
        neural = _neural()
        given = neural.Given(tokenizer=tokenizer, pretrained=pretrained, vectors=vectors)
        begun = neural.begin(family, examples.texts, given, running, chosen)
        found, metrics, log = neural.train(begun, examples, held_out, counts, running)
        made = Classifier(
            posterior=found, config=begun.config, counts=counts, origin=origin, metrics=metrics, log=log
        )
    return made if held_out is None else _calibrated(made, held_out, running.progress)


def _calibrated(made: Classifier, held_out: Labelled, progress: Progress) -> Classifier:
    """The same with the temperature that suits these texts, and their figures."""
    gold = number(held_out, made.counts)
    log_p = made.posterior.log_posteriors(held_out.texts, progress)
    temperature = fit_temperature(log_p, gold)
    figures = validation_figures(log_p, gold, temperature, made.labels)
    return replace(made, temperature=temperature, metrics=made.metrics | figures)


def check_family(family: str, *, pretrained: object = None, vectors: object = None) -> None:
    """Refuse a family there is not, and for n-grams what only a network can begin from."""
    if family not in FAMILIES:
        raise ConfigError(f"there is no classifier of family '{family}'; choose one of {', '.join(FAMILIES)}")
    for name, given in (("pretrained", pretrained), ("vectors", vectors)):
        if family == "ngram" and given is not None:
            raise ConfigError(f"{name} is for networks; an n-gram classifier begins from counts: leave it out")


def config_of(family: str) -> type[Any]:
    """The class of a family's settings."""
    kind: type[Any] = BayesConfig if family == "ngram" else _neural().ClassifyConfig
    return kind


def _facts(more: Any) -> tuple[dict[str, int], float]:
    """Labels with their counts, and the temperature, of a folder; a ConfigError where they can be none."""
    counts, temperature = more["labels"], more["temperature"]
    is_count = isinstance(counts, dict) and all(type(n) is int and 0 < n < 1 << 53 for n in counts.values())
    if not is_count or not 2 <= len(counts) <= MOST_LABELS or "" in counts or list(counts) != sorted(counts):
        raise ConfigError("labels must be two or more, sorted, each with the number of its texts")
    if type(temperature) is not float or not COOLEST <= temperature <= HOTTEST:
        raise ConfigError(f"temperature is {temperature!r:.40}; it must be a number from {COOLEST} to {HOTTEST}")
    return counts, temperature


def _read(data: str | Path | Labelled, column: str, label: str) -> Labelled:
    if isinstance(data, Labelled):
        return data
    if not isinstance(data, str | Path):
        raise InputError(f"{data!r:.40} is no file; name one, or give Labelled(texts, labels) of text.labelled")
    return read_labelled(data, column=column, label=label)


def _neural() -> Any:
    """The module that needs torch."""
    try:
        from chainrule.tasks import classify_neural
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("a network that classifies needs torch: pip install 'chainrule[neural]'") from error
    return classify_neural


def __getattr__(name: str) -> Any:
    """`Config`, the settings of the networks, as the other tasks have it; looked up late, as it needs torch."""
    if name == "Config":
        return config_of("lstm")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
