"""Weights of a log-linear choice, s_k = Σ_f w_f x_kf, such that the chosen hypotheses have few word errors.

Lives here: the choice by weights, two ways to find them, and folds of utterances. Not here: where the scores come
from (rerank.py). Two objectives: the errors themselves, which jump, along exact lines (Och 2003), and the expected
errors under p_k ∝ exp(s_k), which are smooth (Smith & Eisner 2006).
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

SIZE_PENALTY: Final = (
    0.05  # of the squared weights, scores scaled to a deviation of 1: keeps a choice from being too sure
)
FINEST_STEP: Final = 1e-3
STARTS: Final = 6  # of the exact search


@dataclass(frozen=True, slots=True)
class Lists:
    """Scores and errors of the hypotheses of U utterances, R in all."""

    scores: Floats  # (R, F)
    starts: Ids  # (U + 1,) utterance u has the rows starts[u] to starts[u + 1]
    errors: Floats  # (R,)

    def of(self, utterances: Ids) -> "Lists":
        """Those of some utterances."""
        rows = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in utterances])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[utterances])])
        return Lists(self.scores[rows], starts, self.errors[rows])


def choose(scores: Floats, starts: Ids) -> Ids:
    """The row of the highest score of each utterance, the first among equals: (R,), (U + 1,) -> (U,)."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    is_best = scores == np.maximum.reduceat(scores, starts[:-1])[owner]
    rows = np.flatnonzero(is_best)
    return rows[np.searchsorted(owner[rows], np.arange(len(starts) - 1))]


def tune(lists: Lists, tuning: Tuning = "expected", seed: int = 0) -> Floats:
    """The weights with the fewest errors, (F,).

    Only their ratios matter: the first is 1, or, where it would not be above 0, the largest is 1 in size.
    """
    if tuning not in TUNINGS:
        raise ConfigError(f"tuning is '{tuning}'; choose one of {', '.join(TUNINGS)}")
    centred, scale = _standardised(lists)
    found = _fewest_expected(centred) if tuning == "expected" else _fewest(centred, np.random.default_rng(seed))
    weights = found / scale
    size = weights[0] if weights[0] > 0 else np.abs(weights).max()
    return np.asarray(weights / size if size > 0 else weights)


def folds(names: Sequence[str], number: int, seed: int = 0) -> list[Ids]:
    """The places of the names in folds of like size, by the names and the seed alone, not by their order."""
    if not 2 <= number <= len(names):
        raise ConfigError(f"cross-validation in {number} parts needs 2 to {len(names)}, as many as utterances")
    order = sorted(range(len(names)), key=lambda i: hashlib.sha256(f"{seed}\0{names[i]}".encode()).digest())
    return [np.sort(np.array(order[first::number])) for first in range(number)]


def _standardised(lists: Lists) -> tuple[Lists, Floats]:
    """Scores without their mean over the utterance, which no choice depends on, in units of their deviation."""
    counts = np.diff(lists.starts)
    means = np.add.reduceat(lists.scores, lists.starts[:-1]) / counts[:, None]  # (U, F)
    centred = lists.scores - np.repeat(means, counts, axis=0)
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    return Lists(centred / scale, lists.starts, lists.errors), scale


def _fewest_expected(lists: Lists) -> Floats:
    """Weights with the least Σ_u Σ_k p_k e_k + penalty, where p_k ∝ exp(s_k)."""
    owner = np.repeat(np.arange(len(lists.starts) - 1), np.diff(lists.starts))

    def expected(weights: Floats) -> float:
        s = lists.scores @ weights
        p = np.exp(s - np.maximum.reduceat(s, lists.starts[:-1])[owner])
        of_utterances = np.add.reduceat(np.stack([p * lists.errors, p], axis=1), lists.starts[:-1])  # (U, 2)
        return float((of_utterances[:, 0] / of_utterances[:, 1]).sum() + SIZE_PENALTY * weights @ weights)

    return _descend(expected, np.full(lists.scores.shape[1], 0.5))


def _descend(function: Callable[[Floats], float], weights: Floats) -> Floats:
    """Compass search: a step along each axis and along the weights themselves, halved where none is better."""
    lowest, step = function(weights), 1.0
    while step > FINEST_STEP:
        is_better = False
        axes = step * np.eye(len(weights))
        for move in (*axes, *-axes, 0.5 * step * weights, -step / (2 + step) * weights):
            value = function(weights + move)
            if value < lowest - 1e-9:
                weights, lowest, is_better = weights + move, value, True
        step = step if is_better else step / 2
    return weights


def _fewest(lists: Lists, rng: np.random.Generator) -> Floats:
    """Weights with the fewest errors that exact searches along the axes find from several starts (Och 2003)."""
    size = lists.scores.shape[1]
    begins = [
        np.ones(size),
        *rng.uniform([1.0] + [-1.0] * (size - 1), [1.0] + [3.0] * (size - 1), (STARTS - 1, size)),
    ]
    best, fewest = begins[0], np.inf
    for weights in begins:
        found, errors = _by_lines(lists, weights)
        if errors < fewest:
            best, fewest = found, errors
    return np.asarray(best)


def _by_lines(lists: Lists, weights: Floats) -> tuple[Floats, float]:
    """The best of all axes again and again, until none has fewer errors."""
    errors = float(lists.errors[choose(lists.scores @ weights, lists.starts)].sum())
    while True:
        lines = [(*best_on_line(lists, weights, axis), axis) for axis in np.eye(len(weights))]
        fewest, step, axis = min(lines, key=lambda line: line[0])
        if fewest >= errors:
            return weights, errors
        weights, errors = weights + step * axis, fewest


def best_on_line(lists: Lists, weights: Floats, direction: Floats) -> tuple[float, float]:
    """The fewest errors of weights + γ · direction over all γ, and the middle of the widest stretch that has them.

    Along the line each hypothesis is a straight line in γ, the chosen ones their upper envelope: errors change only
    where the envelope has a corner.
    """
    heights, slopes = lists.scores @ weights, lists.scores @ direction
    first, corners, changes = 0.0, [], []
    for begin, end in zip(lists.starts[:-1], lists.starts[1:], strict=True):
        of_envelope, at = _envelope(heights[begin:end], slopes[begin:end])
        errors = lists.errors[begin:end][of_envelope]
        first += float(errors[0])  # for γ → −∞
        corners.append(at)
        changes.append(np.diff(errors))
    where = np.concatenate(corners)
    if not len(where):
        return first, 0.0
    order = np.argsort(where, kind="stable")
    totals = first + np.concatenate([[0.0], np.cumsum(np.concatenate(changes)[order])])  # of each stretch
    where = where[order]
    bounds = np.concatenate([[where[0] - 1], where, [where[-1] + 1]])  # the open ends: one deviation wide
    widths = np.where(totals == totals.min(), np.diff(bounds), -1.0)
    stretch = int(widths.argmax())
    return float(totals[stretch]), float(bounds[stretch] + bounds[stretch + 1]) / 2


def _envelope(heights: Floats, slopes: Floats) -> tuple[list[int], Floats]:
    """The lines that are highest somewhere, from γ → −∞ on, and where each takes over from the one before."""
    kept: list[int] = []
    since: list[float] = []  # from where on each is highest
    for line in np.lexsort((-np.arange(len(heights)), heights, slopes)):  # by slope, the highest last
        if kept and slopes[kept[-1]] == slopes[line]:
            kept.pop()
            since.pop()
        meeting = -np.inf
        while kept:
            meeting = (heights[kept[-1]] - heights[line]) / (slopes[line] - slopes[kept[-1]])
            if meeting > since[-1]:
                break
            kept.pop()
            since.pop()
        kept.append(int(line))
        since.append(meeting if len(kept) > 1 else -np.inf)
    return kept, np.array(since[1:])
