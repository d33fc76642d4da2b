"""Word vector files: exact round trip of every format."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from chainrule.embeddings.formats import read_vectors, write_vectors
from chainrule.errors import InputError, UsageError

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters=" \t\r\n\0"), min_size=1), unique=True),
    data=st.data(),
)
def test_what_is_written_is_read(words: list[str], data: st.DataObject) -> None:
    words = words or ["one"]
    width = data.draw(st.integers(1, 4))
    row = st.lists(numbers, min_size=width, max_size=width)
    matrix = np.array(data.draw(st.lists(row, min_size=len(words), max_size=len(words))), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.txt")
        write_vectors(path, words, matrix)
        found = read_vectors(path)
    assert found.words == tuple(words)
    assert_array_equal(found.matrix.view(np.uint32), matrix.view(np.uint32))  # the sign of 0 as well


def test_more_rows_than_are_written_at_once(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(2500, 3)).astype(np.float32)
    words = [f"w{i}" for i in range(2500)]
    write_vectors(tmp_path / "v.txt", words, matrix)
    found = read_vectors(tmp_path / "v.txt")
    assert found.words == tuple(words)
    assert_array_equal(found.matrix, matrix)


def test_few_digits_where_they_are_enough(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[0.1, -2.5], [1 / 3, 0]], dtype=np.float32))
    # 1/3 in 24 bits is 11184811 · 2⁻²⁵ = 0.333333343…; its neighbours are 3·10⁻⁸ away, so eight digits tell them
    # apart and seven do not.
    assert (tmp_path / "v.txt").read_text() == "2 2\na 0.1 -2.5\nb 0.33333334 0.0\n"


def test_a_number_that_double_precision_rounds_the_wrong_way(tmp_path: Path) -> None:
    # 7.038531e-26 is nearest to 0x15ae43fd, but its double lies exactly between that and 0x15ae43fe, the even one.
    matrix = np.array([[0x15AE43FD]], dtype=np.uint32).view(np.float32)
    assert np.float32(float(str(matrix[0, 0]))) != matrix[0, 0]
    write_vectors(tmp_path / "v.txt", ["a"], matrix)
    assert_array_equal(read_vectors(tmp_path / "v.txt").matrix, matrix)


def test_the_lines_alone_for_glove(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[0.5], [2]]), "glove")
    assert (tmp_path / "v.txt").read_text() == "a 0.5\nb 2.0\n"


def test_binary_numbers(tmp_path: Path) -> None:
    """1 is 0x3f800000 and −2 is 0xc0000000, the lowest byte first."""
    write_vectors(tmp_path / "v.bin", ["ä", "b"], np.array([[1.0, -2.0], [0, 1]]), "word2vec-binary")
    one, minus_two = b"\0\0\x80\x3f", b"\0\0\0\xc0"
    expected = b"2 2\n\xc3\xa4 " + one + minus_two + b"\nb \0\0\0\0" + one + b"\n"
    assert (tmp_path / "v.bin").read_bytes() == expected


def test_a_format_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose one of word2vec, word2vec-binary, glove"):
        write_vectors(tmp_path / "v", ["a"], np.ones((1, 1)), "csv")  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["", "new york", "a\tb", "a\nb", "a\rb", "a\0b", "\ud800"])
def test_words_that_the_format_cannot_hold(tmp_path: Path, word: str) -> None:
    with pytest.raises(
        InputError, match=r"^word 2, .*(is empty|which UTF-8 cannot hold|end a word); rename or drop it"
    ):
        write_vectors(tmp_path / "v.txt", ["a", word], np.ones((2, 1)))
    assert not list(tmp_path.iterdir())


def test_a_word_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="words 1 and 3 are both 'a'"):
        write_vectors(tmp_path / "v.txt", ["a", "b", "a"], np.ones((3, 1)))


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2,), (2, 0), (2, 1, 1)])
def test_a_row_for_each_word(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="2 words need one row of numbers each"):
        write_vectors(tmp_path / "v.txt", ["a", "b"], np.ones(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_what_is_not_finite_leaves_the_old_file(tmp_path: Path, value: float) -> None:
    write_vectors(tmp_path / "v.txt", ["a"], np.ones((1, 1)))
    with pytest.raises(InputError, match="the vector of 'b' is not finite"):
        write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[1.0], [value]]))
    assert (tmp_path / "v.txt").read_text() == "1 1\na 1.0\n"


def test_a_name_that_promises_packing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"drop \.gz"):
        write_vectors(tmp_path / "v.txt.gz", ["a"], np.ones((1, 1)))
