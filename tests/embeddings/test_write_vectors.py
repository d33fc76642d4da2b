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
def test_vector_files_round_trip_exactly(words: list[str], data: st.DataObject) -> None:
    words = words or ["one"]
    width = data.draw(st.integers(1, 4))
    row = st.lists(numbers, min_size=width, max_size=width)
    matrix = np.array(data.draw(st.lists(row, min_size=len(words), max_size=len(words))), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.txt")
        write_vectors(path, words, matrix)
        vectors = read_vectors(path)
    assert vectors.words == tuple(words)
    assert_array_equal(vectors.matrix.view(np.uint32), matrix.view(np.uint32))  # including the sign of 0


def test_write_more_rows_than_one_block(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(2500, 3)).astype(np.float32)
    words = [f"w{i}" for i in range(2500)]
    write_vectors(tmp_path / "v.txt", words, matrix)
    vectors = read_vectors(tmp_path / "v.txt")
    assert vectors.words == tuple(words)
    assert_array_equal(vectors.matrix, matrix)


def test_text_format_uses_the_fewest_digits(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[0.1, -2.5], [1 / 3, 0]], dtype=np.float32))
    # 1/3 in 24 bits is 11184811 · 2⁻²⁵ = 0.333333343…; its neighbours are 3·10⁻⁸ away, so eight digits distinguish
    # them and seven do not.
    assert (tmp_path / "v.txt").read_text() == "2 2\na 0.1 -2.5\nb 0.33333334 0.0\n"


def test_number_that_double_rounding_would_change(tmp_path: Path) -> None:
    # 7.038531e-26 is nearest to 0x15ae43fd, but its double is exactly between that and 0x15ae43fe, the even one.
    matrix = np.array([[0x15AE43FD]], dtype=np.uint32).view(np.float32)
    assert np.float32(float(str(matrix[0, 0]))) != matrix[0, 0]
    write_vectors(tmp_path / "v.txt", ["a"], matrix)
    assert_array_equal(read_vectors(tmp_path / "v.txt").matrix, matrix)


def test_glove_format_has_no_header(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[0.5], [2]]), "glove")
    assert (tmp_path / "v.txt").read_text() == "a 0.5\nb 2.0\n"


def test_binary_format_worked_by_hand(tmp_path: Path) -> None:
    """1 is 0x3f800000 and −2 is 0xc0000000, little-endian."""
    write_vectors(tmp_path / "v.bin", ["ä", "b"], np.array([[1.0, -2.0], [0, 1]]), "word2vec-binary")
    one, minus_two = b"\0\0\x80\x3f", b"\0\0\0\xc0"
    expected = b"2 2\n\xc3\xa4 " + one + minus_two + b"\nb \0\0\0\0" + one + b"\n"
    assert (tmp_path / "v.bin").read_bytes() == expected


def test_unknown_format_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose one of word2vec, word2vec-binary, glove"):
        write_vectors(tmp_path / "v", ["a"], np.ones((1, 1)), "csv")  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["", "new york", "a\tb", "a\nb", "a\rb", "a\0b", "\ud800"])
def test_words_the_format_cannot_hold_are_rejected(tmp_path: Path, word: str) -> None:
    with pytest.raises(
        InputError, match=r"^word 2, .*(is empty|which UTF-8 cannot encode|end a word); rename or drop it"
    ):
        write_vectors(tmp_path / "v.txt", ["a", word], np.ones((2, 1)))
    assert not list(tmp_path.iterdir())


def test_duplicate_words_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="words 1 and 3 are both 'a'"):
        write_vectors(tmp_path / "v.txt", ["a", "b", "a"], np.ones((3, 1)))


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2,), (2, 0), (2, 1, 1)])
def test_matrix_shape_must_match_the_words(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="2 words need one row of numbers each"):
        write_vectors(tmp_path / "v.txt", ["a", "b"], np.ones(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_non_finite_vectors_leave_the_old_file(tmp_path: Path, value: float) -> None:
    write_vectors(tmp_path / "v.txt", ["a"], np.ones((1, 1)))
    with pytest.raises(InputError, match="the vector of 'b' is not finite"):
        write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[1.0], [value]]))
    assert (tmp_path / "v.txt").read_text() == "1 1\na 1.0\n"


def test_compression_suffix_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"remove the suffix \.gz"):
        write_vectors(tmp_path / "v.txt.gz", ["a"], np.ones((1, 1)))
