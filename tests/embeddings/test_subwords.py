"""Character n-grams and their buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.embeddings.subwords import Subwords, fnv1a
from chainrule.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    # Test vectors that the authors of the hash (Fowler, Noll, Vo) publish.
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_the_hash_is_fnv(text: bytes, value: int) -> None:
    assert fnv1a(text) == value


def test_n_grams_by_hand() -> None:
    assert Subwords(3, 6).grams("where")[:4] == ["<wh", "<whe", "<wher", "<where"]
    assert Subwords(3, 3).grams("where") == ["<wh", "whe", "her", "ere", "re>"]  # the example of the paper
    assert Subwords(3, 6).grams("") == []
    assert Subwords(1, 2).grams("é") == ["<é", "é", "é>"]  # letters, not bytes; no border alone


def test_rows_are_buckets() -> None:
    made = Subwords(3, 3, 1000)
    assert made.rows("é") == [fnv1a("<é>".encode()) % 1000]


@given(st.lists(st.text(max_size=8), max_size=8))
def test_the_table_holds_the_rows_of_each_word(words: list[str]) -> None:
    made = Subwords(2, 4, 97)
    begins, rows = made.table(words)
    assert begins.dtype == np.uint64
    assert rows.dtype == np.uint32
    assert len(begins) == len(words) + 1
    for i, word in enumerate(words):
        found = rows[int(begins[i]) : int(begins[i + 1])].tolist()
        assert found == [len(words) + row for row in made.rows(word)]


@pytest.mark.parametrize("wrong", [(0, 3, 10), (4, 3, 10), (3, 6, 0)])
def test_what_cannot_be(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError):
        Subwords(*wrong)
