"""Near words: against every pair measured one by one."""

import random

import numpy as np
import pytest

from chainrule.applications.spelling.noisy_channel import edit_distance
from chainrule.applications.spelling.symspell import MAX_WORD_LENGTH, SymSpellIndex, edit_distances, to_code_points


@pytest.mark.parametrize("distance", [1, 2])
def test_all_near_words_and_no_others(distance: int) -> None:
    rng = random.Random(distance)
    words = sorted({"".join(rng.choices("abcé", k=rng.randint(1, 11))) for _ in range(200)})
    asked = [*words[::9], *("".join(rng.choices("abcd", k=rng.randint(1, 11))) for _ in range(20))]
    rows, places, found = SymSpellIndex.of(words).find(asked, distance)
    got = {(asked[r], words[p]): int(d) for r, p, d in zip(rows, places, found, strict=True)}
    wanted = {(a, w): d for a in asked for w in words if (d := edit_distance(w, a)) <= distance}
    assert got == wanted
    assert len(rows) == sum(edit_distance(w, a) <= distance for a in asked for w in words)  # each pair once


def test_distances_by_hand() -> None:
    pairs = [("the", "teh"), ("account", "acount"), ("a", "abc"), ("abcdef", "uvwxyz"), ("same", "same")]
    found = edit_distances(to_code_points([a for a, _ in pairs]), to_code_points([b for _, b in pairs]), 2)
    assert np.minimum(found, 3).tolist() == [1, 1, 2, 3, 0]


def test_a_word_beyond_all_measure_has_no_neighbours() -> None:
    long = "a" * (MAX_WORD_LENGTH + 1)
    rows, _, _ = SymSpellIndex.of([long, "short"]).find([long, "shrt", ""], 2)
    assert rows.tolist() == [1]
