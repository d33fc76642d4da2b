import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.classification import Bin, calibration, evaluate

LABELS = ["a", "b", "c", "d"]
PAIRS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abd")), min_size=1, max_size=40)


def test_three_classes_by_hand() -> None:
    gold = ["a", "a", "a", "b", "b", "c"]
    predicted = ["a", "a", "b", "b", "c", "b"]
    figures = evaluate(gold, predicted, ["a", "b", "c"])
    assert figures.confusion.tolist() == [[2, 1, 0], [0, 1, 1], [0, 1, 0]]
    assert figures.support.tolist() == [3, 2, 1]
    assert figures.accuracy == pytest.approx(3 / 6)
    # a: 2 found, both right, of 3; b: 3 found, 1 right, of 2; c: 1 found, wrong, of 1.
    assert figures.precision.tolist() == pytest.approx([1, 1 / 3, 0])
    assert figures.recall.tolist() == pytest.approx([2 / 3, 1 / 2, 0])
    assert figures.f1.tolist() == pytest.approx([4 / 5, 2 / 5, 0])  # 2 · right / (found + there)
    assert figures.macro_precision == pytest.approx(4 / 9)
    assert figures.macro_recall == pytest.approx(7 / 18)
    assert figures.macro_f1 == pytest.approx(2 / 5)
    assert figures.micro_f1 == pytest.approx(3 / 6)


def test_a_label_that_never_occurs_counts_as_zero() -> None:
    figures = evaluate(["a", "a"], ["a", "a"], ["a", "b"])
    assert figures.precision.tolist() == figures.recall.tolist() == figures.f1.tolist() == [1, 0]
    assert figures.macro_f1 == 0.5
    assert figures.micro_f1 == figures.accuracy == 1


@given(PAIRS)
def test_every_figure_by_its_definition(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    figures = evaluate(gold, predicted, LABELS)
    for k, label in enumerate(LABELS):
        right = sum(g == f == label for g, f in pairs)
        precision = right / predicted.count(label) if label in predicted else 0
        recall = right / gold.count(label) if label in gold else 0
        f1 = 2 * precision * recall / (precision + recall) if right else 0
        assert (figures.precision[k], figures.recall[k], figures.f1[k]) == pytest.approx((precision, recall, f1))
        assert figures.confusion[k].tolist() == [pairs.count((label, other)) for other in LABELS]
    assert figures.accuracy == pytest.approx(sum(g == f for g, f in pairs) / len(pairs))


@given(PAIRS)
def test_agrees_with_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    figures = evaluate(gold, predicted, LABELS)
    expected = metrics.precision_recall_fscore_support(gold, predicted, labels=LABELS, zero_division=0)
    np.testing.assert_allclose((figures.precision, figures.recall, figures.f1, figures.support), expected)
    np.testing.assert_array_equal(figures.confusion, metrics.confusion_matrix(gold, predicted, labels=LABELS))
    for average in ("macro", "micro"):
        score = metrics.f1_score(gold, predicted, labels=LABELS, average=average, zero_division=0)
        assert getattr(figures, f"{average}_f1") == pytest.approx(score)


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="2 true labels but 1 predicted"):
        evaluate(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(InputError, match="no example"):
        evaluate([], [], ["a"])
    with pytest.raises(InputError, match="'z' is not one of the labels a, b"):
        evaluate(["a"], ["z"], ["a", "b"])
    with pytest.raises(InputError, match="'z' is not one of the labels"):
        evaluate(["z"], ["a"], ["a", "b"])
    with pytest.raises(InputError, match="contain a duplicate"):
        evaluate(["a"], ["a"], ["a", "a"])


def test_calibration_by_hand() -> None:
    p = [[0.9, 0.1], [0.8, 0.2], [0.45, 0.55], [0.25, 0.75]]
    gold = [0, 1, 1, 1]  # right, wrong, right, right
    report = calibration(p, gold, bins=2)
    # One bin, above 0.5: confidence (0.9 + 0.8 + 0.55 + 0.75) / 4 = 0.75, accuracy 3/4.
    (only,) = report.bins
    assert (only.low, only.high, only.count, only.accuracy) == (0.5, 1, 4, 0.75)
    assert only.confidence == pytest.approx(0.75)
    assert report.expected_error == report.maximum_error == pytest.approx(0)
    # Squares, both classes: 2 · (0.01 + 0.64 + 0.2025 + 0.0625) / 4
    assert report.brier == pytest.approx(0.4575)
    assert report.log_loss == pytest.approx(-math.log(0.9 * 0.2 * 0.55 * 0.75) / 4)


def test_errors_are_weighted_by_bin() -> None:
    p = [[0.9, 0.1], [0.8, 0.2], [0.45, 0.55], [0.25, 0.75]]
    report = calibration(p, [0, 1, 1, 1], bins=4)
    # (0.5, 0.75]: 0.55 and 0.75, both right, |1 − 0.65|; (0.75, 1]: 0.9 right, 0.8 wrong, |0.5 − 0.85|.
    assert [(b.low, b.high, b.count) for b in report.bins] == [(0.5, 0.75, 2), (0.75, 1, 2)]
    assert report.expected_error == pytest.approx(0.35)
    report = calibration([*p, [0.6, 0.4]], [0, 1, 1, 1, 1], bins=4)
    # The first now 0.55, 0.75, 0.6 with 2 of 3 right: |2/3 − 19/30| = 1/30; 3/5 · 1/30 + 2/5 · 0.35.
    assert report.expected_error == pytest.approx(0.02 + 0.14)
    assert report.maximum_error == pytest.approx(0.35)


@pytest.mark.parametrize("tenths", range(5, 11))
def test_an_edge_belongs_to_the_bin_below(tenths: int) -> None:
    p = tenths / 10
    report = calibration([[p, 1 - p]], [0])
    assert report.bins == [Bin((tenths - 1) / 10, p, 1, p, 1.0)]


def test_log_loss_of_zero_probability_is_infinite() -> None:
    assert calibration([[1.0, 0.0]], [1]).log_loss == math.inf


def test_true_probabilities_are_calibrated() -> None:
    # Classes drawn from the probabilities themselves: the error of a bin is about its sampling error.
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=20_000)
    gold = (rng.random((20_000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    assert calibration(p.astype(np.float32), gold).expected_error < 0.02
    sharper = p**3 / (p**3).sum(axis=1, keepdims=True)
    assert calibration(sharper, gold).expected_error > 0.1


def test_invalid_probabilities_are_rejected() -> None:
    with pytest.raises(InputError, match="row 1 of the probabilities is not a distribution"):
        calibration([[0.5, 0.5], [0.5, 0.6]], [0, 1])
    with pytest.raises(InputError, match="row 0"):
        calibration([[1.5, -0.5]], [0])
    with pytest.raises(InputError, match="row 0"):
        calibration([[math.nan, 1.0]], [0])
    with pytest.raises(InputError, match=r"shape \(2, 2\) and true classes of shape \(1,\)"):
        calibration([[0.5, 0.5]] * 2, [0])
    with pytest.raises(InputError, match="shape"):
        calibration(np.zeros((0, 2)), np.zeros(0, dtype=int))
    for gold in ([2], [-1], [0.5]):
        with pytest.raises(InputError, match="ids from 0 to 1"):
            calibration([[0.5, 0.5]], gold)
    with pytest.raises(UsageError, match="bins is 0"):
        calibration([[0.5, 0.5]], [0], bins=0)
