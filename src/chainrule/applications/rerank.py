"""Choosing anew among the hypotheses of another program: its scores and those of language models, weighed.

Lives here: the models' scores of a list, the choice, and how good it is. Not here: reading lists (nbest.py),
finding weights (weights.py), word errors (evaluation/word_error.py).
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.nbest import NBest
from chainrule.applications.weights import Lists, Tuning, choose, folds, tune
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation.significance import Comparison
from chainrule.evaluation.word_error import compare_word_errors, word_error_rate, word_errors
from chainrule.lm import AnyModel, Context, Floats, Ids
from chainrule.model import Model
from chainrule.progress import Progress, as_progress, silent

LENGTHS: Final = ("words", "characters")
"""Scores that need no model: how long a hypothesis is."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A list with F scores of each hypothesis.

    One that some score holds to be impossible is never chosen; where all of an utterance are, the score says
    nothing of that utterance.
    """

    nbest: NBest
    names: tuple[str, ...]  # (F,)
    values: Floats  # (R, F), all finite
    is_possible: NDArray[np.bool_]  # (R,)

    def totals(self, weights: Floats) -> Floats:
        """Σ_f w_f x_f of each hypothesis, (R,)."""
        return np.where(self.is_possible, self.values @ weights, -np.inf)

    def choose(self, weights: Floats) -> Ids:
        """The row of the best hypothesis of each utterance, (U,)."""
        return choose(self.totals(weights), self.nbest.starts)

    def lists(self, errors: Ids) -> Lists:
        """What weights are tuned on: the possible hypotheses."""
        kept = np.concatenate([[0], np.cumsum(self.is_possible)])
        return Lists(self.values[self.is_possible], kept[self.nbest.starts], errors[self.is_possible].astype(float))

    def weights(self, chosen: Mapping[str, float]) -> Floats:
        """Weights by name, or by a beginning that only one name has, as an array; those not named are 0."""
        weights = np.zeros(len(self.names))
        for wanted, weight in chosen.items():
            found = [wanted] if wanted in self.names else [name for name in self.names if name.startswith(wanted)]
            if len(found) != 1 or not wanted:
                number = "several scores" if found else "no score"
                raise ConfigError(f"there is {number} '{wanted}' to weigh; choose from {', '.join(self.names)}")
            weights[self.names.index(found[0])] = weight
        return weights


@dataclass(frozen=True, slots=True)
class Judged:
    """The word errors of three choices: the first of each list, another, and the best one could make."""

    words: Ids  # (U,) of the references
    first: Ids  # (U,) errors
    chosen: Ids
    oracle: Ids

    @property
    def rates(self) -> dict[str, float]:
        """The word error rates, in percent."""
        choices = {"first": self.first, "reranked": self.chosen, "oracle": self.oracle}
        return {name: word_error_rate(errors, self.words) for name, errors in choices.items()}

    def compare(self, samples: int = 1000, seed: int = 0) -> Comparison:
        """The chosen against the first, by a paired bootstrap over utterances."""
        return compare_word_errors(self.chosen, self.first, self.words, samples=samples, seed=seed)


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """Every utterance chosen by weights that were tuned on others."""

    rows: Ids  # (U,)
    totals: Floats  # (U,) the scores of these rows, by the weights of their fold
    weights: list[Floats]  # by fold


@dataclass(frozen=True, slots=True)
class _EachAlone:
    """A model that begins anew with every line, whatever its own rule: hypotheses do not follow one another."""

    lm: AnyModel
    context: Context = "line"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)


def log_probs(model: Model, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
    """Log p of each text in nats, its unknown words spelled out; each text begins anew.  (R,)."""
    progress = as_progress(progress)
    alone = dataclasses.replace(model, lm=_EachAlone(model.lm)) if model.lm.context == "stream" else model
    different = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    found = {s.text: s.log_prob_with_spelling for s in alone.scores(different, progress)}
    return np.array([found[" ".join(text.split())] for text in texts])


def score(
    nbest: NBest,
    models: Mapping[str, Model],
    lengths: Sequence[str] = ("words",),
    progress: Progress | bool = silent,
) -> Scored:
    """All scores of a list: its own, the models', the lengths, in this order."""
    progress = as_progress(progress)
    columns = dict(nbest.scores)
    for name, model in models.items():
        columns[_free(name, columns)] = log_probs(model, nbest.texts, progress)
    for name in lengths:
        if name not in LENGTHS:
            raise ConfigError(f"there is no length '{name}'; choose from {', '.join(LENGTHS)}")
        characters = np.array([len(hypothesis) for hypothesis in nbest.hypotheses])
        columns[_free(name, columns)] = (nbest.words if name == "words" else characters).astype(float)
    if not columns:
        raise ConfigError(f"{nbest.name} has no scores and no model was given; give one of them")
    return settle(nbest, columns)


def settle(nbest: NBest, columns: Mapping[str, Floats]) -> Scored:
    """The scores, those that are −∞ resolved as `Scored` says."""
    values = np.stack(list(columns.values()), axis=1)  # (R, F)
    is_possible = ~np.isneginf(values).any(axis=1)
    owner = np.repeat(np.arange(len(nbest.utterances)), np.diff(nbest.starts))
    is_hopeless = ~np.logical_or.reduceat(is_possible, nbest.starts[:-1])  # (U,)
    if is_hopeless.any():
        number, first = int(is_hopeless.sum()), nbest.utterances[int(is_hopeless.argmax())]
        warnings.warn(
            f"in {number} of {len(nbest.utterances)} lists, {first} the first, some score calls every hypothesis "
            "impossible: it is not counted there",
            ChainruleWarning,
            stacklevel=3,
        )
    values = np.where(np.isneginf(values), 0.0, values)
    return Scored(nbest, tuple(columns), values, is_possible | is_hopeless[owner])


def count_errors(nbest: NBest, references: Mapping[str, str]) -> tuple[Ids, Ids]:
    """The word errors of each hypothesis, (R,), and the words of each reference, (U,)."""
    missing = [id_ for id_ in nbest.utterances if id_ not in references]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(nbest.utterances)} utterances of {nbest.name} have no reference, "
            f"{missing[0]} the first; add them, or leave their hypotheses out"
        )
    errors, words = [], []
    for id_, begin, end in zip(nbest.utterances, nbest.starts[:-1], nbest.starts[1:], strict=True):
        said = references[id_].split()
        errors.append(word_errors([hypothesis.split() for hypothesis in nbest.hypotheses[begin:end]], said))
        words.append(len(said))
    return np.concatenate(errors), np.array(words)


def judge(nbest: NBest, rows: Ids, errors: Ids, words: Ids) -> Judged:
    """The errors of a choice beside those of the first hypotheses and of the best ones."""
    oracle = np.minimum.reduceat(errors, nbest.starts[:-1])
    return Judged(words, errors[nbest.starts[:-1]], errors[rows], oracle)


def cross_validate(
    scored: Scored, errors: Ids, parts: int, tuning: Tuning = "expected", seed: int = 0
) -> CrossValidated:
    """Tune on all parts but one, choose in that one, for each; the parts by the names of the utterances."""
    nbest = scored.nbest
    lists = scored.lists(errors)
    everyone = np.arange(len(nbest.utterances))
    rows = np.empty(len(everyone), dtype=np.int64)
    totals = np.empty(len(everyone))
    found = []
    for part in folds(nbest.utterances, parts, seed):
        weights = tune(lists.of(np.setdiff1d(everyone, part)), tuning, seed)
        chosen = scored.choose(weights)[part]
        rows[part], totals[part] = chosen, scored.totals(weights)[chosen]
        found.append(weights)
    return CrossValidated(rows, totals, found)


def _free(name: str, taken: Mapping[str, Floats]) -> str:
    """The name, numbered where it is taken."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
