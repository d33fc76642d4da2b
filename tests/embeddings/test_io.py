"""File formats of word2vec, gensim and GloVe, byte by byte."""

import gzip
import struct
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from chainrule.embeddings import storage
from chainrule.embeddings.formats import Format
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ChainruleWarning, InputError, ModelFileError, NotFoundError, UsageError

ROWS: dict[str, tuple[float, ...]] = {
    "the": (0.5, -1.25, 3.0),
    "König": (1e-3, 0.0, -2.0),
    "日本": (-0.1, 0.2, 0.3),
}
MATRIX = np.array(list(ROWS.values()), np.float32)


def binary(rows: dict[str, tuple[float, ...]], end: bytes = b"") -> bytes:
    """The format of gensim's save_word2vec_format(binary=True); the C program ends rows with a line break."""
    width = len(next(iter(rows.values())))
    head = f"{len(rows)} {width}\n".encode()
    return head + b"".join(w.encode() + b" " + struct.pack(f"<{width}f", *v) + end for w, v in rows.items())


def gensim_text(rows: dict[str, tuple[float, ...]]) -> bytes:
    """The format of save_word2vec_format(binary=False): shortest float32 digits."""
    lines = [f"{word} {' '.join(str(np.float32(x)) for x in row)}\n" for word, row in rows.items()]
    return (f"{len(rows)} {len(next(iter(rows.values())))}\n" + "".join(lines)).encode()


def check(path: Path) -> None:
    vectors = storage.read(path)
    assert vectors.words == tuple(ROWS)
    assert_array_equal(vectors.matrix, MATRIX)
    assert vectors.matrix.dtype == np.float32
    assert (vectors.method, vectors.counts, vectors.lowercase) == ("imported", None, False)


@pytest.mark.parametrize("name", ["v.bin", "v.vec", "v"])
@pytest.mark.parametrize("end", [b"", b"\n"], ids=["gensim", "word2vec"])
def test_read_binary_formats(tmp_path: Path, name: str, end: bytes) -> None:
    (tmp_path / name).write_bytes(binary(ROWS, end))
    check(tmp_path / name)


def test_read_text_formats(tmp_path: Path) -> None:
    text = gensim_text(ROWS)
    (tmp_path / "v.txt").write_bytes(text)
    check(tmp_path / "v.txt")
    (tmp_path / "glove.txt").write_bytes(text.partition(b"\n")[2])
    check(tmp_path / "glove.txt")
    (tmp_path / "fast.vec").write_bytes(
        text.replace(b"\n", b" \n").replace(b"3 3 \n", b"3 3\n")
    )  # as fastText writes it
    check(tmp_path / "fast.vec")


def test_read_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(binary(ROWS)))
    check(tmp_path / "v.bin.gz")
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(gensim_text(ROWS)))
    check(tmp_path / "v.txt.gz")


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary", "glove"])
def test_exported_vectors_are_read_back(tmp_path: Path, format: Format) -> None:
    WordVectors(tuple(ROWS), MATRIX).export(tmp_path / "v", format)
    check(tmp_path / "v")


def test_export_matches_the_layout_of_the_c_program(tmp_path: Path) -> None:
    """A line break after each row of the binary format; the text format equals gensim's."""
    vectors = WordVectors(tuple(ROWS), MATRIX)
    vectors.export(tmp_path / "v.bin", "word2vec-binary")
    assert (tmp_path / "v.bin").read_bytes() == binary(ROWS, b"\n")
    vectors.export(tmp_path / "v.txt", "word2vec")
    assert (tmp_path / "v.txt").read_bytes() == gensim_text(ROWS)
    vectors.export(tmp_path / "v.glove", "glove")
    assert b"3 3\n" + (tmp_path / "v.glove").read_bytes() == gensim_text(ROWS)


def test_read_gensim_layout_without_line_breaks(tmp_path: Path) -> None:
    """Also where a row ends, and the next row begins, with the byte of a line break: 0x0a0a0a0a."""
    awkward = float(np.frombuffer(b"\n\n\n\n", "<f4")[0])
    rows: dict[str, tuple[float, ...]] = {"a": (1.0, awkward), "b": (awkward, 2.0), "c": (awkward, awkward)}
    content = binary(rows)
    assert content == b"".join(
        [b"3 2\na \0\0\x80?", b"\n" * 4, b"b ", b"\n" * 4, b"\0\0\0@c ", b"\n" * 8]
    )  # 1 is 0x3f800000, 2 is 0x40000000
    (tmp_path / "v.bin").write_bytes(content)
    vectors = storage.read(tmp_path / "v.bin")
    assert vectors.words == ("a", "b", "c")
    assert_array_equal(vectors.matrix, np.array(list(rows.values()), np.float32))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # gensim leaves files without a header open
@pytest.mark.parametrize("is_binary", [True, False])
def test_gensim_reads_exported_vectors(tmp_path: Path, is_binary: bool) -> None:
    keyed = import_module("gensim.models.keyedvectors").KeyedVectors
    vectors = WordVectors(tuple(ROWS), MATRIX)
    vectors.export(tmp_path / "ours", "word2vec-binary" if is_binary else "word2vec")
    opened = keyed.load_word2vec_format(str(tmp_path / "ours"), binary=is_binary)
    assert opened.index_to_key == list(ROWS)
    assert_array_equal(opened.vectors, MATRIX)
    opened.save_word2vec_format(str(tmp_path / "theirs"), binary=is_binary)
    check(tmp_path / "theirs")
    vectors.export(tmp_path / "glove", "glove")
    bare = keyed.load_word2vec_format(str(tmp_path / "glove"), binary=False, no_header=True)
    assert_array_equal(bare.vectors, MATRIX)


words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=" \t\r\n\0"), min_size=1), min_size=1, unique=True
)


@given(words=words, width=st.integers(2, 5), data=st.data())
def test_any_numbers_round_trip_exactly(words: list[str], width: int, data: st.DataObject) -> None:
    """Including bytes in the numbers that look like spaces and line breaks."""
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    row = st.lists(floats, min_size=width, max_size=width)
    matrix = np.array(data.draw(st.lists(row, min_size=len(words), max_size=len(words))), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "v.bin")
        WordVectors(tuple(words), matrix).export(path, "word2vec-binary")
        vectors = storage.read(path)
    assert vectors.words == tuple(words)
    assert_array_equal(vectors.matrix.view(np.uint32), matrix.view(np.uint32))


def test_numbers_that_begin_with_line_break_bytes(tmp_path: Path) -> None:
    awkward = np.frombuffer(b"\n \n?" * 300, "<f4").reshape(2, -1)
    vectors = WordVectors(("a", "b"), awkward.astype(np.float32))
    vectors.export(tmp_path / "v.bin", "word2vec-binary")
    assert_array_equal(storage.read(tmp_path / "v.bin").matrix, awkward)


def test_read_across_block_boundaries(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3000, 50)).astype(np.float32)  # 600 kB; blocks have 64 KiB
    vectors = WordVectors(tuple(f"w{i}" for i in range(3000)), matrix)
    vectors.export(tmp_path / "v.bin", "word2vec-binary")
    loaded = storage.read(tmp_path / "v.bin")
    assert loaded.words == vectors.words
    assert_array_equal(loaded.matrix, matrix)


def test_read_a_vector_wider_than_a_block(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(2, 40_000)).astype(np.float32)
    WordVectors(("a", "b"), matrix).export(tmp_path / "v.bin", "word2vec-binary")
    assert_array_equal(storage.read(tmp_path / "v.bin").matrix, matrix)


def test_all_lower_case_vectors_are_looked_up_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("king 1 0\nqueen 0 1\n")
    assert storage.read(tmp_path / "glove.txt").lowercase
    assert "King" in storage.read(tmp_path / "glove.txt")


WHOLE = binary(ROWS)


@pytest.mark.parametrize("length", range(len(WHOLE) - 1, 20, -1))
def test_truncated_binary_file_is_rejected_at_any_length(tmp_path: Path, length: int) -> None:
    (tmp_path / "v.bin").write_bytes(WHOLE[:length])
    with pytest.raises(InputError, match=r"v\.bin, word [123] \(byte \d+\): the file ends here"):
        storage.read(tmp_path / "v.bin")


def test_damaged_binary_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "v.bin"
    cases = {
        WHOLE + b"more \0\0\0\0": "word 4 .*the header counts 3 words, but more data follows",
        WHOLE.replace(b"3 3\n", b"4 3\n"): "word 4 .*the file ends here",
        WHOLE.replace(b"3 3\n", b"999999999999 3\n"): "the file ends here",
        WHOLE.replace(b"3 3\n", b"3 999999999999\n"): "line 1: the header says 3 words of 999999999999 numbers",
        WHOLE.replace(b"3 3\n", b"3 0\n"): "line 1: the header says 3 words of 0 numbers",
        WHOLE.replace("König".encode(), b"K\xff"): r"word 2 \(byte 20\): .* is not UTF-8",
        binary({"a": (1.0, float("nan"))}): "the vector of 'a' is not finite",
        b"1 2\n" + b"\0" * 200_000: "no word ends within 65536 bytes",
        b"1 1\n \0\0\0\1": "is not a word",
    }
    for content, reason in cases.items():
        path.write_bytes(content)
        with pytest.raises(InputError, match=reason):
            storage.read(path)


def test_repeated_words_cause_a_warning(tmp_path: Path) -> None:
    content = b"3 2\n" + 2 * (b"a " + struct.pack("<2f", 1, 2)) + b"b " + struct.pack("<2f", 3, 4)
    (tmp_path / "v.bin").write_bytes(content)
    with pytest.warns(ChainruleWarning, match="1 words are repeated"):
        vectors = storage.read(tmp_path / "v.bin")
    assert vectors.words == ("a", "b")
    assert_array_equal(vectors.matrix, [[1, 2], [3, 4]])


def test_read_rejects_files_that_are_not_vectors(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        storage.read(tmp_path / "nowhere.bin")
    with pytest.raises(ModelFileError, match="has no manifest"):
        storage.read(tmp_path)
    (tmp_path / "m.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelFileError, match="never unpickles"):
        storage.read(tmp_path / "m.pkl")
    (tmp_path / "t.txt").write_text("a b c\nd e f\n")
    with pytest.raises(InputError, match="line 1: 'b' is not a number"):
        storage.read(tmp_path / "t.txt")
    (tmp_path / "h.txt").write_text("2 2\na 1 2\nä 3\n")
    with pytest.raises(InputError, match="line 3"):
        storage.read(tmp_path / "h.txt")
    with pytest.raises(UsageError, match="refers to 2 files"):
        storage.read(str(tmp_path / "*.txt"))
