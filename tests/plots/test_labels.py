"""Labels stay apart, near what they name, inside the figure."""

from itertools import pairwise

import pytest

from chainrule.plots.figures import Box, Point, place_labels, spread_labels


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread_labels([30.0, 0.0, 60.0], gap=10.0, low=0.0, high=100.0) == [30.0, 0.0, 60.0]


def test_colliding_labels_share_the_way() -> None:
    # two at 50, 10 apart around their mean
    assert sorted(spread_labels([50.0, 50.0], gap=10.0, low=0.0, high=100.0)) == [45.0, 55.0]


@pytest.mark.parametrize("wanted", [[1.0] * 8, [99.0] * 8, [5.0, 4.0, 3.0, 90.0, 91.0, 50.0]])
def test_labels_never_touch_nor_leave_nor_change_order(wanted: list[float]) -> None:
    found = spread_labels(wanted, gap=10.0, low=0.0, high=100.0)
    heights = sorted(found)
    assert all(above - below >= 10.0 - 1e-9 for below, above in pairwise(heights))
    assert heights[0] >= 0.0
    assert heights[-1] <= 100.0
    assert sorted(range(len(wanted)), key=lambda i: (wanted[i], found[i])) == sorted(
        range(len(wanted)), key=lambda i: found[i]
    )


def test_place_prefers_below_left_and_turns_where_there_is_no_room() -> None:
    frame = Box(0, 0, 200, 200)
    inside, at_the_left = place_labels([Point(150, 150), Point(20, 20)], [50, 50], 12, [], frame)
    assert inside == Box(95, 133, 145, 145)
    assert at_the_left is not None
    assert at_the_left.left > 20


def test_place_gives_up_rather_than_cover() -> None:
    everything = Box(0, 0, 200, 200)
    assert place_labels([Point(100, 100)], [50], 12, [everything], everything) == [None]
