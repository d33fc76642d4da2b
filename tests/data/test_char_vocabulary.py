import json

import numpy as np
import pytest

from chainrule.errors import ConfigError, ModelFileError
from chainrule.neural.layers.char_cnn import CharVocabulary

WORDS = ["banana", "cab", "dc"]  # a 4, b 2, c 2, n 2, d 1


def test_characters_are_sorted_by_frequency_then_code_point() -> None:
    assert CharVocabulary.build(WORDS).characters == ("a", "b", "c", "n", "d")
    assert CharVocabulary.build(iter(["é", "z", "Z", "ß"])).characters == ("Z", "z", "ß", "é")  # 5A, 7A, DF, E9


def test_rare_characters_are_left_out() -> None:
    assert CharVocabulary.build(WORDS, min_count=2).characters == ("a", "b", "c", "n")
    assert CharVocabulary.build(WORDS, min_count=3).characters == ("a",)


def test_ids_have_boundary_marks_and_padding() -> None:
    table = CharVocabulary.build(WORDS)  # a 4, b 5, c 6, n 7, d 8
    assert table.size == 9
    ids = table.ids(["cab", "dx", ""])
    assert np.issubdtype(ids.dtype, np.integer)
    assert ids.tolist() == [[2, 6, 4, 5, 3], [2, 8, 1, 3, 0], [2, 3, 0, 0, 0]]


def test_ids_of_no_words_have_no_rows() -> None:
    assert CharVocabulary.build(WORDS).ids([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("longest", "shortened"),
    [(10, "abcdefghij"), (9, "abcdeghij"), (8, "abcdghij"), (5, "abcij"), (2, "aj")],
)
def test_long_words_keep_their_first_and_last_characters(longest: int, shortened: str) -> None:
    table = CharVocabulary(tuple("abcdefghij"))
    assert table.ids(["abcdefghij"], longest).tolist() == table.ids([shortened]).tolist()


def test_default_word_length_is_forty_characters() -> None:
    table = CharVocabulary(("a", "b"))
    assert table.ids(["a" * 40]).shape == (1, 42)
    assert table.ids(["a" * 40 + "b" * 40]).tolist() == [[2] + [4] * 20 + [5] * 20 + [3]]


def test_word_length_below_two_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"length is 1; choose 2 or more"):
        CharVocabulary(("a",)).ids(["a"], longest=1)


def test_ids_of_a_word_do_not_depend_on_the_others() -> None:
    table = CharVocabulary.build(WORDS)
    alone, together = table.ids(["cab"])[0], table.ids(["cab", "bananabanana"])[0]
    assert together[: len(alone)].tolist() == alone.tolist()
    assert not together[len(alone) :].any()


def test_char_vocabulary_json_round_trips() -> None:
    table = CharVocabulary.build([*WORDS, 'é\u0301\U0001f600\u2028\x00"'])
    again = CharVocabulary.from_json(json.loads(json.dumps(table.to_json())))
    assert again == table
    assert again.ids(["dab"]).tolist() == table.ids(["dab"]).tolist()


def test_char_vocabulary_equality_depends_on_order() -> None:
    assert CharVocabulary(("a", "b")) == CharVocabulary(("a", "b"))
    assert CharVocabulary(("a", "b")) != CharVocabulary(("b", "a"))


@pytest.mark.parametrize("foreign", [None, "ab", {"a": 1}, ["ab"], ["a", ""], [1]])
def test_char_vocabulary_rejects_invalid_json(foreign: object) -> None:
    with pytest.raises(ModelFileError, match="not a list of single characters"):
        CharVocabulary.from_json(foreign)


def test_char_vocabulary_rejects_duplicate_characters() -> None:
    with pytest.raises(ModelFileError, match="contains 'b' more than once"):
        CharVocabulary.from_json(["a", "b", "c", "b"])
