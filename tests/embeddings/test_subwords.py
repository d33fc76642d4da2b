"""Character n-grams and their buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.embeddings.subwords import Subwords, fnv1a
from chainrule.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    # Published test vectors of the hash (Fowler, Noll, Vo).
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_hash_is_fnv1a(text: bytes, value: int) -> None:
    assert fnv1a(text) == value


def test_character_ngrams_worked_by_hand() -> None:
    assert Subwords(3, 6).grams("where")[:4] == ["<wh", "<whe", "<wher", "<where"]
    assert Subwords(3, 3).grams("where") == ["<wh", "whe", "her", "ere", "re>"]  # the example of the paper
    assert Subwords(3, 6).grams("") == []
    assert Subwords(1, 2).grams("é") == ["<é", "é", "é>"]  # characters, not bytes; no boundary alone


def test_subword_rows_are_hash_buckets() -> None:
    subwords = Subwords(3, 3, 1000)
    assert subwords.rows("é") == [fnv1a("<é>".encode()) % 1000]


@given(st.lists(st.text(max_size=8), max_size=8))
def test_subword_table_contains_the_rows_of_each_word(words: list[str]) -> None:
    subwords = Subwords(2, 4, 97)
    begins, rows = subwords.table(words)
    assert begins.dtype == np.uint64
    assert rows.dtype == np.uint32
    assert len(begins) == len(words) + 1
    for i, word in enumerate(words):
        word_rows = rows[int(begins[i]) : int(begins[i + 1])].tolist()
        assert word_rows == [len(words) + row for row in subwords.rows(word)]


@pytest.mark.parametrize("wrong", [(0, 3, 10), (4, 3, 10), (3, 6, 0)])
def test_invalid_subword_settings_are_rejected(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError):
        Subwords(*wrong)
