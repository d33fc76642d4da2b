"""Rerank n-best lists by a log-linear combination of their scores and language-model scores.

Weights are tuned on references, by minimum expected error or by minimum error rate training (Och 2003).
"""

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.nbest import NBest
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation.significance import Comparison
from chainrule.evaluation.word_error import compare_word_errors, word_error_rate, word_errors
from chainrule.lm import AnyModel, Context, Floats, Ids
from chainrule.model import Model
from chainrule.progress import Progress, as_progress, silent

Tuning = Literal["expected", "exact"]
TUNINGS: Final[tuple[Tuning, ...]] = get_args(Tuning)
L2_PENALTY: Final = 0.05
"""L2 penalty of the weights, for scores scaled to unit standard deviation."""
MIN_STEP: Final = 1e-3
STARTS: Final = 6  # starting points of the exact search
LENGTH_FEATURES: Final = ("words", "characters")


@dataclass(frozen=True, slots=True)
class TuningData:
    """Scores and errors of R hypotheses of U utterances."""

    scores: Floats  # (R, F)
    starts: Ids  # (U + 1,) utterance u has rows starts[u] to starts[u + 1] − 1
    errors: Floats  # (R,)

    def of(self, utterances: Ids) -> "TuningData":
        """Select utterances."""
        rows = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in utterances])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[utterances])])
        return TuningData(self.scores[rows], starts, self.errors[rows])


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
                raise ConfigError(f"there is {problem} named '{prefix}'; choose from {', '.join(self.names)}")
            weights[self.names.index(matches[0])] = weight
        return weights


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
            raise ConfigError(f"there is no length feature '{name}'; choose from {', '.join(LENGTH_FEATURES)}")
        characters = np.array([len(hypothesis) for hypothesis in nbest.hypotheses])
        columns[_unique_name(name, columns)] = (nbest.words if name == "words" else characters).astype(float)
    if not columns:
        raise ConfigError(f"{nbest.name} has no scores and no model was given; give one of them")
    return resolve_impossible(nbest, columns)


def score_texts(model: Model, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
    """(R,) log p of each text in nats, unknown words spelled out, each text independent."""
    progress = as_progress(progress)
    independent = (
        dataclasses.replace(model, lm=_IndependentLines(model.lm)) if model.lm.context == "stream" else model
    )
    distinct = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    by_text = {s.text: s.log_prob_with_spelling for s in independent.scores(distinct, progress)}
    return np.array([by_text[" ".join(text.split())] for text in texts])


@dataclass(frozen=True, slots=True)
class _IndependentLines:
    """Wraps a `stream` model to score each hypothesis independently."""

    lm: AnyModel
    context: Context = "line"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)


def resolve_impossible(nbest: NBest, columns: Mapping[str, Floats]) -> ScoredNBest:
    """Build `ScoredNBest` from score columns, resolving values of −∞."""
    values = np.stack(list(columns.values()), axis=1)  # (R, F)
    is_possible = ~np.isneginf(values).any(axis=1)
    owner = np.repeat(np.arange(len(nbest.utterances)), np.diff(nbest.starts))
    has_none = ~np.logical_or.reduceat(is_possible, nbest.starts[:-1])  # (U,)
    if has_none.any():
        count, first = int(has_none.sum()), nbest.utterances[int(has_none.argmax())]
        warnings.warn(
            f"in {count} of {len(nbest.utterances)} lists (first: {first}) a score is −∞ for every hypothesis: "
            "it is ignored there",
            ChainruleWarning,
            stacklevel=3,
        )
    values = np.where(np.isneginf(values), 0.0, values)
    return ScoredNBest(nbest, tuple(columns), values, is_possible | has_none[owner])


def _unique_name(name: str, used: Mapping[str, Floats]) -> str:
    """The name, with a number appended if it is in use."""
    unique, number = name, 2
    while unique in used:
        unique, number = f"{name}-{number}", number + 1
    return unique


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


def evaluate_choice(nbest: NBest, rows: Ids, errors: Ids, words: Ids) -> WordErrorReport:
    """Word errors of chosen, first and oracle hypotheses."""
    oracle = np.minimum.reduceat(errors, nbest.starts[:-1])
    return WordErrorReport(words, errors[nbest.starts[:-1]], errors[rows], oracle)


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """Hypotheses chosen by cross-validation: in each fold, with the weights tuned on the other folds."""

    rows: Ids  # (U,)
    totals: Floats  # (U,) weighted scores of these rows
    weights: list[Floats]  # per fold


def cross_validate(
    scored: ScoredNBest, errors: Ids, parts: int, tuning: Tuning = "expected", seed: int = 0
) -> CrossValidated:
    """Choose hypotheses by cross-validation: tune the weights on all folds but one, and apply them to that one."""
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


def make_folds(names: Sequence[str], number: int, seed: int = 0) -> list[Ids]:
    """Return folds of similar size as index arrays, determined by the names and the seed, not by the order."""
    if not 2 <= number <= len(names):
        raise ConfigError(f"cross-validation in {number} parts; choose 2 to {len(names)}, the number of utterances")
    order = sorted(range(len(names)), key=lambda i: hashlib.sha256(f"{seed}\0{names[i]}".encode()).digest())
    return [np.sort(np.array(order[first::number])) for first in range(number)]


def choose_best(scores: Floats, starts: Ids) -> Ids:
    """Return the row with the highest score of each utterance, the first if tied: (R,), (U + 1,) -> (U,)."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    is_best = scores == np.maximum.reduceat(scores, starts[:-1])[owner]
    rows = np.flatnonzero(is_best)
    return rows[np.searchsorted(owner[rows], np.arange(len(starts) - 1))]


def tune(lists: TuningData, tuning: Tuning = "expected", seed: int = 0) -> Floats:
    """(F,) weights that minimize the word errors.

    Only ratios matter: the weights are scaled so that the first is 1 or, if it is not positive, the largest
    absolute weight is 1.
    """
    if tuning not in TUNINGS:
        raise ConfigError(f"tuning is '{tuning}'; choose one of {', '.join(TUNINGS)}")
    standardised, scale = _standardize(lists)
    tuned = (
        _minimize_expected_errors(standardised)
        if tuning == "expected"
        else _minimize_errors(standardised, np.random.default_rng(seed))
    )
    weights = tuned / scale
    size = weights[0] if weights[0] > 0 else np.abs(weights).max()
    return np.asarray(weights / size if size > 0 else weights)


def _standardize(lists: TuningData) -> tuple[TuningData, Floats]:
    """Centre scores per utterance and scale them to unit standard deviation."""
    counts = np.diff(lists.starts)
    means = np.add.reduceat(lists.scores, lists.starts[:-1]) / counts[:, None]  # (U, F)
    centred = lists.scores - np.repeat(means, counts, axis=0)
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    return TuningData(centred / scale, lists.starts, lists.errors), scale


def _minimize_expected_errors(lists: TuningData) -> Floats:
    """Minimize Σ_u Σ_k p_k e_k + penalty, where p_k ∝ exp(s_k)."""
    owner = np.repeat(np.arange(len(lists.starts) - 1), np.diff(lists.starts))

    def expected(weights: Floats) -> float:
        s = lists.scores @ weights
        p = np.exp(s - np.maximum.reduceat(s, lists.starts[:-1])[owner])
        sums = np.add.reduceat(np.stack([p * lists.errors, p], axis=1), lists.starts[:-1])  # (U, 2)
        return float((sums[:, 0] / sums[:, 1]).sum() + L2_PENALTY * weights @ weights)

    return _compass_search(expected, np.full(lists.scores.shape[1], 0.5))


def _compass_search(function: Callable[[Floats], float], weights: Floats) -> Floats:
    """Compass search: steps along each axis and along the weights, halved when none improves."""
    lowest, step = function(weights), 1.0
    while step > MIN_STEP:
        is_better = False
        axes = step * np.eye(len(weights))
        for move in (*axes, *-axes, 0.5 * step * weights, -step / (2 + step) * weights):
            value = function(weights + move)
            if value < lowest - 1e-9:
                weights, lowest, is_better = weights + move, value, True
        step = step if is_better else step / 2
    return weights


def _minimize_errors(lists: TuningData, rng: np.random.Generator) -> Floats:
    """Minimum error rate training: exact line searches along the axes from several starts (Och 2003)."""
    size = lists.scores.shape[1]
    initial = [
        np.ones(size),
        *rng.uniform([1.0] + [-1.0] * (size - 1), [1.0] + [3.0] * (size - 1), (STARTS - 1, size)),
    ]
    best, fewest = initial[0], np.inf
    for weights in initial:
        optimum, errors = _coordinate_descent(lists, weights)
        if errors < fewest:
            best, fewest = optimum, errors
    return np.asarray(best)


def _coordinate_descent(lists: TuningData, weights: Floats) -> tuple[Floats, float]:
    """Move along the best axis until no axis reduces the errors."""
    errors = float(lists.errors[choose_best(lists.scores @ weights, lists.starts)].sum())
    while True:
        lines = [(*search_line(lists, weights, axis), axis) for axis in np.eye(len(weights))]
        fewest, step, axis = min(lines, key=lambda line: line[0])
        if fewest >= errors:
            return weights, errors
        weights, errors = weights + step * axis, fewest


def search_line(lists: TuningData, weights: Floats, direction: Floats) -> tuple[float, float]:
    """Minimum errors of weights + γ · direction over all γ, and the midpoint of the widest interval attaining them.

    The score of each hypothesis is linear in γ and the chosen ones form the upper envelope: errors change only at
    corners of the envelope.
    """
    heights, slopes = lists.scores @ weights, lists.scores @ direction
    first, corners, changes = 0.0, [], []
    for begin, end in zip(lists.starts[:-1], lists.starts[1:], strict=True):
        envelope, positions = _envelope(heights[begin:end], slopes[begin:end])
        errors = lists.errors[begin:end][envelope]
        first += float(errors[0])  # for γ → −∞
        corners.append(positions)
        changes.append(np.diff(errors))
    boundaries = np.concatenate(corners)
    if not len(boundaries):
        return first, 0.0
    order = np.argsort(boundaries, kind="stable")
    totals = first + np.concatenate([[0.0], np.cumsum(np.concatenate(changes)[order])])  # per interval
    boundaries = boundaries[order]
    bounds = np.concatenate(
        [[boundaries[0] - 1], boundaries, [boundaries[-1] + 1]]
    )  # unbounded intervals count as width 1
    widths = np.where(totals == totals.min(), np.diff(bounds), -1.0)
    interval = int(widths.argmax())
    return float(totals[interval]), float(bounds[interval] + bounds[interval + 1]) / 2


def _envelope(heights: Floats, slopes: Floats) -> tuple[list[int], Floats]:
    """Upper envelope of lines for increasing γ, and the positions of its corners."""
    envelope: list[int] = []
    starts_at: list[float] = []  # start of the interval in which each line is highest
    for line in np.lexsort((-np.arange(len(heights)), heights, slopes)):  # by slope, then height
        if envelope and slopes[envelope[-1]] == slopes[line]:
            envelope.pop()
            starts_at.pop()
        meeting = -np.inf
        while envelope:
            meeting = (heights[envelope[-1]] - heights[line]) / (slopes[line] - slopes[envelope[-1]])
            if meeting > starts_at[-1]:
                break
            envelope.pop()
            starts_at.pop()
        envelope.append(int(line))
        starts_at.append(meeting if len(envelope) > 1 else -np.inf)
    return envelope, np.array(starts_at[1:])
