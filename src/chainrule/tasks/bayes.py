"""Generative text classifier: one n-gram language model per class, combined by Bayes' rule.

p(c | text) ∝ p(c) · p(text | c). All models share one vocabulary. With order 1 and add-one smoothing this is
multinomial naive Bayes, except that `</s>` counts as a word. The tokenizer is saved by the caller.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.data.encoded import EncodedText
from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.evaluation.scores import token_log_probs
from chainrule.folder import Content, VerifiedDir
from chainrule.lm import AnyModel, Floats, Ids
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
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
