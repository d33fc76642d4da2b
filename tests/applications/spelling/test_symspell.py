"""The SymSpell index against all pairs of words, and edit distances by hand."""

import random

import numpy as np
import pytest

from chainrule.applications.spelling.noisy_channel import align
from chainrule.applications.spelling.symspell import (
    MAX_INDEXED_LENGTH,
    SymSpellIndex,
    edit_distances,
    to_code_points,
)


def edit_distance(meant: str, written: str) -> int:
    """Number of edits in the alignment with fewest edits."""
    return sum(before != after for before, after in align(meant, written))


@pytest.mark.parametrize("distance", [1, 2])
def test_find_returns_each_pair_within_the_distance_once(distance: int) -> None:
    rng = random.Random(distance)
    words = sorted({"".join(rng.choices("abcé", k=rng.randint(1, 11))) for _ in range(200)})
    queries = [*words[::9], *("".join(rng.choices("abcd", k=rng.randint(1, 11))) for _ in range(20))]
    rows, indices, edits = SymSpellIndex.of(words).find(queries, distance)
    neighbors = [(queries[r], words[i], int(d)) for r, i, d in zip(rows, indices, edits, strict=True)]
    expected = [(q, w, d) for q in queries for w in words if (d := edit_distance(w, q)) <= distance]
    assert sorted(neighbors) == sorted(expected)


def test_distances_by_hand() -> None:
    pairs = [("the", "teh"), ("account", "acount"), ("a", "abc"), ("abcdef", "uvwxyz"), ("same", "same")]
    distances = edit_distances(to_code_points([a for a, _ in pairs]), to_code_points([b for _, b in pairs]), 2)
    assert np.minimum(distances, 3).tolist() == [1, 1, 2, 3, 0]


def test_long_words_have_no_neighbours() -> None:
    long = "a" * (MAX_INDEXED_LENGTH + 1)
    rows, _, _ = SymSpellIndex.of([long, "short"]).find([long, "shrt", ""], 2)
    assert rows.tolist() == [1]
