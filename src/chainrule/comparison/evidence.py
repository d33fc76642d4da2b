"""Statistical tests between neighbouring rows, and extrapolation of learning curves."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from chainrule.evaluation.significance import compare_adjacent
from chainrule.lm import Floats
from chainrule.report.results import Difference, Row, group_rows

RESAMPLES: Final = 1000
FITTED_POINTS: Final = 4
"""Number of final points of a learning curve used for extrapolation."""
EXPONENTS: Final = np.geomspace(0.02, 2, 200)


def add_differences(
    rows: Sequence[Row], line_nats: Mapping[str, Floats], line_bytes: Floats, seed: int = 0
) -> tuple[Row, ...]:
    """Add to each row its difference to the next displayed row, where defined."""
    shown = [group[0] for group in group_rows(rows)]
    shown = [row for row in shown if row.name in line_nats and len(line_nats[row.name]) == len(line_bytes)]
    if len(shown) < 2:
        return tuple(rows)
    nats = np.stack([line_nats[row.name] for row in shown])
    compared = compare_adjacent(nats, line_bytes, samples=RESAMPLES, seed=seed)
    differences = {
        row.name: Difference(
            other=other.name,
            percent=100 * result.difference,
            margin=100 * (result.high - result.low) / 2,
            p_value=result.p_value,
        )
        for row, other, result in zip(shown, shown[1:], compared, strict=False)
        if result is not None
    }
    return tuple(dataclasses.replace(row, difference=differences.get(row.name)) for row in rows)


def extrapolate(sizes: Sequence[int], bits: Sequence[float]) -> float | None:
    """Extrapolate bits per byte to twice the training text by fitting a + b n^(−c) to the last points.

    c is chosen from a grid, a ≥ 0 and b by least squares. None for fewer than three finite points or a curve that
    does not fall.

    >>> round(extrapolate([1000, 2000, 4000, 8000], [3.0, 2.5, 2.25, 2.125]), 3)
    2.062
    """
    points = [(n, y) for n, y in zip(sizes, bits, strict=True) if n > 0 and math.isfinite(y)][-FITTED_POINTS:]
    if len(points) < 3 or points[-1][1] >= points[-2][1]:
        return None
    n, y = np.array(points, dtype=np.float64).T
    best: tuple[float, float] | None = None
    for c in EXPONENTS:
        x = (n / n[-1]) ** -c
        b, a = np.polyfit(x, y, 1)
        if a < 0:
            a, b = 0.0, float(x @ y / (x @ x))
        error = float(np.sum((a + b * x - y) ** 2))
        if b > 0 and (best is None or error < best[0]):
            best = error, float(a + b * 2**-c + (y[-1] - a - b))  # shifted to pass through the last point
    return None if best is None or best[1] >= points[-1][1] else best[1]
