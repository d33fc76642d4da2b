"""A text classifier of language models, one a class: p(c | text) ∝ p(c) · p(text | c), Bayes' rule.

Lives here: training one n-gram a class over one vocabulary, posteriors, and what each token says for each class.
Not here: the n-grams themselves, and saving the tokenizer, which whoever writes the folder does.
With order 1 and add-one smoothing this is multinomial naive Bayes, but that `</s>` counts as a word.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.evaluation.scores import token_log_probs
from chainrule.folder import Content, Sealed
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
    """The classes in order, how frequent each is, and the settings of their n-grams; what is saved."""

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
class Bayes:
    """One language model a class, all over the same tokens."""

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
        """One n-gram for each label, on its texts; the tokenizer is trained on all texts."""
        progress = as_progress(progress)
        times = _count_labels(texts, labels)
        if not ngram.is_normalized:
            raise ConfigError(f"Bayes' rule needs probabilities, which {ngram.smoothing} does not give")
        made = tokenizer_training.train(_corpus(texts), tokenizer, progress)
        models = []
        for label in times:
            own = [text for text, given in zip(texts, labels, strict=True) if given == label]
            data = TrainingData(
                train=encode(Corpus.from_lines(own), made, progress),
                valid=None,
                vocabulary=made.vocabulary,
                names=made.names,
                seed=seed,
                progress=progress,
            )
            models.append(families.get("ngram").train(data, ngram))
        prior = tuple(count / len(texts) for count in times.values())
        config = Config(labels=tuple(times), prior=prior, ngram=settings.to_json(ngram))
        return cls(config, made, tuple(models))

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, sorted by name."""
        return self.config.labels

    @property
    def prior(self) -> Floats:
        """(K,) p(c)."""
        return np.array(self.config.prior)

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(c | text); the prior for a text that no class can have written."""
        progress = as_progress(progress)
        text = encode(_corpus(texts), self.tokenizer)
        ends = _ends(texts, text)
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
        """The most probable label of each text; the first by name among equals."""
        progress = as_progress(progress)
        return [self.labels[k] for k in self.log_posteriors(texts, progress).argmax(axis=1)]

    def token_evidence(self, text: str) -> list[tuple[str, Floats]]:
        """Every token of a text, `</s>` included, with (K,) log p(token | those before it, c).

        What a token says for class i against class j is the difference of the two; all of them and the
        difference of the log priors add up to the difference of the log posteriors.
        """
        encoded = encode(_corpus([text]), self.tokenizer)
        log_p = np.stack([token_log_probs(lm, encoded) for lm in self.models], axis=1)  # (T, K)
        return list(zip(self.tokenizer.tokens(encoded.ids.tolist()), log_p, strict=True))

    def files(self) -> dict[str, Content]:
        """Every class's model, each under its number; tokenizer and `config` are the caller's to save."""
        family = families.get("ngram")
        return {
            f"classes/{k}/{name}": content
            for k, lm in enumerate(self.models)
            for name, content in family.files(lm).items()
        }

    @classmethod
    def load(cls, files: Sealed, config: Config, tokenizer: Tokenizer) -> Self:
        """The classifier of saved models."""
        family = families.get("ngram")
        ngram = settings.make(family.Config, config.ngram, "ngram")
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
    """How many texts each label has, in order of the labels' names."""
    _corpus(texts)
    if len(texts) != len(labels):
        raise InputError(f"there are {len(texts)} texts but {len(labels)} labels; give one label a text")
    if "" in labels:
        raise InputError(f"text {list(labels).index('') + 1} has an empty label; give every text a label")
    times = Counter(labels)
    if len(times) < 2:
        found = f"all of them '{next(iter(times))}'" if times else "none at all"
        raise InputError(f"a classifier needs texts of two labels or more; these have {found}")
    return dict(sorted(times.items()))


def _ends(texts: Sequence[str], text: Encoded) -> Ids:
    """(N,) where the tokens of each text end; a text with line breaks is several lines, each with its `</s>`."""
    lines = [sum(1 for _ in Corpus.from_lines([one])) if "\n" in one or "\r" in one else 1 for one in texts]
    line_ends = np.flatnonzero(text.ids == text.eos) + 1
    return np.asarray(line_ends[np.cumsum(lines, dtype=np.int64) - 1])
