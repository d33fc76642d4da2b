"""Near words: against every pair measured one by one."""

import random

import numpy as np
import pytest

from chainrule.applications.alignment import edits
from chainrule.applications.neighbors import LONGEST_WORD, Neighbors, distances
from chainrule.applications.spelled import spell


@pytest.mark.parametrize("distance", [1, 2])
def test_all_near_words_and_no_others(distance: int) -> None:
    rng = random.Random(distance)
    words = sorted({"".join(rng.choices("abcé", k=rng.randint(1, 11))) for _ in range(200)})
    asked = [*words[::9], *("".join(rng.choices("abcd", k=rng.randint(1, 11))) for _ in range(20))]
    rows, places, found = Neighbors.of(words).find(asked, distance)
    got = {(asked[r], words[p]): int(d) for r, p, d in zip(rows, places, found, strict=True)}
    wanted = {(a, w): d for a in asked for w in words if (d := edits(w, a)) <= distance}
    assert got == wanted
    assert len(rows) == sum(edits(w, a) <= distance for a in asked for w in words)  # each pair once


def test_distances_by_hand() -> None:
    pairs = [("the", "teh"), ("account", "acount"), ("a", "abc"), ("abcdef", "uvwxyz"), ("same", "same")]
    found = distances(spell([a for a, _ in pairs]), spell([b for _, b in pairs]), 2)
    assert np.minimum(found, 3).tolist() == [1, 1, 2, 3, 0]


def test_a_word_beyond_all_measure_has_no_neighbours() -> None:
    long = "a" * (LONGEST_WORD + 1)
    rows, _, _ = Neighbors.of([long, "short"]).find([long, "shrt", ""], 2)
    assert rows.tolist() == [1]
