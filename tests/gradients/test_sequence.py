import numpy as np
import pytest

from chainrule.errors import UsageError, VocabularyError
from chainrule.gradients.sequence import check_tokens, initial_state, truncation_points


def test_truncation_points_split_into_windows() -> None:
    assert truncation_points(7, 3).tolist() == [False, False, False, True, False, False, True]  # 3, 3 and 1 steps
    assert truncation_points(3, 1).tolist() == [False, True, True]
    assert not truncation_points(3, 3).any()
    assert not truncation_points(3, None).any()


def test_truncation_window_of_zero_is_rejected() -> None:
    with pytest.raises(UsageError, match="0 steps; choose 1 or more"):
        truncation_points(4, 0)


def test_inconsistent_tokens_are_rejected() -> None:
    check_tokens(np.array([0, 4]), np.array([4, 0]), 5)
    with pytest.raises(UsageError, match="3 inputs and 2 targets"):
        check_tokens(np.arange(3), np.arange(2), 5)
    with pytest.raises(UsageError, match="at least one"):
        check_tokens(np.arange(0), np.arange(0), 5)
    with pytest.raises(
        VocabularyError, match="ids run from 0 to 5 but the embedding has 5 rows; use ids from 0 to 4"
    ):
        check_tokens(np.array([0, 5]), np.array([1, 1]), 5)
    with pytest.raises(VocabularyError, match="targets run from -1 to 1"):
        check_tokens(np.array([0, 1]), np.array([1, -1]), 5)


def test_initial_state_is_zero_or_given() -> None:
    assert initial_state(None, 3).tolist() == [0, 0, 0]
    assert initial_state(np.ones(2), 2).tolist() == [1, 1]
    with pytest.raises(UsageError, match=r"shape \(3,\); the net is 2 wide"):
        initial_state(np.ones(3), 2)
