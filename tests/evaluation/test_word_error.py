"""Word errors worked by hand, and two derivations of the edit distance compared."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.word_error import (
    compare_word_errors,
    word_error_rate,
    word_errors,
)


@dataclass(frozen=True, slots=True)
class EditCounts:
    """Counts of a minimal edit sequence from the hypothesis to the reference."""

    substitutions: int
    deletions: int  # words of the reference that the hypothesis lacks
    insertions: int  # words of the hypothesis that the reference lacks

    @property
    def errors(self) -> int:
        """Levenshtein distance."""
        return self.substitutions + self.deletions + self.insertions


def count_edits(hypothesis: list[str], reference: list[str]) -> EditCounts:
    """Count the edits of one pair; among minimal edit sequences, the one with the fewest deletions."""
    # row[j]: (errors, deletions, insertions) between the first i reference words and the first j hypothesis words
    row = [(j, 0, j) for j in range(len(hypothesis) + 1)]
    for i, reference_word in enumerate(reference, start=1):
        above, row = row, [(i, i, 0)]
        for j, word in enumerate(hypothesis, start=1):
            (e, d, n), (e_up, d_up, n_up), (e_left, d_left, n_left) = above[j - 1], above[j], row[j - 1]
            candidates = (
                (e + (reference_word != word), d, n),  # match or substitution
                (e_up + 1, d_up + 1, n_up),  # deletion
                (e_left + 1, d_left, n_left + 1),  # insertion
            )
            row.append(min(candidates))
    errors, deletions, insertions = row[-1]
    return EditCounts(errors - deletions - insertions, deletions, insertions)


WORDS = st.lists(st.sampled_from(["a", "b", "c", "A", "a."]), max_size=7)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ("the cat sat", "the cat sat", EditCounts(0, 0, 0)),
        ("the cat", "the cat sat", EditCounts(0, 1, 0)),
        ("the big cat sat", "the cat sat", EditCounts(0, 0, 1)),
        ("a cat sat down", "the cat sat", EditCounts(1, 0, 1)),
        ("", "the cat", EditCounts(0, 2, 0)),
        ("the cat", "", EditCounts(0, 0, 2)),
        ("", "", EditCounts(0, 0, 0)),
        ("The cat sat.", "the cat sat", EditCounts(2, 0, 0)),  # case and punctuation are as they are
        (
            "cat the",
            "the cat",
            EditCounts(2, 0, 0),
        ),  # or one deleted and one inserted: as many errors, a deletion more
        ("b c d", "a b c", EditCounts(0, 1, 1)),  # a deleted, d inserted: 2, where three substitutions are 3
    ],
)
def test_edits_worked_by_hand(hypothesis: str, reference: str, expected: EditCounts) -> None:
    result = count_edits(hypothesis.split(), reference.split())
    assert result == expected
    assert result.errors == expected.substitutions + expected.deletions + expected.insertions
    assert word_errors([hypothesis.split()], reference.split()).tolist() == [expected.errors]


@given(st.lists(WORDS, max_size=5), WORDS)
def test_batched_word_errors_equal_single_ones(hypotheses: list[list[str]], reference: list[str]) -> None:
    alone = [count_edits(words, reference) for words in hypotheses]
    assert word_errors(hypotheses, reference).tolist() == [result.errors for result in alone]
    for words, result in zip(hypotheses, alone, strict=True):
        assert len(words) - result.insertions == len(reference) - result.deletions  # what is left is paired


def test_the_rate_is_of_the_words_that_were_said() -> None:
    # 1 + 3 errors of 4 + 4 words: 50 %; a mean of the utterances' rates would be the same, so lengths differ below
    assert word_error_rate(np.array([1, 3]), np.array([4, 4])) == 50.0
    assert word_error_rate(np.array([1, 0]), np.array([1, 9])) == 10.0  # not (100 + 0) / 2
    assert word_error_rate(np.array([5]), np.array([2])) == 250.0


def test_without_words_there_is_no_rate() -> None:
    with pytest.raises(InputError, match="no words"):
        word_error_rate(np.array([1]), np.array([0]))


def test_bootstrap_of_clear_and_absent_differences() -> None:
    words = np.full(50, 10)
    some, more = np.full(50, 2), np.full(50, 3)
    result = compare_word_errors(some, more, words, samples=200)
    # every draw has 20 % against 30 %: no spread, and no draw as far from −10 as 0 is
    assert (result.a, result.b, result.difference) == (20.0, 30.0, -10.0)
    assert [result.low, result.high] == pytest.approx([-10, -10])
    assert result.p_value == pytest.approx(1 / 201)
    same = compare_word_errors(some, some, words, samples=200)
    assert (same.difference, same.p_value) == (0.0, 1.0)


def test_utterances_must_be_paired() -> None:
    with pytest.raises(UsageError, match="2, 1 and 2"):
        compare_word_errors(np.array([1, 2]), np.array([1]), np.array([3, 3]))
