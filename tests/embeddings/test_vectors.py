"""Queries of word vectors, worked by hand in two and three dimensions."""

import difflib
import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import InputError, UsageError

HALF = math.sqrt(0.5)


def vectors(rows: dict[str, tuple[float, ...]], **more: object) -> WordVectors:
    return WordVectors(tuple(rows), np.array(list(rows.values()), np.float32), **more)  # type: ignore[arg-type]


@pytest.fixture
def plane() -> WordVectors:
    """Angles of 0, 60, 90, 180 and 60 degrees, at different lengths."""
    return vectors({"a": (2, 0), "b": (3, 3 * math.sqrt(3)), "c": (0, 0.5), "d": (-1, 0), "e": (0.1, 0.1 * 3**0.5)})


@pytest.fixture
def court() -> WordVectors:
    return vectors(
        {"man": (1, 0, 0), "woman": (0, 1, 0), "king": (1, 0, 1), "queen": (0, 1, 1), "apple": (-1, 0, 0)}
    )


def test_neighbours_by_angle(plane: WordVectors) -> None:
    """Nearest first; b before e, which has the same angle and stands later."""
    near = plane.neighbors("a")
    assert [word for word, _ in near] == ["b", "e", "c", "d"]
    assert_allclose([cosine for _, cosine in near], [0.5, 0.5, 0, -1], atol=1e-6)
    assert plane.neighbors("a", top=1) == near[:1]
    assert plane.neighbors("a", top=4) == plane.neighbors("a", top=100) == near
    assert_allclose(np.linalg.norm(plane.unit, axis=1), 1, rtol=1e-6)
    assert plane.unit is plane.unit


def test_similarity(plane: WordVectors) -> None:
    assert plane.similarity("a", "b") == pytest.approx(0.5)
    assert plane.similarity("c", "b") == pytest.approx(math.sqrt(3) / 2)
    assert plane.similarity("d", "d") == pytest.approx(1)


def test_many_words_give_the_same_as_sorting_them_all() -> None:
    rng = np.random.default_rng(0)
    made = WordVectors(tuple(f"w{i}" for i in range(200)), rng.normal(size=(200, 5)).astype(np.float32))
    cosines = {w: made.similarity("w7", w) for w in made.words if w != "w7"}
    for top in (1, 3, 199, 200):
        expected = sorted(cosines, key=lambda w: -cosines[w])[:top]
        assert [word for word, _ in made.neighbors("w7", top)] == expected


def test_a_row_of_zeros_is_near_to_nothing() -> None:
    made = vectors({"a": (1, 0), "none": (0, 0)})
    assert made.neighbors("a") == [("none", 0.0)]
    assert_array_equal(made.unit[1], [0, 0])


def test_analogy_by_addition(court: WordVectors) -> None:
    """king − man + woman = (√½ − 1, 1, √½) at lengths 1, of square length 1.5858; queen is (0, 1, 1)/√2."""
    square = (HALF - 1) ** 2 + 1 + 0.5
    found = court.analogy("man", "king", "woman")
    assert [word for word, _ in found] == ["queen", "apple"]
    assert_allclose([s for _, s in found], [(1 + HALF) * HALF / square**0.5, (1 - HALF) / square**0.5], rtol=1e-5)


def test_analogy_by_multiplication(court: WordVectors) -> None:
    """queen: cosines ½, √½ and 0 with king, woman and man: ¾ · (1 + √½)/2 / 0.501. apple: −√½, 0 and −1, so that
    the divisor is ε alone: (1 − √½)/2 · ½ / 0.001.
    """
    found = dict(court.analogy("man", "king", "woman", method="mul"))
    assert found["queen"] == pytest.approx(0.75 * (1 + HALF) / 2 / 0.501, rel=1e-5)
    assert found["apple"] == pytest.approx((1 - HALF) / 4 / 0.001, rel=1e-3)
    assert list(found) == ["apple", "queen"]


def test_unknown_words_are_answered_with_near_spellings(court: WordVectors) -> None:
    with pytest.raises(InputError, match="'kings' is not among the 5 words; did you mean 'king'"):
        court.neighbors("kings")
    with pytest.raises(InputError, match="did you mean 'queen'"):
        court.analogy("man", "qeuen", "woman")
    with pytest.raises(InputError, match="nothing is spelled like it"):
        court.vector("xylophone")
    assert "king" in court
    made = vectors({"King": (1, 0), "the": (0, 1), "NATO": (1, 1)})
    for word, near in (("KING", "King"), ("The", "the"), ("nato", "NATO"), ("teh", "the")):
        assert word not in made
        assert made.suggest_spellings(word) == [near]


def test_near_spellings_are_those_of_comparing_with_every_word() -> None:
    """Words that are passed over by their length and letters alone could not have been near."""
    letters = "abcd"
    words = tuple("".join(drawn) for n in range(1, 6) for drawn in itertools.product(letters, repeat=n))
    made = WordVectors(words, np.zeros((len(words), 1), np.float32))
    for word in ("abcdx", "xxab", "bcxda", "aaaabx", "xabcdy", "xyz"):
        compared = [known for known in words if abs(len(known) - len(word)) <= 2]
        assert made.suggest_spellings(word) == difflib.get_close_matches(word, compared, n=3, cutoff=0.7)


def test_near_spellings_compare_a_bounded_number_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst there is: words of the same letters, none of which can be passed over unseen."""
    words = tuple("".join(drawn) for drawn in itertools.islice(itertools.permutations("abcdefghijkl"), 30_000))
    made = WordVectors(words, np.zeros((len(words), 1), np.float32))
    compared: list[str] = []
    close = difflib.get_close_matches

    def note(word: str, possibilities: Iterable[str], **settings: Any) -> list[str]:
        compared.extend(possibilities)
        return close(word, compared, **settings)

    monkeypatch.setattr(difflib, "get_close_matches", note)
    monkeypatch.setattr("chainrule.embeddings.vectors.SUGGESTION_CHARACTERS", 7000)
    assert made.suggest_spellings("abcdefghijlkx")
    assert len(compared) == 7000 // (len("abcdefghijlkx") + 1)


def test_words_in_lower_case_are_found_in_capitals() -> None:
    assert not vectors({"king": (1, 0), "Queen": (1, 1)}).lowercase  # capitals mean something here
    made = vectors({"king": (1, 0), "queen": (1, 1), "7": (0, 0)}, lowercase=False)
    assert made.lowercase
    made = vectors({"king": (1, 0), "queen": (1, 1)})
    assert "KING" in made
    ((word, cosine),) = made.neighbors("KING")
    assert word == "queen"
    assert cosine == pytest.approx(HALF)


def test_unknown_words_by_their_n_grams() -> None:
    """With all n-grams of `<ab>` of one letter (a, b) and buckets of our own the vector is the mean of the two."""
    subwords = Subwords(1, 1, 7)
    buckets = np.arange(14, dtype=np.float32).reshape(7, 2)
    made = vectors({"x": (1, 0)}, subwords=subwords, buckets=buckets)
    first, second = subwords.rows("ab")
    assert_allclose(made.vector("ab"), (buckets[first] + buckets[second]) / 2)
    assert_array_equal(made.vector("x"), [1, 0])
    assert_array_equal(made["x"], [1, 0])
    assert "ab" not in made
    assert [word for word, _ in made.neighbors("ab")] == ["x"]
    assert made.parameters == 16


def test_one_hot() -> None:
    made = WordVectors(("a", "b", "c"), np.zeros((3, 0), np.float32))
    assert made.is_one_hot
    assert made.dimensions == 3
    assert_array_equal(made.vector("b"), [0, 1, 0])
    assert (made.similarity("a", "b"), made.similarity("b", "b")) == (0.0, 1.0)
    assert made.neighbors("a") == made.analogy("a", "b", "c") == []
    for ask in (lambda: made.neighbors("z"), lambda: made.analogy("a", "b", "z"), lambda: made.vector("z")):
        with pytest.raises(InputError, match="'z' is not among"):
            ask()
    with pytest.raises(UsageError, match="not written out"):
        made.export("nowhere.txt")


def test_wrong_calls(court: WordVectors, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="top is 0"):
        court.neighbors("king", 0)
    with pytest.raises(UsageError, match="choose add or mul"):
        court.analogy("man", "king", "woman", method="divide")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no format 'csv'"):
        court.export(tmp_path / "v", "csv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 words need a row each"):
        WordVectors(("a", "b"), np.ones((1, 2), np.float32))
    assert repr(court) == "<imported vectors: 5 words, 3 dimensions>"
