"""Where to write labels in a figure so that none covers another.

Lives here: geometry in pixels, y upwards. Not here: drawing (plots.py).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Point(NamedTuple):
    """A place in the figure."""

    x: float
    y: float


class Box(NamedTuple):
    """An upright rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: "Box") -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def contains(self, other: "Box") -> bool:
        """Whether the other lies within this one."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights near the wanted ones, at least `gap` apart, within low … high while there is room.

    Least squares under an order constraint: pool neighbours that collide around their common mean.

    >>> spread([0.0, 10.0, 11.0], gap=3.0, low=-9.0, high=99.0)
    [0.0, 9.0, 12.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    pools: list[tuple[float, int]] = []  # (sum of wanted heights less the gaps below, how many)
    for rank, i in enumerate(order):
        total, count = wanted[i] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            below = pools.pop()
            total, count = total + below[0], count + below[1]
        pools.append((total, count))
    ceiling = high - gap * (len(order) - 1)
    heights = [max(low, min(total / count, ceiling)) for total, count in pools for _ in range(count)]
    placed = {i: heights[rank] + rank * gap for rank, i in enumerate(order)}
    return [placed[i] for i in range(len(wanted))]


def place(
    anchors: Sequence[Point], widths: Sequence[float], height: float, taken: Sequence[Box], frame: Box
) -> list[Box | None]:
    """A free box beside each anchor, the first ones served first; None where all four corners are occupied.

    Below and left is tried first: where x and y are costs, nothing lies there of a point on the Pareto front.
    """
    occupied, boxes = list(taken), list[Box | None]()
    for anchor, width in zip(anchors, widths, strict=True):
        corners = (_corner(anchor, x * width, y * height) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1)))
        free = (
            box for box in corners if frame.contains(box) and not any(box.overlaps(other) for other in occupied)
        )
        boxes.append(chosen := next(free, None))
        if chosen:
            occupied.append(chosen)
    return boxes


def _corner(anchor: Point, dx: float, dy: float, distance: float = 5.0) -> Box:
    x = anchor.x + (distance if dx > 0 else -distance)
    y = anchor.y + (distance if dy > 0 else -distance)
    return Box(min(x, x + dx), min(y, y + dy), max(x, x + dx), max(y, y + dy))
