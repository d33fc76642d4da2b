"""Temperature scaling by hand, label checks, and data given in memory."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.errors import ChainruleWarning, InputError
from chainrule.tasks import classify
from chainrule.tasks.classify import Classifier
from chainrule.tasks.classify_report import apply_temperature, count_labels, fit_temperature
from chainrule.text.labelled import LabelledTexts


def test_the_temperature_by_hand() -> None:
    # Odds of e⁴ for the first label, right three times in four: e^(4/T) = 3, T = 4 / ln 3.
    log_p = np.tile(apply_temperature(np.array([[4.0, 0.0]]), 1.0), (4, 1))
    assert fit_temperature(log_p, np.array([0, 0, 1, 0])) == pytest.approx(4 / math.log(3), rel=1e-6)
    assert fit_temperature(log_p, np.array([0, 0, 0, 0])) == pytest.approx(0.5)  # sure is sure, up to there
    assert fit_temperature(log_p, np.array([1, 1, 1, 1])) == pytest.approx(20)
    impossible = np.array([[0.0, -np.inf]])
    assert fit_temperature(
        np.vstack([log_p, impossible, impossible]), np.array([0, 0, 1, 0, 1, 0])
    ) == pytest.approx(4 / math.log(3), rel=1e-6)
    assert fit_temperature(impossible, np.array([1])) == 1.0
    assert_allclose(np.exp(apply_temperature(log_p[:1], 4 / math.log(3))), [[0.75, 0.25]])


NOTHING: Any = []
TEN = [f"text {i}" for i in range(10)]


def test_swapped_columns_are_detected() -> None:
    names = [f"t{i}" for i in range(9)]
    with pytest.raises(InputError, match=r"has 9 different labels for 10 texts: label and text look swapped"):
        count_labels(LabelledTexts(["ham", "spam"] * 5, [*names, "t0"]))
    with pytest.warns(ChainruleWarning, match=r"9 different labels for 10 texts: is the label the first column"):
        count_labels(LabelledTexts(TEN, [*names, "t0"]))
    assert len(count_labels(LabelledTexts(TEN, [*names[:8], "t0", "t1"]))) == 8  # fewer than nine in ten
    assert len(count_labels(LabelledTexts(TEN[:9], names))) == 9  # so few texts say nothing


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return classify.train("ngram", LabelledTexts(["good", "bad"], ["pos", "neg"]))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda classifier: classifier.predict(5), "5 is not a list of texts; give a list of str"),
        (lambda classifier: classifier.predict(["a", 5]), "text 2 is 5, not a str"),
        (lambda classifier: classifier.predict(None), "None is not a list of texts"),
        (lambda classifier: classifier.explain(5), "text 1 is 5, not a str"),
        (
            lambda classifier: classifier.evaluate([("a", "pos")]),
            r"is not a file; give one, or give LabelledTexts\(texts, labels\)",
        ),
        (
            lambda _: classify.train("ngram", NOTHING),
            r"\[\] is not a file; give one, or give LabelledTexts\(texts, labels\)",
        ),
        (lambda _: classify.train("ngram", LabelledTexts([], [])), "the texts given contains no examples"),
        (lambda _: classify.train("ngram", LabelledTexts(["a"], ["x", "y"])), "1 texts but 2 labels"),
    ],
)
def test_invalid_data(classifier: Classifier, attempt: Callable[[Any], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attempt(classifier)


def test_columns_can_be_named(tmp_path: Path) -> None:
    records = [{"review": "good", "stars": 5}, {"review": "bad", "stars": 1}]
    file = tmp_path / "x.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    classifier = classify.train("ngram", file, valid=file, column="review", label="stars")
    assert classifier.counts == {"1": 1, "5": 1}
    assert classifier.evaluate(file, column="review", label="stars").classes.accuracy == 1
    with pytest.raises(InputError, match="no column 'label'"):
        classifier.evaluate(file, column="review")
