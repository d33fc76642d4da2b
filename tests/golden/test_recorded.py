"""The comparison with the record: what it accepts, what it refuses, and what it replaces by placeholders."""

import pytest

from golden.normalizer import normalize
from golden.recorded import EXACT, GOLDEN, HOW_TO_RECORD, NGRAM, TRAINED_NETWORK, Tolerance, fail_if_different


@pytest.mark.parametrize(
    ("tolerance", "expected", "actual", "is_accepted"),
    [
        (EXACT, "log_prob 1.5", "log_prob 1.5", True),
        (EXACT, "log_prob 1.5", "log_prob  1.5", False),
        (NGRAM, "log_prob 1.2727405803834464", "log_prob 1.2727405803834466", True),
        (NGRAM, "log_prob 1.27274058", "log_prob 1.27274059", False),
        (NGRAM, "log_prob 1.272740", "log_prob 1.272741", False),
        (TRAINED_NETWORK, "log_prob 1.2727405803834464", "log_prob 1.2727412345678901", True),
        (TRAINED_NETWORK, "log_prob 1.2727405803834464", "log_prob 1.2747412345678901", False),
        (TRAINED_NETWORK, "weight 0.0100", "weight 0.0101", True),  # one in the last of four digits
        (TRAINED_NETWORK, "weight 0.0100", "weight 0.0102", False),
        (TRAINED_NETWORK, "weight 0.5", "weight 0.6", False),
        (TRAINED_NETWORK, "2 tokens", "3 tokens", False),  # integers must be equal
        (TRAINED_NETWORK, "label ham 0.5", "label spam 0.5", False),
        (TRAINED_NETWORK, "1e-07 0.5", "1.00000001e-07 0.5", True),
        (TRAINED_NETWORK, "0.5 0.5", "0.5", False),
    ],
)
def test_lines_are_compared_number_by_number(
    tolerance: Tolerance, expected: str, actual: str, is_accepted: bool
) -> None:
    assert tolerance.accepts(expected, actual) is is_accepted


def test_difference_is_shown_as_a_diff_with_advice() -> None:
    path = GOLDEN / "help" / "chainrule.txt"
    with pytest.raises(pytest.fail.Exception) as failure:
        fail_if_different(path, "a 1.00000001\nb\n", "a 1.0\nc\n", TRAINED_NETWORK, HOW_TO_RECORD)
    lines = str(failure.value).splitlines()
    assert lines[1:3] == ["--- recorded/help/chainrule.txt", "+++ now/help/chainrule.txt"]
    assert lines[4:] == [" a 1.00000001", "-b", "+c", HOW_TO_RECORD]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"seconds": 0.25, "tokens": 3}', '{"seconds": "<measured>", "tokens": 3}'),
        ("train_seconds           0.002\ntokens 3\n", "train_seconds           <measured>\ntokens 3\n"),
        ("saved a: 318 parameters, 0.1 s in all\n", "saved a: 318 parameters, <seconds> s in all\n"),
        (
            "Made by chainrule 0.1.0 on 2026-11-17T06:03:57+00:00, with",
            "Made by chainrule <version> on <date>, with",
        ),
        ('"max_seconds": 60.0', '"max_seconds": 60.0'),  # a setting
        ('"perplexity": 3.57', '"perplexity": 3.57'),
    ],
)
def test_measured_values_are_replaced_by_placeholders(text: str, expected: str) -> None:
    assert normalize(text) == expected
