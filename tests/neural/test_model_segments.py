"""Segments of rows at state resets, against token-by-token reading."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.lm import Batch, Ids
from chainrule.neural.model import Segments, split_segments

EOS = 1


@st.composite
def batches(draw: Any) -> Batch:
    """Rows of different lengths, some empty, full of `</s>`, with arbitrary padding."""
    T = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(0, T), min_size=1, max_size=5).filter(any))
    rows = [draw(st.lists(st.sampled_from([EOS, 2, 3]), min_size=T, max_size=T)) for _ in lengths]
    mask = np.arange(T) < np.array(lengths)[:, None]
    return Batch(np.array(rows), np.array(rows), mask)


def segments_token_by_token(
    batch: Batch, eos: int | None, window: int | None, position: Ids
) -> list[tuple[int, int, int, bool, bool]]:
    """(row, first, length, is fresh, is last) of the segments, reading token by token."""
    segments: list[list[Any]] = []
    for r, row in enumerate(batch.inputs.tolist()):
        read, is_open = int(position[r]), False
        for t in range(int(batch.mask[r].sum())):
            is_fresh = row[t] == eos or (window is not None and read >= window)
            if is_fresh or not is_open:
                segments.append([r, t, 0, is_fresh, False])
                read, is_open = 0 if is_fresh else read, True
            read += 1
            segments[-1][2] += 1
        if is_open:
            segments[-1][4] = True
    return [(*segment,) for segment in segments]


def pieces(segments: Segments) -> list[tuple[int, int, int, bool, bool]]:
    columns = (segments.row, segments.first, segments.length, segments.is_fresh, segments.is_last)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(batches(), st.sampled_from([None, EOS]), st.sampled_from([None, 1, 2, 3, 7]), st.integers(0, 99))
def test_segments_equal_token_by_token_reading(
    batch: Batch, eos: int | None, window: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    position = rng.integers(0, (window or 0) + 1, len(batch.inputs))
    segments = split_segments(batch, eos, window, position)
    assert pieces(segments) == segments_token_by_token(batch, eos, window, position)
    assert segments.is_fresh.dtype == segments.is_last.dtype == np.bool_


@pytest.mark.parametrize(
    ("eos", "window", "position", "expected"),
    [
        (None, None, 0, [(0, 0, 6, False, True)]),
        (EOS, None, 0, [(0, 0, 2, False, False), (0, 2, 4, True, True)]),
        (None, 4, 0, [(0, 0, 4, False, False), (0, 4, 2, True, True)]),
        (None, 4, 3, [(0, 0, 1, False, False), (0, 1, 4, True, False), (0, 5, 1, True, True)]),
        (None, 4, 4, [(0, 0, 4, True, False), (0, 4, 2, True, True)]),  # full before the first token
        (EOS, 3, 1, [(0, 0, 2, False, False), (0, 2, 3, True, False), (0, 5, 1, True, True)]),
    ],
)
def test_split_segments_worked_by_hand(
    eos: int | None, window: int | None, position: int, expected: list[Any]
) -> None:
    row = np.array([[5, 6, EOS, 7, 8, 9]])
    batch = Batch(row, row, np.ones(row.shape, dtype=bool))
    assert pieces(split_segments(batch, eos, window, np.array([position]))) == expected


def test_row_that_begins_with_eos_restarts() -> None:
    row = np.array([[EOS, 5]])
    batch = Batch(row, row, np.ones(row.shape, dtype=bool))
    assert pieces(split_segments(batch, EOS, None, np.array([0]))) == [(0, 0, 2, True, True)]
