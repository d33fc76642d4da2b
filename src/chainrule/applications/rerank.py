"""Rerank n-best lists by a log-linear combination of their scores and language-model scores."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.nbest import NBest
from chainrule.applications.weights import Tuning, TuningData, choose_best, make_folds, tune
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation.significance import Comparison
from chainrule.evaluation.word_error import compare_word_errors, word_error_rate, word_errors
from chainrule.lm import AnyModel, Context, Floats, Ids
from chainrule.model import Model
from chainrule.progress import Progress, as_progress, silent

LENGTH_FEATURES: Final = ("words", "characters")
"""Length features."""


@dataclass(frozen=True, slots=True)
class ScoredNBest:
    """N-best lists with F scores per hypothesis.

    A hypothesis with a score of −∞ is never chosen, unless all hypotheses of its utterance have one; that score is
    then ignored for the utterance.
    """

    nbest: NBest
    names: tuple[str, ...]  # (F,)
    values: Floats  # (R, F), all finite
    is_possible: NDArray[np.bool_]  # (R,)

    def totals(self, weights: Floats) -> Floats:
        """(R,) weighted score Σ_f w_f x_f of each hypothesis."""
        return np.where(self.is_possible, self.values @ weights, -np.inf)

    def choose(self, weights: Floats) -> Ids:
        """(U,) row of the best hypothesis of each utterance."""
        return choose_best(self.totals(weights), self.nbest.starts)

    def lists(self, errors: Ids) -> TuningData:
        """Tuning data: the hypotheses that can be chosen."""
        offsets = np.concatenate([[0], np.cumsum(self.is_possible)])
        return TuningData(
            self.values[self.is_possible], offsets[self.nbest.starts], errors[self.is_possible].astype(float)
        )

    def weights(self, chosen: Mapping[str, float]) -> Floats:
        """(F,) weights from a mapping by name or unique prefix; unnamed weights are 0."""
        weights = np.zeros(len(self.names))
        for prefix, weight in chosen.items():
            matches = [prefix] if prefix in self.names else [name for name in self.names if name.startswith(prefix)]
            if len(matches) != 1 or not prefix:
                problem = "several scores" if matches else "no score"
                raise ConfigError(f"there is {problem} '{prefix}' to weigh; choose from {', '.join(self.names)}")
            weights[self.names.index(matches[0])] = weight
        return weights


@dataclass(frozen=True, slots=True)
class WordErrorReport:
    """Word errors of the first, the chosen and the oracle hypotheses."""

    words: Ids  # (U,) reference lengths
    first: Ids  # (U,) errors
    chosen: Ids
    oracle: Ids

    @property
    def rates(self) -> dict[str, float]:
        """Word error rates in percent."""
        choices = {"first": self.first, "reranked": self.chosen, "oracle": self.oracle}
        return {name: word_error_rate(errors, self.words) for name, errors in choices.items()}

    def compare(self, samples: int = 1000, seed: int = 0) -> Comparison:
        """Paired bootstrap over utterances of chosen against first hypotheses."""
        return compare_word_errors(self.chosen, self.first, self.words, samples=samples, seed=seed)


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """Choices by weights tuned on the other folds."""

    rows: Ids  # (U,)
    totals: Floats  # (U,) weighted scores of these rows
    weights: list[Floats]  # per fold


@dataclass(frozen=True, slots=True)
class _IndependentLines:
    """Wraps a `stream` model to score each hypothesis independently."""

    lm: AnyModel
    context: Context = "line"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)


def score_texts(model: Model, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
    """(R,) log p of each text in nats, unknown words spelled out, each text independent."""
    progress = as_progress(progress)
    independent = (
        dataclasses.replace(model, lm=_IndependentLines(model.lm)) if model.lm.context == "stream" else model
    )
    distinct = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    by_text = {s.text: s.log_prob_with_spelling for s in independent.scores(distinct, progress)}
    return np.array([by_text[" ".join(text.split())] for text in texts])


def score(
    nbest: NBest,
    models: Mapping[str, Model],
    lengths: Sequence[str] = ("words",),
    progress: Progress | bool = silent,
) -> ScoredNBest:
    """Collect the scores of the lists, of the models and the length features, in this order."""
    progress = as_progress(progress)
    columns = dict(nbest.scores)
    for name, model in models.items():
        columns[_unique_name(name, columns)] = score_texts(model, nbest.texts, progress)
    for name in lengths:
        if name not in LENGTH_FEATURES:
            raise ConfigError(f"there is no length '{name}'; choose from {', '.join(LENGTH_FEATURES)}")
        characters = np.array([len(hypothesis) for hypothesis in nbest.hypotheses])
        columns[_unique_name(name, columns)] = (nbest.words if name == "words" else characters).astype(float)
    if not columns:
        raise ConfigError(f"{nbest.name} has no scores and no model was given; give one of them")
    return resolve_impossible(nbest, columns)


def resolve_impossible(nbest: NBest, columns: Mapping[str, Floats]) -> ScoredNBest:
    """Build `ScoredNBest` from score columns, resolving values of −∞."""
    values = np.stack(list(columns.values()), axis=1)  # (R, F)
    is_possible = ~np.isneginf(values).any(axis=1)
    owner = np.repeat(np.arange(len(nbest.utterances)), np.diff(nbest.starts))
    has_none = ~np.logical_or.reduceat(is_possible, nbest.starts[:-1])  # (U,)
    if has_none.any():
        count, first = int(has_none.sum()), nbest.utterances[int(has_none.argmax())]
        warnings.warn(
            f"in {count} of {len(nbest.utterances)} lists, {first} the first, some score calls every hypothesis "
            "impossible: it is not counted there",
            ChainruleWarning,
            stacklevel=3,
        )
    values = np.where(np.isneginf(values), 0.0, values)
    return ScoredNBest(nbest, tuple(columns), values, is_possible | has_none[owner])


def count_errors(nbest: NBest, references: Mapping[str, str]) -> tuple[Ids, Ids]:
    """(R,) word errors of each hypothesis and (U,) words of each reference."""
    missing = [id_ for id_ in nbest.utterances if id_ not in references]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(nbest.utterances)} utterances of {nbest.name} have no reference, "
            f"{missing[0]} the first; add them, or leave their hypotheses out"
        )
    errors, words = [], []
    for id_, begin, end in zip(nbest.utterances, nbest.starts[:-1], nbest.starts[1:], strict=True):
        reference = references[id_].split()
        errors.append(word_errors([hypothesis.split() for hypothesis in nbest.hypotheses[begin:end]], reference))
        words.append(len(reference))
    return np.concatenate(errors), np.array(words)


def evaluate_choice(nbest: NBest, rows: Ids, errors: Ids, words: Ids) -> WordErrorReport:
    """Word errors of chosen, first and oracle hypotheses."""
    oracle = np.minimum.reduceat(errors, nbest.starts[:-1])
    return WordErrorReport(words, errors[nbest.starts[:-1]], errors[rows], oracle)


def cross_validate(
    scored: ScoredNBest, errors: Ids, parts: int, tuning: Tuning = "expected", seed: int = 0
) -> CrossValidated:
    """Cross-validated choice: tune weights on all folds but one and choose in that one."""
    nbest = scored.nbest
    lists = scored.lists(errors)
    utterances = np.arange(len(nbest.utterances))
    rows = np.empty(len(utterances), dtype=np.int64)
    totals = np.empty(len(utterances))
    fold_weights = []
    for part in make_folds(nbest.utterances, parts, seed):
        weights = tune(lists.of(np.setdiff1d(utterances, part)), tuning, seed)
        chosen = scored.choose(weights)[part]
        rows[part], totals[part] = chosen, scored.totals(weights)[chosen]
        fold_weights.append(weights)
    return CrossValidated(rows, totals, fold_weights)


def _unique_name(name: str, used: Mapping[str, Floats]) -> str:
    """The name, with a number appended if it is in use."""
    unique, number = name, 2
    while unique in used:
        unique, number = f"{name}-{number}", number + 1
    return unique
