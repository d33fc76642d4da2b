"""Tune weights of a log-linear reranker, s_k = Σ_f w_f x_kf, for minimum word error.

Two objectives: the error count itself by exact line search (MERT, Och 2003), and the expected errors under
p_k ∝ exp(s_k), which are smooth (minimum risk, Smith & Eisner 2006).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids

Tuning = Literal["expected", "exact"]
TUNINGS: Final[tuple[Tuning, ...]] = get_args(Tuning)

L2_PENALTY: Final = 0.05
"""L2 penalty of the weights, for scores scaled to unit standard deviation."""
MIN_STEP: Final = 1e-3
STARTS: Final = 6  # starting points of the exact search


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


def choose_best(scores: Floats, starts: Ids) -> Ids:
    """Row of the highest score of each utterance, the first of ties: (R,), (U + 1,) -> (U,)."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    is_best = scores == np.maximum.reduceat(scores, starts[:-1])[owner]
    rows = np.flatnonzero(is_best)
    return rows[np.searchsorted(owner[rows], np.arange(len(starts) - 1))]


def tune(lists: TuningData, tuning: Tuning = "expected", seed: int = 0) -> Floats:
    """(F,) weights that minimise the word errors.

    Only ratios matter: the first weight is scaled to 1 or, if it is not positive, the largest absolute weight is.
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


def make_folds(names: Sequence[str], number: int, seed: int = 0) -> list[Ids]:
    """Folds of similar size as index arrays; depend on the names and the seed, not on the order."""
    if not 2 <= number <= len(names):
        raise ConfigError(f"cross-validation in {number} parts needs 2 to {len(names)}, as many as utterances")
    order = sorted(range(len(names)), key=lambda i: hashlib.sha256(f"{seed}\0{names[i]}".encode()).digest())
    return [np.sort(np.array(order[first::number])) for first in range(number)]


def _standardize(lists: TuningData) -> tuple[TuningData, Floats]:
    """Centre scores per utterance and scale them to unit standard deviation."""
    counts = np.diff(lists.starts)
    means = np.add.reduceat(lists.scores, lists.starts[:-1]) / counts[:, None]  # (U, F)
    centred = lists.scores - np.repeat(means, counts, axis=0)
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    return TuningData(centred / scale, lists.starts, lists.errors), scale


def _minimize_expected_errors(lists: TuningData) -> Floats:
    """Minimise Σ_u Σ_k p_k e_k + penalty, where p_k ∝ exp(s_k)."""
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
