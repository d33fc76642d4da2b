"""Labels stay apart, near their points, inside the figure."""

from itertools import pairwise

import pytest

from chainrule.plots.figures import Box, Point, place_labels, spread_labels


def test_labels_with_room_are_not_moved() -> None:
    assert spread_labels([30.0, 0.0, 60.0], gap=10.0, low=0.0, high=100.0) == [30.0, 0.0, 60.0]


def test_overlapping_labels_are_spread_evenly() -> None:
    # two at 50, 10 apart around their mean
    assert sorted(spread_labels([50.0, 50.0], gap=10.0, low=0.0, high=100.0)) == [45.0, 55.0]


@pytest.mark.parametrize("positions", [[1.0] * 8, [99.0] * 8, [5.0, 4.0, 3.0, 90.0, 91.0, 50.0]])
def test_labels_never_overlap_leave_or_change_order(positions: list[float]) -> None:
    placed = spread_labels(positions, gap=10.0, low=0.0, high=100.0)
    heights = sorted(placed)
    assert all(above - below >= 10.0 - 1e-9 for below, above in pairwise(heights))
    assert heights[0] >= 0.0
    assert heights[-1] <= 100.0
    assert sorted(range(len(positions)), key=lambda i: (positions[i], placed[i])) == sorted(
        range(len(positions)), key=lambda i: placed[i]
    )


def test_label_goes_below_left_unless_there_is_no_room() -> None:
    frame = Box(0, 0, 200, 200)
    inside, at_the_left = place_labels([Point(150, 150), Point(20, 20)], [50, 50], 12, [], frame)
    assert inside == Box(95, 133, 145, 145)
    assert at_the_left is not None
    assert at_the_left.left > 20


def test_label_is_omitted_rather_than_covering_something() -> None:
    everything = Box(0, 0, 200, 200)
    assert place_labels([Point(100, 100)], [50], 12, [everything], everything) == [None]
