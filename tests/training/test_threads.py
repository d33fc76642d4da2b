"""One thread for small products, all threads for a large one inside, and restoration afterwards."""

from collections.abc import Iterator

import pytest
import torch

from chainrule.training.device import MIN_PARALLEL_WORK, limit_threads, use_all_threads


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_small_work_runs_on_one_thread() -> None:
    with limit_threads(MIN_PARALLEL_WORK / 2):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_large_work_uses_all_threads() -> None:
    with limit_threads(MIN_PARALLEL_WORK):
        assert torch.get_num_threads() == 3
    with use_all_threads(MIN_PARALLEL_WORK):
        assert torch.get_num_threads() == 3


def test_large_piece_of_small_work_uses_all_threads() -> None:
    with limit_threads(1):
        with use_all_threads(MIN_PARALLEL_WORK):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
        with use_all_threads(MIN_PARALLEL_WORK / 2):
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_thread_count_is_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError), limit_threads(1), use_all_threads(MIN_PARALLEL_WORK):
        raise RuntimeError
    assert torch.get_num_threads() == 3
    with use_all_threads(MIN_PARALLEL_WORK):  # no saved thread count remains
        assert torch.get_num_threads() == 3


def test_single_thread_stays_single() -> None:
    torch.set_num_threads(1)
    with limit_threads(1), use_all_threads(MIN_PARALLEL_WORK):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 1


def test_thread_limit_is_ignored_with_active_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with limit_threads(1):
        assert torch.get_num_threads() == 3
