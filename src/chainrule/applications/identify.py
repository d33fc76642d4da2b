"""Identify the language, author or genre of a text with one model per class and Bayes' rule.

p(class | text) ∝ p(class) · p(text | class). Unknown words are spelled out, so that models with different
vocabularies can be compared.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from chainrule.applications.line_scoring import LineScorer
from chainrule.errors import ChainruleWarning, UsageError
from chainrule.lm import Floats
from chainrule.model import Model


@dataclass(frozen=True, slots=True)
class Identifier:
    """K named class models with prior probabilities."""

    names: tuple[str, ...]
    scorers: tuple[LineScorer, ...]
    prior: tuple[float, ...]

    @classmethod
    def of(cls, models: Mapping[str, Model], prior: Sequence[float] | None = None) -> Self:
        """Create from models by name; the prior defaults to uniform."""
        if len(models) < 2:
            raise UsageError(f"{len(models)} model given; give two or more")
        weights = [1.0] * len(models) if prior is None else list(prior)
        if len(weights) != len(models):
            raise UsageError(f"the prior has {len(weights)} numbers for {len(models)} models; give one for each")
        if not all(np.isfinite(weight) and weight > 0 for weight in weights):
            raise UsageError("the prior has a number that is not above 0; give weights such as 2,1,1")
        _check(models)
        scorers = tuple(LineScorer(model) for model in models.values())
        return cls(tuple(models), scorers, tuple(weight / sum(weights) for weight in weights))

    @property
    def models(self) -> list[Model]:
        """The models, in the order of the names."""
        return [scorer.model for scorer in self.scorers]

    def log_joint(self, lines: Sequence[str]) -> Floats:
        """(N, K) log p(class) + log p(text | class), nats."""
        columns = [np.zeros((len(lines), 0))]
        for scorer, p in zip(self.scorers, self.prior, strict=True):
            columns.append((scorer.score(lines).log_probs_with_spelling + np.log(p))[:, None])
        return np.concatenate(columns, axis=1)

    def probabilities(self, lines: Sequence[str]) -> Floats:
        """(N, K) p(class | text); the prior for lines of probability 0 under every model."""
        joint = self.log_joint(lines)
        impossible = np.isneginf(joint).all(axis=1)
        joint[impossible] = np.log(self.prior)
        p = np.exp(joint - joint.max(axis=1, initial=-np.inf, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def identify(self, lines: Sequence[str]) -> list[str]:
        """Most probable class of each line; ties go to the first."""
        return [self.names[k] for k in self.probabilities(lines).argmax(axis=1).tolist()]


def _check(models: Mapping[str, Model]) -> None:
    """Raise for unnormalized models; warn if models normalize the text differently."""
    for name, model in models.items():
        if not model.lm.is_normalized:
            raise UsageError(f"{name} gives scores, not probabilities; train it with another smoothing")
    normalizations = {(m.tokenizer.config.collapses_blanks, m.tokenizer.config.lowercase) for m in models.values()}
    if len(normalizations) > 1:
        warnings.warn(
            "the tokenizers of these models treat blanks or capitals differently, which biases the comparison; "
            "train all with one kind of tokenizer",
            ChainruleWarning,
            stacklevel=3,
        )
