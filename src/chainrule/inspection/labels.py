"""Place figure labels without overlap. Coordinates are pixels with y upwards."""

from collections.abc import Sequence
from typing import NamedTuple


class Point(NamedTuple):
    """A position in the figure."""

    x: float
    y: float


class Box(NamedTuple):
    """An axis-aligned rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: "Box") -> bool:
        """Return whether the boxes share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def contains(self, other: "Box") -> bool:
        """Return whether the other box lies within this one."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )


def spread_labels(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return heights close to the targets, at least `gap` apart, within low … high if there is room.

    Least squares under an order constraint (pool adjacent violators).

    >>> spread_labels([0.0, 10.0, 11.0], gap=3.0, low=-9.0, high=99.0)
    [0.0, 9.0, 12.0]
    """
    order = sorted(range(len(targets)), key=lambda i: targets[i])
    pools: list[tuple[float, int]] = []  # (sum of target heights less the gaps below, count)
    for rank, i in enumerate(order):
        total, count = targets[i] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            below = pools.pop()
            total, count = total + below[0], count + below[1]
        pools.append((total, count))
    ceiling = high - gap * (len(order) - 1)
    heights = [max(low, min(total / count, ceiling)) for total, count in pools for _ in range(count)]
    placed = {i: heights[rank] + rank * gap for rank, i in enumerate(order)}
    return [placed[i] for i in range(len(targets))]


def place_labels(
    anchors: Sequence[Point], widths: Sequence[float], height: float, occupied: Sequence[Box], frame: Box
) -> list[Box | None]:
    """Return a free box at a corner of each anchor, in order; None if all four corners are occupied.

    Below left is tried first: on a Pareto front of costs that corner is always empty.
    """
    all_boxes, boxes = list(occupied), list[Box | None]()
    for anchor, width in zip(anchors, widths, strict=True):
        corners = (_corner(anchor, x * width, y * height) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1)))
        free = (
            box for box in corners if frame.contains(box) and not any(box.overlaps(other) for other in all_boxes)
        )
        boxes.append(chosen := next(free, None))
        if chosen:
            all_boxes.append(chosen)
    return boxes


def _corner(anchor: Point, dx: float, dy: float, distance: float = 5.0) -> Box:
    x = anchor.x + (distance if dx > 0 else -distance)
    y = anchor.y + (distance if dy > 0 else -distance)
    return Box(min(x, x + dx), min(y, y + dy), max(x, x + dx), max(y, y + dy))
