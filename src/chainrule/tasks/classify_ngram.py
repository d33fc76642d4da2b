"""Generative text classifier: one n-gram model per label and Bayes' rule."""

import dataclasses
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.api import split_settings
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import AnyModel, Floats, Ids
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.verified_dir import Content, VerifiedDir
from chainrule.tasks.classify_report import Span
from chainrule.tasks.run_options import RunOptions
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts
from chainrule.text.lines import cut_lines
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer

TOKENIZER: Final = TokenizerConfig(lowercase=True)
NGRAM: Final = NgramConfig(order=1, smoothing="witten-bell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Labels, prior probabilities and n-gram settings, as stored in the model folder."""

    labels: tuple[str, ...]
    prior: tuple[float, ...]  # p(c)
    ngram: dict[str, Any]

    def __post_init__(self) -> None:
        is_distribution = all(p > 0 for p in self.prior) and abs(sum(self.prior) - 1) < 1e-6
        if len(self.labels) != len(self.prior) or not is_distribution:
            raise ConfigError(f"a classifier needs one prior a label, summing to 1, not {self.prior}")
        if len(set(self.labels)) < max(2, len(self.labels)):
            raise ConfigError(f"a classifier needs two different labels or more, not {', '.join(self.labels)}")


@dataclass(frozen=True, slots=True)
class BayesClassifier:
    """One language model per class over a shared vocabulary."""

    config: Config
    tokenizer: Tokenizer
    models: tuple[AnyModel, ...]

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        labels: Sequence[str],
        *,
        tokenizer: TokenizerConfig = TOKENIZER,
        ngram: NgramConfig = NGRAM,
        seed: int = 0,
        progress: Progress | bool = silent,
    ) -> Self:
        """Train the tokenizer on all texts and one n-gram model on the texts of each label."""
        progress = as_progress(progress)
        counts = _count_labels(texts, labels)
        if not ngram.is_normalized:
            raise ConfigError(f"Bayes' rule needs probabilities, which {ngram.smoothing} does not give")
        trained_tokenizer = tokenizer_training.train(_corpus(texts), tokenizer, progress)
        models = []
        for label in counts:
            class_texts = [text for text, text_label in zip(texts, labels, strict=True) if text_label == label]
            data = TrainingData(
                train=encode(Corpus.from_lines(class_texts), trained_tokenizer, progress),
                valid=None,
                vocabulary=trained_tokenizer.vocabulary,
                names=trained_tokenizer.names,
                seed=seed,
                progress=progress,
            )
            models.append(families.get("ngram").train(data, ngram))
        prior = tuple(count / len(texts) for count in counts.values())
        config = Config(labels=tuple(counts), prior=prior, ngram=settings.to_json(ngram))
        return cls(config, trained_tokenizer, tuple(models))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels, sorted."""
        return self.config.labels

    @property
    def prior(self) -> Floats:
        """(K,) p(c)."""
        return np.array(self.config.prior)

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(c | text); the prior for texts that have zero probability under every class."""
        progress = as_progress(progress)
        text = encode(_corpus(texts), self.tokenizer)
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

    def predict(self, texts: Sequence[str], progress: Progress | bool = silent) -> list[str]:
        """Most probable label of each text; ties go to the first label in sorted order."""
        progress = as_progress(progress)
        return [self.labels[k] for k in self.log_posteriors(texts, progress).argmax(axis=1)]

    def token_log_likelihoods(self, text: str) -> list[tuple[str, Floats]]:
        """Tokens of a text, `</s>` included, each with (K,) log p(token | preceding tokens, c).

        The evidence of a token for class i against class j is the difference of its two log-probabilities. The
        evidence of all tokens plus the log prior ratio equals the log posterior ratio.
        """
        encoded = encode(_corpus([text]), self.tokenizer)
        log_p = np.stack([token_log_probs(lm, encoded) for lm in self.models], axis=1)  # (T, K)
        return list(zip(self.tokenizer.tokens(encoded.ids.tolist()), log_p, strict=True))

    def files(self) -> dict[str, Content]:
        """Model files of each class under `classes/K/`; the caller saves the tokenizer and `config`."""
        family = families.get("ngram")
        return {
            f"classes/{k}/{name}": content
            for k, lm in enumerate(self.models)
            for name, content in family.files(lm).items()
        }

    @classmethod
    def load(cls, files: VerifiedDir, config: Config, tokenizer: Tokenizer) -> Self:
        """Load a saved classifier."""
        family = families.get("ngram")
        ngram = settings.build_config(family.Config, config.ngram, "ngram")
        models = tuple(
            family.load(files.subfolder(f"classes/{k}"), ngram, tokenizer.vocabulary, "line")
            for k in range(len(config.labels))
        )
        return cls(config, tokenizer, models)


def _corpus(texts: Sequence[str]) -> Corpus:
    if isinstance(texts, str):
        raise UsageError("texts is a single text; give a list of them, such as [text]")
    return Corpus.from_lines(texts)


def _count_labels(texts: Sequence[str], labels: Sequence[str]) -> dict[str, int]:
    """Number of texts per label, sorted by label."""
    _corpus(texts)
    if len(texts) != len(labels):
        raise InputError(f"there are {len(texts)} texts but {len(labels)} labels; give one label a text")
    if "" in labels:
        raise InputError(f"text {list(labels).index('') + 1} has an empty label; give every text a label")
    counts = Counter(labels)
    if len(counts) < 2:
        labels_present = f"all of them '{next(iter(counts))}'" if counts else "none at all"
        raise InputError(f"a classifier needs texts of two labels or more; these have {labels_present}")
    return dict(sorted(counts.items()))


def _text_ends(texts: Sequence[str], text: EncodedText) -> Ids:
    """(N,) end offset of each text in the token array; every line of a multi-line text ends with `</s>`."""
    lines = [sum(1 for _ in Corpus.from_lines([one])) if "\n" in one or "\r" in one else 1 for one in texts]
    line_ends = np.flatnonzero(text.ids == text.eos) + 1
    return np.asarray(line_ends[np.cumsum(lines, dtype=np.int64) - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesConfig(NgramConfig):
    """Settings of the n-gram models; order 1, naive Bayes, by default."""

    family: Literal["ngram"] = "ngram"
    order: int = NGRAM.order
    smoothing: str = NGRAM.smoothing

    @property
    def ngram(self) -> NgramConfig:
        """The n-gram settings without `family`."""
        return NgramConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(NgramConfig)})


@dataclass(frozen=True, slots=True)
class GenerativeClassifier:
    """p(label | text) ∝ p(label) · p(text | label)."""

    model: BayesClassifier

    @classmethod
    def load(cls, files: VerifiedDir, config: BayesConfig, counts: dict[str, int], tokenizer: Tokenizer) -> Self:
        """Load the classifier from a model folder."""
        prior = tuple(count / sum(counts.values()) for count in counts.values())
        bayes_config = Config(labels=tuple(counts), prior=prior, ngram=settings.to_json(config.ngram))
        return cls(BayesClassifier.load(files, bayes_config, tokenizer))

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer shared by all n-gram models."""
        return self.model.tokenizer

    @property
    def parameters(self) -> int:
        """Number of estimated parameters."""
        return sum(families.get("ngram").parameters(lm) for lm in self.model.models)

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(label | text)."""
        progress = as_progress(progress)
        return self.model.log_posteriors(texts, progress)

    @property
    def default_explanation(self) -> str:
        """Explanation method."""
        return "evidence"

    def explain(self, text: str, label: int, other: int, by: str) -> tuple[Ids, list[Span], Floats]:
        """Tokens with log p(token | history, label) − log p(token | history, other)."""
        if by != "evidence":
            raise ConfigError(f"an n-gram classifier has no {by}; explain it by evidence")
        log_probs = np.stack([log_p for _, log_p in self.model.token_log_likelihoods(text)])  # (T, K)
        with np.errstate(invalid="ignore"):
            difference = log_probs[:, label] - log_probs[:, other]
        ids, spans = locate_tokens(text, self.tokenizer)
        return ids, spans, np.where(np.isnan(difference), 0.0, difference)  # impossible for both: no evidence

    def files(self) -> dict[str, Content]:
        """Files of the model folder."""
        return self.model.files()


def locate_tokens(text: str, tokenizer: Tokenizer) -> tuple[Ids, list[Span]]:
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


def train(
    data: LabelledTexts, tokenizer: str | Path | None, options: RunOptions, chosen: dict[str, Any]
) -> tuple[GenerativeClassifier, BayesConfig, dict[str, Any]]:
    """Train one n-gram model per label; `chosen` holds tokenizer and n-gram settings."""
    tokenizer_settings, model_settings = split_settings(chosen)
    config = settings.build_config(BayesConfig, model_settings | {"family": "ngram"}, "model", "ngram")
    if tokenizer is not None and tokenizer not in KINDS:
        raise ConfigError(f"an n-gram classifier trains its own tokenizer: choose one of {', '.join(KINDS)}")
    choice = settings.build_config(
        TokenizerConfig, {"kind": tokenizer or "word", "lowercase": True} | tokenizer_settings, "tokenizer"
    )
    start = time.perf_counter()
    model = BayesClassifier.train(
        data.texts, data.labels, tokenizer=choice, ngram=config.ngram, seed=options.seed, progress=options.progress
    )
    seconds = round(time.perf_counter() - start, 3)
    return GenerativeClassifier(model), config, {"train_texts": len(data), "train_seconds": seconds}
