"""Generative text classifier: one n-gram model per label and Bayes' rule."""

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.api import split_settings
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import AnyModel, Floats, Ids
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.verified_dir import Content, VerifiedDir
from chainrule.tasks.classify_report import Span
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts
from chainrule.text.lines import cut_lines
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer


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
            raise ConfigError(f"Bayes' rule needs probabilities, which {config.smoothing} does not give")
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


def train(
    data: LabelledTexts,
    counts: Mapping[str, int],
    tokenizer: str | Path | None,
    options: RunOptions,
    chosen: dict[str, Any],
) -> tuple[NgramClassifier, BayesConfig, dict[str, Any]]:
    """Train one n-gram model per label; `chosen` holds tokenizer and n-gram settings."""
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
