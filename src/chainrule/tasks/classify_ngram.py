"""Generative text classifier: one n-gram model per label and Bayes' rule."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.api import split_settings
from chainrule.errors import ConfigError
from chainrule.folder import Content, VerifiedDir
from chainrule.lm import Floats, Ids
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import bayes
from chainrule.tasks.bayes import BayesClassifier
from chainrule.tasks.classify_page import Span
from chainrule.tasks.running import RunOptions
from chainrule.text.labelled import LabelledTexts
from chainrule.text.lines import cut_lines
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesConfig(NgramConfig):
    """Settings of the n-gram models; order 1, naive Bayes, by default."""

    family: Literal["ngram"] = "ngram"
    order: int = bayes.NGRAM.order
    smoothing: str = bayes.NGRAM.smoothing

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
        bayes_config = bayes.Config(labels=tuple(counts), prior=prior, ngram=settings.to_json(config.ngram))
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
