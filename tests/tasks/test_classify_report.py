"""The temperature by hand, and a page that holds text as text."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.tasks.classify_page import Explained, page
from chainrule.tasks.classify_report import fit_temperature, tempered


def test_the_temperature_by_hand() -> None:
    # Odds of e⁴ for the first label, right three times in four: e^(4/T) = 3, T = 4 / ln 3.
    log_p = np.tile(tempered(np.array([[4.0, 0.0]]), 1.0), (4, 1))
    assert fit_temperature(log_p, np.array([0, 0, 1, 0])) == pytest.approx(4 / math.log(3), rel=1e-6)
    assert fit_temperature(log_p, np.array([0, 0, 0, 0])) == pytest.approx(0.5)  # sure is sure, up to there
    assert fit_temperature(log_p, np.array([1, 1, 1, 1])) == pytest.approx(20)
    impossible = np.array([[0.0, -np.inf]])
    assert fit_temperature(
        np.vstack([log_p, impossible, impossible]), np.array([0, 0, 1, 0, 1, 0])
    ) == pytest.approx(4 / math.log(3), rel=1e-6)
    assert fit_temperature(impossible, np.array([1])) == 1.0
    assert_allclose(np.exp(tempered(log_p[:1], 4 / math.log(3))), [[0.75, 0.25]])


def test_the_page_holds_text_as_text() -> None:
    found = page([Explained("<b>", 0.9, [("<script>", 2.0), ("x\x07", -1.0)]), Explained("n", 1.0, [])])
    assert "&lt;script&gt;" in found
    assert "<script>" not in found
    assert "<b>" not in found
    assert "\x07" not in found
    assert 'rgba(0,114,178,0.62)" title="+2.0000"' in found  # the largest: the full colour, 0.62
    assert 'rgba(213,94,0,0.31)" title="-1.0000"' in found  # half of it, against
    assert Explained("a", 1.0, [("w", -math.inf), ("v", 3.0)]).shades == [("w", -1.0), ("v", 0.0)]
    assert Explained("a", 1.0, [("w", 0.0)]).shades == [("w", 0.0)]
