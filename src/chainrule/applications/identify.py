"""Whose text is it: one model for each language, author or kind, and Bayes' rule.

p(class | text) ∝ p(class) · p(text | class). The probabilities are of the text itself, unknown words spelled out,
so that models with vocabularies of their own can be compared. Not here: learning classes (tasks/classify.py).
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from chainrule.applications.lines import Scorer
from chainrule.errors import ChainruleWarning, UsageError
from chainrule.lm import Floats
from chainrule.model import Model


@dataclass(frozen=True, slots=True)
class Identifier:
    """K models with a name and a prior probability each."""

    names: tuple[str, ...]
    scorers: tuple[Scorer, ...]
    prior: tuple[float, ...]

    @classmethod
    def of(cls, models: Mapping[str, Model], prior: Sequence[float] | None = None) -> Self:
        """Of models by name; every class is as probable as the others unless a prior is given."""
        if len(models) < 2:
            raise UsageError(f"{len(models)} model given; identification is between two or more")
        weights = [1.0] * len(models) if prior is None else list(prior)
        if len(weights) != len(models):
            raise UsageError(f"the prior has {len(weights)} numbers for {len(models)} models; give one for each")
        if not all(np.isfinite(weight) and weight > 0 for weight in weights):
            raise UsageError("the prior has a number that is not above 0; give weights such as 2,1,1")
        _check(models)
        scorers = tuple(Scorer(model) for model in models.values())
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
        """(N, K) p(class | text); the prior, where no model gives the line any probability."""
        joint = self.log_joint(lines)
        impossible = np.isneginf(joint).all(axis=1)
        joint[impossible] = np.log(self.prior)
        p = np.exp(joint - joint.max(axis=1, initial=-np.inf, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def identify(self, lines: Sequence[str]) -> list[str]:
        """The most probable class of each line, the first among equals."""
        return [self.names[k] for k in self.probabilities(lines).argmax(axis=1).tolist()]


def _check(models: Mapping[str, Model]) -> None:
    """Refuse scores that are no probabilities; warn where two models see different texts."""
    for name, model in models.items():
        if not model.lm.is_normalized:
            raise UsageError(f"{name} gives scores, not probabilities; train it with another smoothing")
    seen = {(m.tokenizer.config.collapses_blanks, m.tokenizer.config.lowercase) for m in models.values()}
    if len(seen) > 1:
        warnings.warn(
            "some of these models see blanks or capitals that others do not, which favours those that see less; "
            "train all with one kind of tokenizer",
            ChainruleWarning,
            stacklevel=3,
        )
