"""Text classification: train, predict, explain and evaluate with generative or discriminative models.

The n-gram classifier needs no torch; neural classifiers are imported on first use. Shapes: N texts, K labels.
"""

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.api import split_settings
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError, MissingExtra, UsageError
from chainrule.evaluation import classification
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import AnyModel, Floats, Ids
from chainrule.neural.cells import ENCODER_FAMILIES
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import provenance
from chainrule.storage.verified_dir import Content, VerifiedDir, read_json
from chainrule.tasks import model
from chainrule.tasks.classify_report import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    ClassifierReport,
    Span,
    WeightedSpan,
    apply_temperature,
    count_labels,
    encode_labels,
    find_unknown_labels,
    fit_temperature,
    merge_token_weights,
    validation_metrics,
)
from chainrule.tasks.model import TaskModel
from chainrule.tasks.run_setup import digest_texts, make_origin, warn_if_all_unknown
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts, check_texts, read_labelled
from chainrule.text.lines import cut_lines
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import EOS, KINDS, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from chainrule.tasks.classify_neural import NeuralClassifier

MAX_LABELS: Final = 1 << 20
FAMILIES: Final = ("ngram", *ENCODER_FAMILIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesConfig(NgramConfig):
    """Settings of the n-gram models; the default, order 1, is naive Bayes."""

    family: Literal["ngram"] = "ngram"
    order: int = 1
    smoothing: str = "witten-bell"

    @property
    def ngram(self) -> NgramConfig:
        """The n-gram settings without `family`."""
        return NgramConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(NgramConfig)})


@dataclass(frozen=True, slots=True)
class NgramClassifier:
    """p(label | text) ∝ p(label) · p(text | label), with one language model per label over a shared vocabulary."""

    prior: tuple[float, ...]  # p(label), in the order of the labels
    tokenizer: Tokenizer
    models: tuple[AnyModel, ...]

    @classmethod
    def train(
        cls,
        data: LabelledTexts,
        counts: Mapping[str, int],
        tokenizer: TokenizerConfig,
        config: BayesConfig,
        seed: int = 0,
        progress: Progress = silent,
    ) -> Self:
        """Train the tokenizer on all texts and one n-gram model on the texts of each label in `counts`."""
        if not config.is_normalized:
            raise ConfigError(
                f"Bayes' rule needs probabilities, but {config.smoothing} gives scores; choose another smoothing"
            )
        trained_tokenizer = tokenizer_training.train(Corpus.from_lines(data.texts), tokenizer, progress)
        models = []
        for label in counts:
            texts = [text for text, text_label in zip(data.texts, data.labels, strict=True) if text_label == label]
            training_data = TrainingData(
                train=encode(Corpus.from_lines(texts), trained_tokenizer, progress),
                valid=None,
                vocabulary=trained_tokenizer.vocabulary,
                names=trained_tokenizer.names,
                options=RunOptions(seed=seed, progress=progress),
            )
            models.append(families.get("ngram").train(training_data, config.ngram))
        return cls(_prior(counts), trained_tokenizer, tuple(models))

    @classmethod
    def load(cls, files: VerifiedDir, config: BayesConfig, counts: Mapping[str, int], tokenizer: Tokenizer) -> Self:
        """Load the classifier from a model folder."""
        family = families.get("ngram")
        models = tuple(
            family.load(files.subfolder(f"classes/{k}"), config.ngram, tokenizer.vocabulary, "line")
            for k in range(len(counts))
        )
        return cls(_prior(counts), tokenizer, models)

    def files(self) -> dict[str, Content]:
        """Files of the model folder, those of each label under `classes/K/`."""
        family = families.get("ngram")
        return {
            f"classes/{k}/{name}": content
            for k, lm in enumerate(self.models)
            for name, content in family.files(lm).items()
        }

    @property
    def parameters(self) -> int:
        """Number of estimated parameters."""
        return sum(families.get("ngram").parameters(lm) for lm in self.models)

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(label | text); the prior for texts that have zero probability under every label."""
        progress = as_progress(progress)
        text = encode(Corpus.from_lines(texts), self.tokenizer)
        ends = _text_ends(texts, text)
        log_joint = np.tile(np.log(self.prior), (len(texts), 1))  # (N, K)
        if not len(texts):
            return log_joint
        starts = np.concatenate([[0], ends[:-1]])
        for k, lm in enumerate(self.models):
            log_joint[:, k] += np.add.reduceat(token_log_probs(lm, text, progress), starts)
        is_impossible = np.isneginf(log_joint).all(axis=1)
        if is_impossible.any():
            message = (
                f"{is_impossible.sum()} of {len(texts)} texts are impossible for every class: the prior decides"
            )
            warnings.warn(message, ChainruleWarning, stacklevel=2)
            log_joint[is_impossible] = np.log(self.prior)
        return np.asarray(log_joint - np.logaddexp.reduce(log_joint, axis=1, keepdims=True))

    @property
    def default_explanation(self) -> str:
        """Explanation method."""
        return "evidence"

    def explain(self, text: str, label: int, other: int, by: str) -> tuple[Ids, list[Span], Floats]:
        """Tokens with log p(token | history, label) − log p(token | history, other).

        These weights plus the log prior ratio sum to the log posterior ratio.
        """
        if by != "evidence":
            raise ConfigError(f"an n-gram classifier has no {by}; explain it by evidence")
        encoded = encode(Corpus.from_lines([text]), self.tokenizer)
        with np.errstate(invalid="ignore"):
            difference = token_log_probs(self.models[label], encoded) - token_log_probs(self.models[other], encoded)
        ids, spans = _locate_tokens(text, self.tokenizer)
        return ids, spans, np.where(np.isnan(difference), 0.0, difference)  # impossible for both: no evidence


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Classifier(TaskModel):
    """A trained text classifier p(label | text) of any family."""

    task = "classify"
    noun = "classifier"
    posterior: "NgramClassifier | NeuralClassifier"
    config: Any  # a ClassifyConfig, or a BayesConfig
    counts: dict[str, int]  # training texts per label, sorted by label
    temperature: float = 1.0  # divides the log-probabilities; fitted on the validation texts

    @property
    def summary(self) -> str:
        """First labels and size of the model, for `repr`."""
        labels = ", ".join(self.labels[:5]) + (", …" if len(self.labels) > 5 else "")
        return f"{labels}; {self.parameters:,} parameters"

    @property
    def labels(self) -> tuple[str, ...]:
        """The K labels, sorted."""
        return tuple(self.counts)

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the texts."""
        return self.posterior.tokenizer

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizer, as "text"."""
        return {"text": self.tokenizer}

    @property
    def parameters(self) -> int:
        """Number of estimated parameters."""
        return self.posterior.parameters

    @property
    def extra(self) -> dict[str, Any]:
        """Label counts and temperature."""
        return {"labels": self.counts, "temperature": self.temperature}

    def files(self) -> Mapping[str, Content]:
        """Files of the network or of the n-gram models."""
        return self.posterior.files()

    def probabilities(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) p(label | text); networks truncate texts to `longest` tokens, with a warning."""
        if isinstance(texts, str):
            raise UsageError("texts is a single text; give a list of them, such as [text]")
        log_p = self.posterior.log_posteriors(check_texts(texts), progress)
        return np.exp(apply_temperature(log_p, self.temperature))

    def predict(self, texts: Sequence[str], progress: Progress | bool = silent) -> list[str]:
        """Most probable label of each text; ties go to the first label in sorted order."""
        return [self.labels[k] for k in self.probabilities(texts, progress).argmax(axis=1)]

    def explain(self, text: str, by: str | None = None) -> list[tuple[str, float]]:
        """Spans of the text with their weights for the predicted label; the last is `</s>`."""
        return [(piece.text, piece.weight) for piece in self.weighted_spans(text, by)]

    def weighted_spans(self, text: str, by: str | None = None) -> list[WeightedSpan]:
        """Like `explain`, with character offsets and whether the span is in the vocabulary.

        With "gradient", or "evidence" for n-grams, a weight is a signed contribution in nats to
        log p(predicted label) − log p(runner-up), before the temperature. With "attention" it is the attention
        weight. None: attention if the network has it, else gradient, or evidence.
        """
        (text,) = check_texts([text])
        label, other = np.argsort(-self.posterior.log_posteriors([text])[0], kind="stable")[:2].tolist()
        ids, spans, token_weights = self.posterior.explain(
            text, label, other, by or self.posterior.default_explanation
        )
        return merge_token_weights(
            text, spans, token_weights.tolist(), [i != self.tokenizer.unk for i in ids.tolist()], EOS
        )

    def evaluate(
        self,
        data: str | Path | LabelledTexts,
        *,
        bins: int = 10,
        column: str = "text",
        label: str = "label",
        progress: Progress | bool = silent,
    ) -> ClassifierReport:
        """Predict the labels of a data set and compare; `bins` is the number of bins of the reliability table.

        `column` and `label` name the columns of JSON Lines or of a table. Labels absent from the training data
        have probability 0, count as errors and are listed in a warning.
        """
        examples = _read(data, column, label)
        unknown = find_unknown_labels(examples, self.counts)
        gold = encode_labels(examples, self.counts | dict.fromkeys(unknown, 0))
        start = time.perf_counter()
        p = self.probabilities(examples.texts, progress)
        seconds = time.perf_counter() - start
        p = np.pad(p, ((0, 0), (0, len(unknown))))
        majority = max(self.counts, key=lambda label: self.counts[label])
        labels = (*self.labels, *unknown)
        return ClassifierReport(
            classes=classification.evaluate(examples.labels, [labels[k] for k in p.argmax(axis=1)], labels),
            calibration=classification.calibration(p, gold, bins),
            majority=majority,
            majority_accuracy=examples.labels.count(majority) / len(examples),
            seconds=seconds,
        )


def load(folder: VerifiedDir, device: str = "auto") -> Classifier:
    """Load a classifier from an open folder."""
    saved = read_json(folder, provenance.CONFIG).get("model")
    is_generative = isinstance(saved, dict) and saved.get("family") == "ngram"
    config_class = get_config_class("ngram" if is_generative else "lstm")
    fields, tokenizers, extra = model.read(folder, "classify", config_class)
    with provenance.translate_config_errors(folder):
        counts, temperature = _read_labels(extra)
        posterior: NgramClassifier | NeuralClassifier = (
            NgramClassifier.load(folder, fields["config"], counts, tokenizers["text"])
            if is_generative
            else _neural().NeuralClassifier.load(folder, fields["config"], len(counts), tokenizers["text"], device)
        )
    return Classifier(posterior=posterior, counts=counts, temperature=temperature, **fields)


def train(
    family: str,
    data: str | Path | LabelledTexts,
    *,
    valid: str | Path | LabelledTexts | None = None,
    tokenizer: str | Path | None = None,
    pretrained: str | Path | None = None,
    vectors: str | Path | None = None,
    column: str = "text",
    label: str = "label",
    options: RunOptions | None = None,
    **chosen: Any,
) -> Classifier:
    """Train a classifier on labelled texts; `chosen` contains tokenizer and model settings.

    Text is lower-cased by default. A network may start from a `pretrain` folder or a file of word vectors. With
    `valid`, the best epoch is kept and the temperature is fitted on those texts. `column` and `label` name the
    columns of JSON Lines or of a table.
    """
    options = RunOptions.merge(options, chosen).check_output()
    check_family(family, pretrained=pretrained, vectors=vectors)
    examples, held_out = _read(data, column, label), None if valid is None else _read(valid, column, label)
    counts = count_labels(examples)
    if held_out is not None:
        encode_labels(held_out, counts)  # reject unknown labels before any work
    origin = make_origin(options, "classify", examples.name, digest_texts([*examples.texts, *examples.labels]))
    if family == "ngram":
        posterior, config, metrics = _train_ngram(examples, counts, tokenizer, options, chosen)
        warn_if_all_unknown(posterior.tokenizer)
        log = b""
    else:
        neural = _neural()
        sources = neural.PretrainedSources(tokenizer=tokenizer, pretrained=pretrained, vectors=vectors)
        posterior, config, metrics, log = neural.train(family, examples, held_out, counts, sources, options, chosen)
    classifier = Classifier(
        posterior=posterior, config=config, counts=counts, origin=origin, metrics=metrics, log=log
    )
    return classifier if held_out is None else _calibrate(classifier, held_out, options.progress)


def _train_ngram(
    data: LabelledTexts,
    counts: Mapping[str, int],
    tokenizer: str | Path | None,
    options: RunOptions,
    chosen: dict[str, Any],
) -> tuple[NgramClassifier, BayesConfig, dict[str, Any]]:
    """Train one n-gram model per label; `chosen` contains tokenizer and n-gram settings."""
    tokenizer_settings, model_settings = split_settings(chosen)
    config = settings.build_config(BayesConfig, model_settings | {"family": "ngram"}, "model", "ngram")
    if tokenizer is not None and tokenizer not in KINDS:
        raise ConfigError(f"an n-gram classifier trains its own tokenizer: choose one of {', '.join(KINDS)}")
    choice = settings.build_config(
        TokenizerConfig, {"kind": tokenizer or "word", "lowercase": True} | tokenizer_settings, "tokenizer"
    )
    start = time.perf_counter()
    classifier = NgramClassifier.train(data, counts, choice, config, options.seed, options.progress)
    seconds = round(time.perf_counter() - start, 3)
    return classifier, config, {"train_texts": len(data), "train_seconds": seconds}


def _calibrate(classifier: Classifier, held_out: LabelledTexts, progress: Progress) -> Classifier:
    """Fit the temperature on `held_out` and add the validation metrics."""
    gold = encode_labels(held_out, classifier.counts)
    log_p = classifier.posterior.log_posteriors(held_out.texts, progress)
    temperature = fit_temperature(log_p, gold)
    metrics = validation_metrics(log_p, gold, temperature, classifier.labels)
    return replace(classifier, temperature=temperature, metrics=classifier.metrics | metrics)


def check_family(family: str, *, pretrained: object = None, vectors: object = None) -> None:
    """Raise for an unknown family, or if an n-gram classifier is given pretrained weights."""
    if family not in FAMILIES:
        raise ConfigError(f"there is no classifier of family '{family}'; choose one of {', '.join(FAMILIES)}")
    for name, value in (("pretrained", pretrained), ("vectors", vectors)):
        if family == "ngram" and value is not None:
            raise ConfigError(
                f"{name} is for networks; an n-gram classifier is estimated from counts: leave it out"
            )


def get_config_class(family: str) -> type[Any]:
    """Config class of a family."""
    kind: type[Any] = BayesConfig if family == "ngram" else _neural().ClassifyConfig
    return kind


def _read_labels(more: Any) -> tuple[dict[str, int], float]:
    """Validate the label counts and the temperature of a model folder."""
    counts, temperature = more["labels"], more["temperature"]
    is_count = isinstance(counts, dict) and all(type(n) is int and 0 < n < 1 << 53 for n in counts.values())
    if not is_count or not 2 <= len(counts) <= MAX_LABELS or "" in counts or list(counts) != sorted(counts):
        raise ConfigError("labels must be two or more, sorted, each with the number of its texts")
    if type(temperature) is not float or not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        raise ConfigError(
            f"temperature is {temperature!r:.40}; it must be a number from {MIN_TEMPERATURE} to {MAX_TEMPERATURE}"
        )
    return counts, temperature


def _read(data: str | Path | LabelledTexts, column: str, label: str) -> LabelledTexts:
    if isinstance(data, LabelledTexts):
        return data
    if not isinstance(data, str | Path):
        raise InputError(f"{data!r:.40} is not a file; give one, or give LabelledTexts(texts, labels)")
    return read_labelled(data, column=column, label=label)


def _locate_tokens(text: str, tokenizer: Tokenizer) -> tuple[Ids, list[Span]]:
    """Token ids of a text, with `</s>` after each line, and their character spans."""
    ids: list[int] = []
    spans: list[Span] = []
    offset = 0
    for fragment in cut_lines([text or "\n"]):
        encoding = tokenizer.encoding(fragment.text)
        ids += encoding.ids
        spans += [(offset + start, offset + end) for start, end in encoding.offsets]
        offset += len(fragment.text)
        if fragment.ends_line:
            ids.append(tokenizer.eos)
            spans.append((offset, offset))
            offset += 2 if text.startswith("\r\n", offset) else 1
    return np.array(ids), spans


def _text_ends(texts: Sequence[str], text: EncodedText) -> Ids:
    """(N,) end offset of each text in the token array; every line of a multi-line text ends with `</s>`."""
    lines = [sum(1 for _ in Corpus.from_lines([one])) if "\n" in one or "\r" in one else 1 for one in texts]
    line_ends = np.flatnonzero(text.ids == text.eos) + 1
    return np.asarray(line_ends[np.cumsum(lines, dtype=np.int64) - 1])


def _prior(counts: Mapping[str, int]) -> tuple[float, ...]:
    total = sum(counts.values())
    return tuple(count / total for count in counts.values())


def _neural() -> Any:
    """Import the module that needs torch."""
    try:
        from chainrule.tasks import classify_neural
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("a neural classifier needs torch: pip install 'chainrule[neural]'") from error
    return classify_neural


def __getattr__(name: str) -> Any:
    """Resolve `Config`, the config class of the networks, lazily because it needs torch."""
    if name == "Config":
        return get_config_class("lstm")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
