"""Classification metrics: confusion matrix, precision, recall, F1 and calibration.

N is the number of examples, K the number of classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats, Ids, Mask

TOLERANCE = 1e-4
"""Allowed deviation from 1 of the probabilities of an example, for float32 rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassificationReport:
    """Metrics of single-label classification; a metric whose denominator is 0 is 0."""

    labels: tuple[str, ...]
    confusion: Ids  # (K, K)  rows: true labels, columns: predicted labels
    support: Ids  # (K,)  examples of each true label
    accuracy: float
    precision: Floats  # (K,)
    recall: Floats  # (K,)
    f1: Floats  # (K,)
    macro_precision: float  # means over labels
    macro_recall: float
    macro_f1: float
    micro_f1: float  # equals the accuracy


@dataclass(frozen=True, slots=True)
class Bin:
    """Reliability bin of the examples with low < confidence ≤ high; never empty."""

    low: float
    high: float
    count: int
    confidence: float  # mean probability of the predicted class
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Calibration metrics of predicted probabilities."""

    expected_error: float  # ECE: Σ count/N · |accuracy − confidence|
    maximum_error: float  # MCE: largest |accuracy − confidence| of a bin
    brier: float  # mean of Σ_k (p_k − y_k)², from 0 to 2
    log_loss: float  # mean of −log p(true class), in nats
    bins: list[Bin]  # non-empty bins in order


def evaluate(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> ClassificationReport:
    """Compare predicted labels with true ones; all of `labels` enter the macro averages, even if absent.

    >>> evaluate(["a", "a", "b"], ["a", "b", "b"], ["a", "b"]).confusion.tolist()
    [[1, 1], [0, 1]]
    """
    if len(gold) != len(predicted):
        raise InputError(
            f"there are {len(gold)} true labels but {len(predicted)} predicted ones; give one for each example"
        )
    if not len(gold):
        raise InputError("there is no example to evaluate; give at least one")
    rows, columns = (_label_ids(sequence, labels) for sequence in (gold, predicted))
    K = len(labels)
    confusion = np.bincount(rows * K + columns, minlength=K * K).reshape(K, K)
    correct = confusion.diagonal()  # (K,)
    predictions, support = confusion.sum(axis=0), confusion.sum(axis=1)  # (K,) each
    precision, recall = _divide(correct, predictions), _divide(correct, support)
    f1 = _divide(2 * correct, predictions + support)  # 2 P R / (P + R)
    return ClassificationReport(
        labels=tuple(labels),
        confusion=confusion,
        support=support,
        accuracy=float(correct.sum() / len(gold)),
        precision=precision,
        recall=recall,
        f1=f1,
        macro_precision=float(precision.mean()),
        macro_recall=float(recall.mean()),
        macro_f1=float(f1.mean()),
        micro_f1=float(2 * correct.sum() / (predictions.sum() + support.sum())),
    )


def calibration(probabilities: ArrayLike, gold: ArrayLike, bins: int = 10) -> Calibration:
    """Compute the calibration of probabilities (N, K) against true class ids (N,), with bins of equal width.

    The predicted class is the most probable one, the lowest id among equals; its probability is the confidence
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
    bin_ids = np.searchsorted(edges[1:-1], confidence, side="left")  # (N,)  bin with low < confidence ≤ high
    filled = []
    for i in np.unique(bin_ids):
        in_bin = bin_ids == i
        mean, accuracy = float(confidence[in_bin].mean()), float(is_right[in_bin].mean())
        filled.append(Bin(float(edges[i]), float(edges[i + 1]), int(in_bin.sum()), mean, accuracy))
    return filled


def _label_ids(sequence: Sequence[str], labels: Sequence[str]) -> NDArray[np.int64]:
    ids = {label: row for row, label in enumerate(labels)}
    if len(ids) != len(labels):
        raise InputError(f"the labels {', '.join(labels)} contain a duplicate; give each once")
    if unknown := sorted(set(sequence) - set(ids)):
        raise InputError(
            f"{unknown[0]!r} is not one of the labels {', '.join(labels)}; add it to them or correct the data"
        )
    return np.array([ids[label] for label in sequence], dtype=np.int64)


def _divide(part: Ids, whole: Ids) -> Floats:
    """Return part / whole, or 0 where whole is 0."""
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
        raise InputError(
            f"row {row} of the probabilities is not a distribution: its values must be ≥ 0 and sum to 1"
        )
