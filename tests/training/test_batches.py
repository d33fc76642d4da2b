"""Every token is used once per epoch, in windows determined by epoch and seed."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.lm import Ids
from chainrule.training import batches
from chainrule.training.batches import LineBatches, StreamBatches, Window
from chainrule.training.config import TrainingConfig
from training.small_networks import BOS, CPU, EOS


def text(lengths: list[int]) -> Ids:
    """Lines of these lengths including `</s>`; all other tokens are distinct."""
    ids = np.arange(10, 10 + sum(lengths), dtype=np.int32)
    ids[np.cumsum(lengths) - 1] = EOS
    return ids


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig(**settings)


def lines_of(ids: Ids, seed: int = 0, **settings: Any) -> LineBatches:
    return LineBatches(ids, BOS, EOS, config(**settings), seed, CPU)


def rows_of(windows: list[Window]) -> list[tuple[list[int], list[int]]]:
    """Inputs and targets of every row, its windows concatenated."""
    rows: list[tuple[list[int], list[int]]] = []
    for window in windows:
        B = len(window.inputs)
        if window.starts:
            rows += [([], []) for _ in range(B)]
        is_real = torch.ones(window.targets.shape, dtype=torch.bool) if window.mask is None else window.mask
        for (inputs, targets), x, y, m in zip(rows[-B:], window.inputs, window.targets, is_real, strict=True):
            inputs += x[m].tolist()
            targets += y[m].tolist()
    return rows


def equal(a: Window, b: Window) -> bool:
    pairs = [(a.inputs, b.inputs), (a.targets, b.targets)]
    if a.mask is not None and b.mask is not None:
        pairs.append((a.mask, b.mask))
    same = (a.mask is None) == (b.mask is None) and a.starts == b.starts
    return same and all(torch.equal(x, y) for x, y in pairs)


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=25)


@given(LENGTHS, st.integers(1, 7), st.integers(0, 10), st.booleans(), st.integers(0, 3))
def test_line_batches_cover_every_line_once(
    lengths: list[int], B: int, bptt: int, shuffle: bool, epoch: int
) -> None:
    ids = text(lengths)
    source = lines_of(ids, batch_size=B, bptt=bptt, shuffle=shuffle)
    windows = list(source.windows(epoch))
    assert len(windows) == source.steps(epoch)
    assert all(len(w.inputs) <= B and (not bptt or w.inputs.shape[1] <= bptt) for w in windows)
    rows = rows_of(windows)
    expected = [line.tolist() for line in np.split(ids, np.cumsum(lengths)[:-1])]
    assert Counter(map(tuple, expected)) == Counter(tuple(targets) for _, targets in rows)
    assert all(inputs == [BOS, *targets[:-1]] for inputs, targets in rows)


@given(st.integers(2, 60), st.integers(1, 8), st.integers(0, 12), st.integers(0, 3))
def test_stream_batches_omit_less_than_one_window(N: int, B: int, bptt: int, epoch: int) -> None:
    source = StreamBatches(np.arange(N), config(batch_size=B, bptt=bptt), 5, CPU)
    windows = list(source.windows(epoch))
    assert len(windows) == source.steps(epoch) > 0
    assert all(w.mask is None and w.inputs.shape == (source.B, source.T) for w in windows)
    rows = rows_of(windows)
    assert len(rows) == source.B <= B  # the state is carried from the first window to the last
    read = [target for _, targets in rows for target in targets]
    assert len(read) == len(set(read)) > N - source.B * source.T
    for inputs, targets in rows:
        assert targets == [(token + 1) % N for token in inputs]
        assert inputs == [(inputs[0] + t) % N for t in range(len(inputs))]


def test_stream_batches_of_several_epochs_cover_the_text() -> None:
    source = StreamBatches(np.arange(23), config(batch_size=2, bptt=4), 0, CPU)  # 2 · 11, of which 2 · 8 are read
    read = {int(t) for epoch in range(30) for w in source.windows(epoch) for t in w.targets.flatten()}
    assert read == set(range(23))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("is_stream", [True, False])
def test_batches_can_start_at_any_window(shuffle: bool, is_stream: bool) -> None:
    chosen = config(batch_size=3, bptt=2, shuffle=shuffle)
    ids = text([1, 5, 2, 7, 3, 3, 4, 1, 6, 2])
    source: Any = StreamBatches(ids, chosen, 1, CPU) if is_stream else LineBatches(ids, BOS, EOS, chosen, 1, CPU)
    whole = list(source.windows(1))
    for first in range(len(whole) + 1):
        rest = list(source.windows(1, first))
        assert len(rest) == len(whole) - first
        assert all(equal(a, b) for a, b in zip(rest, whole[first:], strict=True))


@pytest.mark.parametrize("is_stream", [True, False])
def test_batches_depend_only_on_epoch_and_seed(is_stream: bool) -> None:
    ids = text([3] * 40)

    def first(epoch: int, seed: int, shuffle: bool = True) -> Window:
        chosen = config(batch_size=4, shuffle=shuffle)
        source: Any = (
            StreamBatches(ids, chosen, seed, CPU) if is_stream else LineBatches(ids, BOS, EOS, chosen, seed, CPU)
        )
        window: Window = next(iter(source.windows(epoch)))
        return window

    assert equal(first(0, 1), first(0, 1))
    assert not equal(first(0, 1), first(1, 1))
    assert not equal(first(0, 1), first(0, 2))
    assert equal(first(0, 1, shuffle=False), first(1, 2, shuffle=False))


def test_batches_without_shuffling_keep_text_order() -> None:
    ids = text([4, 1, 9, 2, 2, 7, 1])
    rows = rows_of(list(lines_of(ids, batch_size=2, bptt=3, shuffle=False).windows(5)))
    assert [target for _, targets in rows for target in targets] == ids.tolist()
    stream = StreamBatches(np.arange(12), config(batch_size=3, bptt=2, shuffle=False), 9, CPU)
    inputs = [w.inputs.tolist() for w in stream.windows(4)]
    assert inputs == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]


def test_line_batches_group_similar_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "POOL", 100)
    ids = text([1, 8] * 20)
    windows = list(lines_of(ids, batch_size=4, bptt=0).windows(0))
    assert {tuple(w.inputs.shape) for w in windows} == {(4, 1), (4, 8)}
    assert all(w.mask is None for w in windows)


def test_text_smaller_than_a_batch_is_still_used() -> None:
    assert rows_of(list(StreamBatches(np.arange(5), config(batch_size=32), 0, CPU).windows(0)))
    one = StreamBatches(np.array([EOS]), config(batch_size=32, shuffle=False), 0, CPU)
    assert rows_of(list(one.windows(0))) == [([EOS], [EOS])]
    assert rows_of(list(lines_of(np.array([EOS]), batch_size=32).windows(0))) == [([BOS], [EOS])]


def test_window_length_follows_bptt() -> None:
    source = lines_of(text([5, 5]), batch_size=2, bptt=3)
    assert [w.starts for w in source.windows(0)] == [True, False]
    assert [w.inputs.shape[1] for w in source.windows(0)] == [3, 2]
    whole = replace(config(batch_size=2), bptt=0)
    assert [w.inputs.shape[1] for w in LineBatches(text([5, 5]), BOS, EOS, whole, 0, CPU).windows(0)] == [5]
