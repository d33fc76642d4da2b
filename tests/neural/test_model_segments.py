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
    """Rows of different lengths, some of none, full of `</s>`; what follows them is of no meaning."""
    T = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(0, T), min_size=1, max_size=5).filter(any))
    rows = [draw(st.lists(st.sampled_from([EOS, 2, 3]), min_size=T, max_size=T)) for _ in lengths]
    mask = np.arange(T) < np.array(lengths)[:, None]
    return Batch(np.array(rows), np.array(rows), mask)


def slowly(
    batch: Batch, eos: int | None, window: int | None, position: Ids
) -> list[tuple[int, int, int, bool, bool]]:
    """(row, first, length, is fresh, is last) of the pieces, by reading token by token."""
    found: list[list[Any]] = []
    for r, row in enumerate(batch.inputs.tolist()):
        read, is_open = int(position[r]), False
        for t in range(int(batch.mask[r].sum())):
            is_fresh = row[t] == eos or (window is not None and read >= window)
            if is_fresh or not is_open:
                found.append([r, t, 0, is_fresh, False])
                read, is_open = 0 if is_fresh else read, True
            read += 1
            found[-1][2] += 1
        if is_open:
            found[-1][4] = True
    return [(*each,) for each in found]


def pieces(found: Segments) -> list[tuple[int, int, int, bool, bool]]:
    columns = (found.row, found.first, found.length, found.is_fresh, found.is_last)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(batches(), st.sampled_from([None, EOS]), st.sampled_from([None, 1, 2, 3, 7]), st.integers(0, 99))
def test_the_cuts_are_those_of_slow_reading(batch: Batch, eos: int | None, window: int | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    position = rng.integers(0, (window or 0) + 1, len(batch.inputs))
    found = split_segments(batch, eos, window, position)
    assert pieces(found) == slowly(batch, eos, window, position)
    assert found.is_fresh.dtype == found.is_last.dtype == np.bool_


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
def test_by_hand(eos: int | None, window: int | None, position: int, expected: list[Any]) -> None:
    row = np.array([[5, 6, EOS, 7, 8, 9]])
    batch = Batch(row, row, np.ones(row.shape, dtype=bool))
    assert pieces(split_segments(batch, eos, window, np.array([position]))) == expected


def test_a_row_that_begins_with_the_end_of_a_line_starts_anew() -> None:
    row = np.array([[EOS, 5]])
    batch = Batch(row, row, np.ones(row.shape, dtype=bool))
    assert pieces(split_segments(batch, EOS, None, np.array([0]))) == [(0, 0, 2, True, True)]
