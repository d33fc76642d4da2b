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
def test_an_epoch_shows_every_example_once(number: int, shuffle: bool) -> None:
    made = source(number, 8, shuffle=shuffle)
    for epoch in range(2):
        batches = list(made.windows(epoch))
        assert sorted(np.concatenate(batches).tolist()) == list(range(number))
        assert len(batches) == made.steps(epoch)
        assert max(map(len, batches)) <= 8


def test_an_epoch_can_be_taken_up() -> None:
    made = source(100, 8)
    whole, rest = list(made.windows(5)), list(made.windows(5, first=4))
    assert [b.tolist() for b in rest] == [b.tolist() for b in whole[4:]]


def test_epochs_and_seeds_differ_and_are_repeated() -> None:
    def order(epoch: int, seed: int) -> list[int]:
        rows: list[int] = np.concatenate(list(source(100, 8, seed=seed).windows(epoch))).tolist()
        return rows

    assert order(0, 3) == order(0, 3)
    assert order(0, 3) != order(1, 3)
    assert order(0, 3) != order(0, 4)


def test_like_lengths_stand_together() -> None:
    made = source(400, 8)  # one pool: sorted through and through

    def spread(batches: list[Ids]) -> float:
        return float(np.mean([np.ptp(made.lengths[rows]) for rows in batches]))

    assert spread(list(made.windows(0))) < 2  # 400 lengths of 1 to 39, 8 at a time: one step apart at most
    assert spread([np.arange(i, i + 8) for i in range(0, 400, 8)]) > 20


def test_pad() -> None:
    assert pad_rows([np.array([1, 2, 3]), np.array([4])], 9).tolist() == [[1, 2, 3], [4, 9, 9]]
    assert pad_rows([], 0).shape == (0, 0)


def test_padded_rows_on_a_device() -> None:
    ids, mask = pad_to_device([np.array([4, 5, 6]), np.array([7])], 1, torch.device("cpu"))
    assert ids.tolist() == [[4, 5, 6], [7, 1, 1]]
    assert mask.tolist() == [[True, True, True], [True, False, False]]


def test_a_copy_to_a_gpu_leaves_from_pinned_memory_and_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []

    def pin(self: torch.Tensor) -> torch.Tensor:
        asked.append(("pin", None))
        return self

    def to(self: torch.Tensor, device: torch.device, *, non_blocking: bool = False) -> torch.Tensor:
        asked.append((device.type, non_blocking))
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    to_device(torch.zeros(2), torch.device("cpu"))
    to_device(torch.zeros(2), torch.device("cuda"))
    assert asked == [("cpu", False), ("pin", None), ("cuda", True)]
