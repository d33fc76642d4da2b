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


def test_neighbors_are_sorted_by_angle(plane: WordVectors) -> None:
    """Nearest first; b before e, which has the same angle and comes later."""
    near = plane.neighbors("a")
    assert [word for word, _ in near] == ["b", "e", "c", "d"]
    assert_allclose([cosine for _, cosine in near], [0.5, 0.5, 0, -1], atol=1e-6)
    assert plane.neighbors("a", top=1) == near[:1]
    assert plane.neighbors("a", top=4) == plane.neighbors("a", top=100) == near
    assert_allclose(np.linalg.norm(plane.unit, axis=1), 1, rtol=1e-6)
    assert plane.unit is plane.unit


def test_similarity_is_the_cosine(plane: WordVectors) -> None:
    assert plane.similarity("a", "b") == pytest.approx(0.5)
    assert plane.similarity("c", "b") == pytest.approx(math.sqrt(3) / 2)
    assert plane.similarity("d", "d") == pytest.approx(1)


def test_neighbors_of_many_words_equal_a_full_sort() -> None:
    rng = np.random.default_rng(0)
    vectors = WordVectors(tuple(f"w{i}" for i in range(200)), rng.normal(size=(200, 5)).astype(np.float32))
    cosines = {w: vectors.similarity("w7", w) for w in vectors.words if w != "w7"}
    for top in (1, 3, 199, 200):
        expected = sorted(cosines, key=lambda w: -cosines[w])[:top]
        assert [word for word, _ in vectors.neighbors("w7", top)] == expected


def test_zero_vector_has_zero_similarity() -> None:
    vectors_ = vectors({"a": (1, 0), "none": (0, 0)})
    assert vectors_.neighbors("a") == [("none", 0.0)]
    assert_array_equal(vectors_.unit[1], [0, 0])


def test_analogy_by_addition_worked_by_hand(court: WordVectors) -> None:
    """king − man + woman = (√½ − 1, 1, √½) for unit vectors, squared norm 1.5858; queen is (0, 1, 1)/√2."""
    square = (HALF - 1) ** 2 + 1 + 0.5
    answers = court.analogy("man", "king", "woman")
    assert [word for word, _ in answers] == ["queen", "apple"]
    assert_allclose([s for _, s in answers], [(1 + HALF) * HALF / square**0.5, (1 - HALF) / square**0.5], rtol=1e-5)


def test_analogy_by_multiplication_worked_by_hand(court: WordVectors) -> None:
    """queen: cosines ½, √½ and 0 with king, woman and man: ¾ · (1 + √½)/2 / 0.501. apple: −√½, 0 and −1, so the
    divisor is ε alone: (1 − √½)/2 · ½ / 0.001.
    """
    answers = dict(court.analogy("man", "king", "woman", method="mul"))
    assert answers["queen"] == pytest.approx(0.75 * (1 + HALF) / 2 / 0.501, rel=1e-5)
    assert answers["apple"] == pytest.approx((1 - HALF) / 4 / 0.001, rel=1e-3)
    assert list(answers) == ["apple", "queen"]


def test_unknown_words_suggest_similar_spellings(court: WordVectors) -> None:
    with pytest.raises(InputError, match="'kings' is not among the 5 words; did you mean 'king'"):
        court.neighbors("kings")
    with pytest.raises(InputError, match="did you mean 'queen'"):
        court.analogy("man", "qeuen", "woman")
    with pytest.raises(InputError, match="nothing is spelled like it"):
        court.vector("xylophone")
    assert "king" in court
    vectors_ = vectors({"King": (1, 0), "the": (0, 1), "NATO": (1, 1)})
    for word, near in (("KING", "King"), ("The", "the"), ("nato", "NATO"), ("teh", "the")):
        assert word not in vectors_
        assert vectors_.suggest_spellings(word) == [near]


def test_suggested_spellings_equal_comparison_with_every_word() -> None:
    """Words skipped by their length and letters alone could not have been similar."""
    letters = "abcd"
    words = tuple("".join(drawn) for n in range(1, 6) for drawn in itertools.product(letters, repeat=n))
    vectors = WordVectors(words, np.zeros((len(words), 1), np.float32))
    for word in ("abcdx", "xxab", "bcxda", "aaaabx", "xabcdy", "xyz"):
        compared = [known for known in words if abs(len(known) - len(word)) <= 2]
        assert vectors.suggest_spellings(word) == difflib.get_close_matches(word, compared, n=3, cutoff=0.7)


def test_spelling_suggestions_compare_a_bounded_number_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst case: words of the same letters, none of which can be skipped."""
    words = tuple("".join(drawn) for drawn in itertools.islice(itertools.permutations("abcdefghijkl"), 30_000))
    vectors = WordVectors(words, np.zeros((len(words), 1), np.float32))
    compared: list[str] = []
    close = difflib.get_close_matches

    def recorded_close_matches(word: str, possibilities: Iterable[str], **settings: Any) -> list[str]:
        compared.extend(possibilities)
        return close(word, compared, **settings)

    monkeypatch.setattr(difflib, "get_close_matches", recorded_close_matches)
    monkeypatch.setattr("chainrule.embeddings.vectors.SUGGESTION_CHARACTERS", 7000)
    assert vectors.suggest_spellings("abcdefghijlkx")
    assert len(compared) == 7000 // (len("abcdefghijlkx") + 1)


def test_lower_case_words_are_found_by_capitals() -> None:
    assert not vectors({"king": (1, 0), "Queen": (1, 1)}).lowercase  # case is significant here
    vectors_ = vectors({"king": (1, 0), "queen": (1, 1), "7": (0, 0)}, lowercase=False)
    assert vectors_.lowercase
    vectors_ = vectors({"king": (1, 0), "queen": (1, 1)})
    assert "KING" in vectors_
    ((word, cosine),) = vectors_.neighbors("KING")
    assert word == "queen"
    assert cosine == pytest.approx(HALF)


def test_unknown_word_vector_is_the_mean_of_its_ngrams() -> None:
    """With n-grams of one letter (a, b) and known buckets, the vector of `ab` is the mean of the two."""
    subwords = Subwords(1, 1, 7)
    buckets = np.arange(14, dtype=np.float32).reshape(7, 2)
    vectors_ = vectors({"x": (1, 0)}, subwords=subwords, buckets=buckets)
    first, second = subwords.rows("ab")
    assert_allclose(vectors_.vector("ab"), (buckets[first] + buckets[second]) / 2)
    assert_array_equal(vectors_.vector("x"), [1, 0])
    assert_array_equal(vectors_["x"], [1, 0])
    assert "ab" not in vectors_
    assert [word for word, _ in vectors_.neighbors("ab")] == ["x"]
    assert vectors_.parameters == 16


def test_one_hot_queries() -> None:
    vectors_ = WordVectors(("a", "b", "c"), np.zeros((3, 0), np.float32))
    assert vectors_.is_one_hot
    assert vectors_.dimensions == 3
    assert_array_equal(vectors_.vector("b"), [0, 1, 0])
    assert (vectors_.similarity("a", "b"), vectors_.similarity("b", "b")) == (0.0, 1.0)
    assert vectors_.neighbors("a") == vectors_.analogy("a", "b", "c") == []
    for ask in (
        lambda: vectors_.neighbors("z"),
        lambda: vectors_.analogy("a", "b", "z"),
        lambda: vectors_.vector("z"),
    ):
        with pytest.raises(InputError, match="'z' is not among"):
            ask()
    with pytest.raises(UsageError, match="cannot be exported"):
        vectors_.export("nowhere.txt")


def test_invalid_queries_are_rejected(court: WordVectors, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="top is 0"):
        court.neighbors("king", 0)
    with pytest.raises(UsageError, match="choose add or mul"):
        court.analogy("man", "king", "woman", method="divide")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no format 'csv'"):
        court.export(tmp_path / "v", "csv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 words need a row each"):
        WordVectors(("a", "b"), np.ones((1, 2), np.float32))
    assert repr(court) == "<imported vectors: 5 words, 3 dimensions>"
