"""Every example once per epoch, batched by length, reproducible by seed."""

import numpy as np
import pytest
import torch

from chainrule.lm import Ids
from chainrule.training.batches import ExampleBatches, pad_rows, pad_to_device, to_device
from chainrule.training.config import TrainingConfig


def source(number: int, batch_size: int, *, shuffle: bool = True, seed: int = 3) -> ExampleBatches:
    lengths = np.random.default_rng(1).integers(1, 40, number)
    return ExampleBatches(lengths, lambda rows: rows, TrainingConfig(batch_size=batch_size, shuffle=shuffle), seed)


@pytest.mark.parametrize("number", [1, 7, 8, 401, 1000])
@pytest.mark.parametrize("shuffle", [True, False])
def test_example_batches_cover_every_example_once(number: int, shuffle: bool) -> None:
    batches_ = source(number, 8, shuffle=shuffle)
    for epoch in range(2):
        batches = list(batches_.windows(epoch))
        assert sorted(np.concatenate(batches).tolist()) == list(range(number))
        assert len(batches) == batches_.steps(epoch)
        assert max(map(len, batches)) <= 8


def test_example_batches_can_start_at_any_batch() -> None:
    batches_ = source(100, 8)
    all_batches, rest = list(batches_.windows(5)), list(batches_.windows(5, first=4))
    assert [b.tolist() for b in rest] == [b.tolist() for b in all_batches[4:]]


def test_example_batches_depend_only_on_epoch_and_seed() -> None:
    def order(epoch: int, seed: int) -> list[int]:
        rows: list[int] = np.concatenate(list(source(100, 8, seed=seed).windows(epoch))).tolist()
        return rows

    assert order(0, 3) == order(0, 3)
    assert order(0, 3) != order(1, 3)
    assert order(0, 3) != order(0, 4)


def test_example_batches_group_similar_lengths() -> None:
    examples = source(400, 8)  # a single pool: fully sorted

    def spread(batches: list[Ids]) -> float:
        return float(np.mean([np.ptp(examples.lengths[rows]) for rows in batches]))

    assert spread(list(examples.windows(0))) < 2  # 400 lengths of 1 to 39, 8 at a time: at most one apart
    assert spread([np.arange(i, i + 8) for i in range(0, 400, 8)]) > 20


def test_pad_rows() -> None:
    assert pad_rows([np.array([1, 2, 3]), np.array([4])], 9).tolist() == [[1, 2, 3], [4, 9, 9]]
    assert pad_rows([], 0).shape == (0, 0)


def test_pad_to_device_returns_ids_and_mask() -> None:
    ids, mask = pad_to_device([np.array([4, 5, 6]), np.array([7])], 1, torch.device("cpu"))
    assert ids.tolist() == [[4, 5, 6], [7, 1, 1]]
    assert mask.tolist() == [[True, True, True], [True, False, False]]


def test_copies_to_a_gpu_are_pinned_and_non_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, object]] = []

    def pin(self: torch.Tensor) -> torch.Tensor:
        calls.append(("pin", None))
        return self

    def to(self: torch.Tensor, device: torch.device, *, non_blocking: bool = False) -> torch.Tensor:
        calls.append((device.type, non_blocking))
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    to_device(torch.zeros(2), torch.device("cpu"))
    to_device(torch.zeros(2), torch.device("cuda"))
    assert calls == [("cpu", False), ("pin", None), ("cuda", True)]
