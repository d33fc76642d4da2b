"""How well labels are found, and how far the probabilities behind them can be believed.

Lives here: the confusion matrix and what follows from it, calibration. Not here: labels of words in a sentence.
Letters: N examples, K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats, Ids, Mask

TOLERANCE = 1e-4
"""How far from 1 the probabilities of an example may sum, as single precision leaves them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """Figures of one-label classification; where nothing is to be divided by, a figure is 0."""

    labels: tuple[str, ...]
    confusion: Ids  # (K, K)  row: the true label, column: the one found
    support: Ids  # (K,)  examples that truly have the label
    accuracy: float
    precision: Floats  # (K,)  of those found, how many are right
    recall: Floats  # (K,)  of those there are, how many were found
    f1: Floats  # (K,)  harmonic mean of the two
    macro_precision: float  # means over labels
    macro_recall: float
    macro_f1: float
    micro_f1: float  # over all labels together, where it equals the accuracy


@dataclass(frozen=True, slots=True)
class Bin:
    """The examples whose confidence is above `low` and at most `high`; at least one."""

    low: float
    high: float
    count: int
    confidence: float  # mean probability of the class found
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How probabilities compare with what happened."""

    expected_error: float  # of the class found: Σ count/N · |accuracy − confidence|
    maximum_error: float  # the largest |accuracy − confidence| of a bin
    brier: float  # mean of Σ_k (p_k − y_k)², from 0 to 2
    log_loss: float  # mean of −log p(true class), in nats
    bins: list[Bin]  # those with examples, in order


def evaluate(gold: Sequence[str], found: Sequence[str], labels: Sequence[str]) -> Classes:
    """Compare found labels with true ones; every label of `labels` counts, also one that never occurs.

    >>> evaluate(["a", "a", "b"], ["a", "b", "b"], ["a", "b"]).confusion.tolist()
    [[1, 1], [0, 1]]
    """
    if len(gold) != len(found):
        raise InputError(
            f"there are {len(gold)} true labels but {len(found)} found ones; give one for each example"
        )
    if not len(gold):
        raise InputError("there is no example to evaluate; give at least one")
    rows, columns = (_number(given, labels) for given in (gold, found))
    K = len(labels)
    confusion = np.bincount(rows * K + columns, minlength=K * K).reshape(K, K)
    right = confusion.diagonal()  # (K,)
    chosen, support = confusion.sum(axis=0), confusion.sum(axis=1)  # (K,) each
    precision, recall = _divide(right, chosen), _divide(right, support)
    f1 = _divide(2 * right, chosen + support)  # 2 P R / (P + R), without its 0 / 0
    return Classes(
        labels=tuple(labels),
        confusion=confusion,
        support=support,
        accuracy=float(right.sum() / len(gold)),
        precision=precision,
        recall=recall,
        f1=f1,
        macro_precision=float(precision.mean()),
        macro_recall=float(recall.mean()),
        macro_f1=float(f1.mean()),
        micro_f1=float(2 * right.sum() / (chosen.sum() + support.sum())),
    )


def calibration(probabilities: ArrayLike, gold: ArrayLike, bins: int = 10) -> Calibration:
    """Calibration of probabilities (N, K) given the ids of the true classes (N,); bins of equal width.

    The class found is the most probable one, the lowest id among equals; its probability is the confidence
    (Guo et al. 2017).
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(gold)
    _check_probabilities(p, y, bins)
    filled = _fill_bins(p.max(axis=1), p.argmax(axis=1) == y, bins)
    errors = np.array([abs(b.accuracy - b.confidence) for b in filled])
    weights = np.array([b.count for b in filled]) / len(y)
    truth = np.eye(p.shape[1])[y]  # (N, K)
    with np.errstate(divide="ignore"):
        nats = -np.log(p[np.arange(len(y)), y])
    return Calibration(
        expected_error=float(weights @ errors),
        maximum_error=float(errors.max()),
        brier=float(((p - truth) ** 2).sum(axis=1).mean()),
        log_loss=float(nats.mean()),
        bins=filled,
    )


def _fill_bins(confidence: Floats, is_right: Mask, bins: int) -> list[Bin]:
    edges = np.arange(bins + 1) / bins
    owners = np.searchsorted(edges[1:-1], confidence, side="left")  # (N,)  the bin with low < confidence ≤ high
    filled = []
    for i in np.unique(owners):
        here = owners == i
        mean, accuracy = float(confidence[here].mean()), float(is_right[here].mean())
        filled.append(Bin(float(edges[i]), float(edges[i + 1]), int(here.sum()), mean, accuracy))
    return filled


def _number(given: Sequence[str], labels: Sequence[str]) -> NDArray[np.int64]:
    ids = {label: row for row, label in enumerate(labels)}
    if len(ids) != len(labels):
        raise InputError(f"the labels {', '.join(labels)} hold one of them twice; name each once")
    if unknown := sorted(set(given) - set(ids)):
        raise InputError(
            f"{unknown[0]!r} is none of the labels {', '.join(labels)}; add it to them or mend the data"
        )
    return np.array([ids[label] for label in given], dtype=np.int64)


def _divide(part: Ids, whole: Ids) -> Floats:
    """Part of whole, 0 where the whole is nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)


def _check_probabilities(p: Floats, y: Ids, bins: int) -> None:
    if bins < 1:
        raise UsageError(f"bins is {bins}; choose 1 or more")
    if p.ndim != 2 or not p.size or y.shape != p.shape[:1]:
        raise InputError(
            f"probabilities of shape {p.shape} and true classes of shape {y.shape}; give (N, K) and (N,)"
        )
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"the true classes must be ids from 0 to {p.shape[1] - 1}; give the ids of these classes")
    is_distribution = np.all(p >= 0, axis=1) & (np.abs(p.sum(axis=1) - 1) <= TOLERANCE)
    if not is_distribution.all():
        row = int(np.argmin(is_distribution))
        raise InputError(f"row {row} of the probabilities is no distribution: its values must be ≥ 0 and sum to 1")
