"""Split lines into training, validation and test set by a seeded random assignment of contiguous blocks.

Neighbouring lines are similar, so whole blocks are assigned rather than single lines.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.errors import InputError, UsageError

Fractions = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Split:
    """Three disjoint parts of one text, each in text order."""

    train: list[str]
    valid: list[str]
    test: list[str]


def split(
    lines: Sequence[str], *, fractions: Fractions = (0.8, 0.1, 0.1), seed: int = 0, blocks: int = 100
) -> Split:
    """Divide the lines into `blocks` of near-equal length and assign them at random; no part is empty.

    A text with fewer lines than blocks is split line by line.
    """
    _check(fractions, seed, blocks)
    if len(lines) < 3:
        raise InputError(
            f"the text has {len(lines)} line{'' if len(lines) == 1 else 's'}; "
            "train, valid and test need at least one each: break the text into lines, or give --valid and --test"
        )
    blocks = min(blocks, len(lines))
    edges = [block * len(lines) // blocks for block in range(blocks + 1)]
    owners = np.repeat(np.arange(3), _apportion(blocks, fractions))  # (blocks,)
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    for block, owner in enumerate(np.random.default_rng(seed).permutation(owners)):
        parts[owner].extend(lines[edges[block] : edges[block + 1]])
    return Split(*parts)


def _apportion(blocks: int, fractions: Fractions) -> list[int]:
    """Assign one block to each part, and each further block to the part with the largest deficit."""
    counts = [1, 1, 1]
    for _ in range(blocks - 3):
        deficits = [fraction * blocks - count for fraction, count in zip(fractions, counts, strict=True)]
        counts[deficits.index(max(deficits))] += 1
    return counts


def _check(fractions: Fractions, seed: int, blocks: int) -> None:
    if len(fractions) != 3 or not all(f > 0 for f in fractions) or not math.isclose(sum(fractions), 1):
        raise UsageError(f"fractions are {fractions}; choose three above 0 that sum to 1")
    if blocks < 3:
        raise UsageError(f"blocks is {blocks}; choose 3 or more, one for each part")
    if seed < 0:
        raise UsageError(f"seed is {seed}; choose 0 or more")
