"""Word vector files: every format is read, and errors name the line."""

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from numpy.testing import assert_array_equal

from chainrule.embeddings.formats import LONGEST_LINE, Vectors, initial_embeddings, read_vectors
from chainrule.errors import ChainruleWarning, InputError, NotFoundError, UsageError

WORDS = ("the", "über", "a\u00a0b", "a\u2028b")  # a no-break space and a line separator are not separators
MATRIX = np.array([[0.5, -1.0], [2.0, 1e-3], [0.0, 3.0], [4.0, 5.0]], dtype=np.float32)
LINES = ["the 0.5 -1", "über 2 1e-3", "a\u00a0b -0.0 3.", "a\u2028b 4 +5"]

FORMS: dict[str, str] = {
    "glove": "\n".join(LINES) + "\n",
    "word2vec": "\n".join(["4 2", *LINES]) + "\n",
    "not ended": "\n".join(LINES),
    "ending blanks": "".join(line + " \n" for line in ["4 2", *LINES]),
    "windows": "\r\n".join(["4 2", *LINES]) + "\r\n",
    "marked": "\ufeff" + "\n".join(LINES) + "\n",
    "marked header": "\ufeff" + "\n".join(["4 2", *LINES]) + "\n",
    "blank lines": "\n" + "\n\n".join(LINES) + "\n\n",
}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    ".txt": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("form", FORMS)
def test_every_text_format_gives_the_same_vectors(tmp_path: Path, form: str, packing: str) -> None:
    path = tmp_path / f"vectors{packing}"
    path.write_bytes(PACKINGS[packing](FORMS[form].encode()))
    vectors = read_vectors(path)
    assert vectors.words == WORDS
    assert vectors.matrix.dtype == np.float32
    assert_array_equal(vectors.matrix, MATRIX)


def test_read_only_requested_words(tmp_path: Path) -> None:
    path = write(tmp_path, FORMS["word2vec"])
    vectors = read_vectors(path, {"a\u2028b", "über", "absent", "\ud800"})
    assert vectors.words == ("über", "a\u2028b")  # in file order
    assert_array_equal(vectors.matrix, MATRIX[[1, 3]])


def test_read_lines_longer_than_a_block(tmp_path: Path) -> None:
    # 40,000 values of two characters are more than one block of 65,536 bytes.
    values = [i % 10 for i in range(40_000)]
    path = write(tmp_path, f"long {' '.join(map(str, values))}\nalso {' '.join(map(str, values[::-1]))}\n")
    assert_array_equal(read_vectors(path).matrix, [values, values[::-1]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 3\n", r"line 2: 1 values after 'b' where the first vector has 2"),
        ("a 1 2\nb 3 4 5\n", r"line 2: 3 values after 'b' where the first vector has 2"),
        ("2 3\na 1 2\nb 3 4\n", r"line 2: 2 values after 'a' where line 1 says 3"),
        ("1 0\na 1\n", r"line 2: 1 values after 'a' where line 1 says 0"),
        ("a 1 2\nb\n", r"line 2: contains a word without values"),
        ("a\t1\t2\n", r"line 1: contains a word without values"),
        ("a 1 2\n 3 4\n", r"line 2: begins with a blank"),
        ("a 1 2\nb  3\n", r"line 2: '' is not a number"),
        ("a 1 2\nb 3 x4\n", r"line 2: 'x4' is not a number"),
        ("a 1 2\nb 3 1_0\n", r"line 2: '1_0' is not a number"),
        ("a 1 2\nb 3 ٤\n", r"line 2: '٤' is not a number"),
        ("a 1 2\nb nan 4\n", r"line 2: the vector of 'b' is not finite"),
        ("a 1 2\nb inf -inf\n", r"line 2: the vector of 'b' is not finite"),
        ("a 1 2\nb 3 1e39\n", r"line 2: the vector of 'b' is not finite"),
        ("1 2\na 1 2\nb 3 4\n", r"line 3: line 1 counts 1 words, but more follow"),
        ("3 2\na 1 2\nb 3 4\n", r"line 3: line 1 counts 3 words, but the file ends after 2"),
        (b"a 1 2\n\xff 3 4\n", r"line 2: .* is not UTF-8"),
        ("a " + "1 " * LONGEST_LINE, r"line 1: longer than 1048576 bytes"),
        ("", r"contains no vectors"),
        ("\n \n", r"contains no vectors"),
        ("0 2\n", r"contains no vectors"),
    ],
)
def test_invalid_vector_lines_are_reported_with_line_number(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_vectors(write(tmp_path, text))
    assert "vectors.txt" in str(caught.value)


def test_width_of_skipped_lines_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: 1 values"):
        read_vectors(write(tmp_path, "a 1 2\nb 3\n"), {"a"})


def test_file_without_requested_words_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains none of the 2 requested words"):
        read_vectors(write(tmp_path, FORMS["glove"]), {"The", "dog"})


def test_read_vectors_requires_exactly_one_file(tmp_path: Path) -> None:
    write(tmp_path, FORMS["glove"])
    assert read_vectors(tmp_path).words == WORDS  # a folder with one file stands for that file
    (tmp_path / "more.txt").write_text("a 1\n")
    with pytest.raises(UsageError, match="refers to 2 files"):
        read_vectors(tmp_path)
    with pytest.raises(NotFoundError, match="absent"):
        read_vectors(tmp_path / "absent.txt")


def test_repeated_word_keeps_its_first_vector(tmp_path: Path) -> None:
    path = write(tmp_path, "4 1\na 1\nb 2\na 3\na 4\n")
    with pytest.warns(ChainruleWarning, match="2 lines repeat a word") as caught:
        vectors = read_vectors(path)
    assert len(caught) == 1
    assert vectors.words == ("a", "b")
    assert_array_equal(vectors.matrix, [[1], [2]])
    assert read_vectors(path, {"b"}).words == ("b",)  # skipped lines are not counted


def test_memory_depends_on_the_requested_words(tmp_path: Path) -> None:
    # 8 MB of vectors, of which one is requested; the header claims 10^18 − 1 and the file ends early.
    line = " ".join(["0.125"] * 100)
    body = "".join(f"w{i} {line}\n" for i in range(13_000))
    path = write(tmp_path, body)
    tracemalloc.start()
    try:
        assert read_vectors(path, {"w12999"}).matrix.shape == (1, 100)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
        claim = write(tmp_path, f"{10**18 - 1} 100\nw0 {line}\n")
        tracemalloc.reset_peak()
        with pytest.raises(InputError, match="counts 999999999999999999 words, but the file ends after 1"):
            read_vectors(claim)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_initial_embeddings_match_names_case_insensitively() -> None:
    # ±2 has standard deviation 2 and mean 0.
    vectors = Vectors(("the", "The", "cat"), np.array([[2, -2], [-2, 2], [2, -2]], dtype=np.float32))
    names = ["</s>", "Cat", "The", "the", "THE"]
    embeddings, coverage = initial_embeddings(vectors, names, np.random.default_rng(3))
    assert coverage == 0.8
    assert embeddings.dtype == np.float32
    assert_array_equal(embeddings[1:], [[2, -2], [-2, 2], [2, -2], [2, -2]])
    again, _ = initial_embeddings(vectors, names, np.random.default_rng(3))
    assert_array_equal(embeddings, again)


def test_missing_embeddings_are_noise_of_the_same_scale() -> None:
    vectors = Vectors(("a", "b"), np.array([[2, -2], [-2, 2]], dtype=np.float32))
    embeddings, coverage = initial_embeddings(vectors, [f"w{i}" for i in range(50_000)], np.random.default_rng(0))
    assert coverage == 0
    # 100,000 draws: the standard error of the deviation is 2/√200,000 = 0.0045, of the mean 2/√100,000 = 0.0063.
    assert embeddings.std() == pytest.approx(2, abs=0.02)
    assert embeddings.mean() == pytest.approx(0, abs=0.03)


def test_initial_embeddings_of_no_names() -> None:
    vectors = Vectors(("a",), np.ones((1, 3), dtype=np.float32))
    embeddings, coverage = initial_embeddings(vectors, [], np.random.default_rng(0))
    assert embeddings.shape == (0, 3)
    assert coverage == 0


def test_words_may_contain_spaces_if_the_width_is_known(tmp_path: Path) -> None:
    """As in GloVe's largest file: `. . . 0.1 0.2`."""
    (tmp_path / "v.txt").write_text("a 1 2\n. . . 3 4\nnew york 5 6\n")
    vectors = read_vectors(tmp_path / "v.txt")
    assert vectors.words == ("a", ". . .", "new york")
    assert vectors.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]
