"""One thread for small products, all threads for a large one inside, and restoration afterwards."""

from collections.abc import Iterator

import pytest
import torch

from chainrule.training.device import MIN_PARALLEL_WORK, limit_threads, use_all_threads


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_small_work_runs_on_one_thread() -> None:
    with limit_threads(MIN_PARALLEL_WORK / 2):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_large_work_keeps_them_all() -> None:
    with limit_threads(MIN_PARALLEL_WORK):
        assert torch.get_num_threads() == 3
    with use_all_threads(MIN_PARALLEL_WORK):
        assert torch.get_num_threads() == 3


def test_a_large_piece_among_small_ones() -> None:
    with limit_threads(1):
        with use_all_threads(MIN_PARALLEL_WORK):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
        with use_all_threads(MIN_PARALLEL_WORK / 2):
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_an_error_puts_them_back() -> None:
    with pytest.raises(RuntimeError), limit_threads(1), use_all_threads(MIN_PARALLEL_WORK):
        raise RuntimeError
    assert torch.get_num_threads() == 3
    with use_all_threads(MIN_PARALLEL_WORK):  # nothing is set aside any more
        assert torch.get_num_threads() == 3


def test_one_thread_stays_one() -> None:
    torch.set_num_threads(1)
    with limit_threads(1), use_all_threads(MIN_PARALLEL_WORK):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 1


def test_threads_that_wait_awake_are_all_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with limit_threads(1):
        assert torch.get_num_threads() == 3
