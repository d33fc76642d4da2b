"""Cuts by rank on an engine, compared with selection in memory."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.applications.filter import assign_buckets, select_nearest
from chainrule.applications.line_jobs import distances_to_keys, key_to_distance, rank_lines, write_ranked
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.processes import SerialEngine
from chainrule.distributed.records import Record
from chainrule.distributed.work_folder import open_work_folder
from chainrule.text.corpus import Corpus

floats = st.floats(allow_nan=False)


@given(st.lists(floats, min_size=1))
def test_sort_keys_have_the_order_of_the_distances(distances: list[float]) -> None:
    keys = distances_to_keys(np.array(distances))
    assert [key_to_distance(key) for key in keys.tolist()] == distances
    assert sorted(zip(keys.tolist(), distances, strict=True)) == sorted(
        zip(keys.tolist(), distances, strict=True), key=lambda pair: pair[1]
    )


@dataclass(frozen=True)
class NumberCost:
    """The distance of a line is the number that it contains."""

    def load(self) -> Any:
        """Return the cost function."""
        return self

    def distances(self, lines: list[str]) -> Any:
        """Return the numbers."""
        return np.array([float(line) for line in lines])


def render(cost: Any, first: int, lines: list[str], distances: Any, passed: Any) -> Iterator[Record]:
    """Yield the number of each line and the number of cuts before it."""
    assert distances.tolist() == [float(line) for line in lines]
    for n, cuts in enumerate(passed.tolist()):
        yield cuts, str(first + n).encode()


def cuts_before_lines(distances: list[float], numbers: list[int], partition: int) -> tuple[list[int], list[float]]:
    """Return the number of cuts before each line, and the largest distance before each cut."""
    corpus = Corpus.from_lines([repr(distance) for distance in distances])
    options = EngineOptions()
    with open_work_folder(options, corpus, {}, 1) as work:
        object.__setattr__(work, "partition_bytes", partition)
        engine = SerialEngine(options, work)
        ranked = rank_lines(engine, corpus, NumberCost(), lambda _: numbers)  # type: ignore[arg-type]
        records = list(write_ranked(engine, corpus, ranked, NumberCost(), render))  # type: ignore[arg-type]
    assert ranked.total == len(distances)
    assert [payload.decode() for _, payload in records] == [str(n) for n in range(len(distances))]
    return [cuts for cuts, _ in records], [cut.distance for cut in ranked.cuts]


with_ties = st.lists(st.sampled_from([1.0, 1.0 + 2**-52, 2.5, -0.0, 0.0, -3.0, math.inf, -math.inf]), min_size=1)


@settings(max_examples=30)
@given(with_ties, st.integers(1, 40), st.integers(1, 40))
def test_the_first_lines_are_those_selected_in_memory(distances: list[float], number: int, partition: int) -> None:
    cuts, highest = cuts_before_lines(distances, [number], partition)
    expected = select_nearest(np.array(distances), number)
    assert [count == 0 for count in cuts] == expected.tolist()
    assert highest == [np.array(distances)[expected].max()]


@settings(max_examples=20)
@given(st.lists(floats, min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 200))
def test_buckets_are_those_assigned_in_memory(distances: list[float], buckets: int, partition: int) -> None:
    numbers = [-(-n * len(distances) // buckets) for n in range(1, buckets + 1)]
    cuts, _ = cuts_before_lines(distances, numbers, partition)
    assert cuts == assign_buckets(np.array(distances), buckets).tolist()


def test_an_empty_corpus_has_no_cuts() -> None:
    assert cuts_before_lines([], [3], 10) == ([], [])
