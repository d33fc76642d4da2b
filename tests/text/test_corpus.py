import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import chainrule
from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.text.corpus import Corpus, WordLengthCheck


def as_json_lines(text: str) -> bytes:
    return (json.dumps({"id": 1, "text": text}) + "\n").encode()


def as_parquet(text: str) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": [1], "text": [text]}), buffer)
    return buffer.getvalue()


CONTAINERS: dict[str, Callable[[str], bytes]] = {
    "plain.txt": str.encode,
    "marked.txt": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "text.gz": lambda text: gzip.compress(text.encode()),
    "text.bz2": lambda text: bz2.compress(text.encode()),
    "text.xz": lambda text: lzma.compress(text.encode()),
    "text.zst": lambda text: zstandard.compress(text.encode()),
    "records.jsonl": as_json_lines,
    "records.ndjson.gz": lambda text: gzip.compress(as_json_lines(text)),
    "records.parquet": as_parquet,
}

NOT_BREAKS = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"

# A line that begins with U+FEFF would be read as a byte order mark; that case has its own test.
lines_of_text = st.lists(
    st.text(
        st.sampled_from("ab \té€😀" + NOT_BREAKS) | st.characters(codec="utf-8", exclude_characters="\r\n\ufeff")
    )
)


@pytest.mark.parametrize("container", CONTAINERS)
@settings(deadline=None)  # no deadline: the disk may be busy
@given(lines=lines_of_text, line_break=st.sampled_from(["\n", "\r\n", "\r"]), is_ended=st.booleans())
def test_every_container_gives_the_same_lines(
    container: str, lines: list[str], line_break: str, is_ended: bool
) -> None:
    text = "".join(line + line_break for line in lines)
    if not is_ended and lines and lines[-1]:
        text = text.removesuffix(line_break)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, container)
        file.write_bytes(CONTAINERS[container](text))
        corpus = Corpus.of(file)
        if container.startswith("records") and not text:
            lines = [""]  # a record with empty text is one blank line
        assert list(corpus) == lines
        assert list(corpus) == lines, "a corpus can be read again"
        clean = "".join(line + "\n" for line in lines).encode()
        assert corpus.digest() == hashlib.sha256(clean).hexdigest() == Corpus.from_lines(lines).digest()


@given(lines=lines_of_text)
def test_from_lines_round_trips(lines: list[str]) -> None:
    assert list(Corpus.from_lines(lines)) == lines


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        ([], []),
        ([""], [""]),
        (["a\n"], ["a"]),
        (["\n"], [""]),
        (["a\r\nb\rc\n\nd"], ["a", "b", "c", "", "d"]),
        (["a\r", "\nb"], ["a", "", "b"]),  # two texts: no CRLF between them
    ],
)
def test_from_lines_splits_at_line_breaks(texts: list[str], lines: list[str]) -> None:
    assert list(Corpus.from_lines(texts)) == lines


def test_from_lines_rejects_a_single_string() -> None:
    with pytest.raises(UsageError, match="list of lines"):
        Corpus.from_lines("abc")


def test_from_lines_rejects_lone_surrogates() -> None:
    with pytest.raises(InputError, match=r"given line 2 .*U\+DCFF"):
        list(Corpus.from_lines(["fine", "\udcff"]))


@pytest.mark.parametrize(
    ("stored", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n \n", ["", "", " "]),
        (b"word", ["word"]),
        (b"\xef\xbb\xbf", []),
        (
            b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbfb",
            ["\ufeffa", "\ufeffb"],
        ),  # only the byte order mark at the start is removed
        (b"<s> a </s> <unk>\n", ["<s> a </s> <unk>"]),
        (b"a\x00b", ["a\x00b"]),
    ],
)
def test_edge_cases_of_small_files(tmp_path: Path, stored: bytes, lines: list[str]) -> None:
    file = tmp_path / "text"
    file.write_bytes(stored)
    assert list(Corpus.of(file)) == lines


def test_lines_do_not_span_files(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"a\nb\r")
    (tmp_path / "2").write_bytes(b"\nc")
    (tmp_path / "3").write_bytes(b"\xef\xbb\xbfd")
    assert list(Corpus.of([tmp_path / name for name in "123"])) == ["a", "b", "", "c", "d"]


def test_drop_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("\n a \n \t \n\u00a0\n\x0c\n\nb\t\n" + " " * 200_000 + "\n" + " " * 200_000 + "c")
    corpus = Corpus.of(file, drop_blank_lines=True)
    # No-break space and form feed are not blanks.
    assert list(corpus) == [" a ", "\u00a0", "\x0c", "b\t", " " * 200_000 + "c"]
    assert "".join(piece.text for piece in corpus.fragments()) == "".join(corpus)


def test_invalid_utf8_is_rejected_with_byte_offset(tmp_path: Path) -> None:
    file = tmp_path / "text.gz"
    file.write_bytes(gzip.compress(b"x" * 100_000 + b"\n\xff"))
    with pytest.raises(InputError, match=r"text\.gz .*byte 100001 .*--errors replace"):
        list(Corpus.of(file))


def test_invalid_utf8_is_replaced_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"a\xffb\n\xef\xbf\xbd\nc\xe2\x82")  # the middle line contains a genuine U+FFFD
    corpus = Corpus.of(file, errors="replace")
    fragments = corpus.fragments()
    assert [piece.text for piece in fragments] == ["a\ufffdb", "\ufffd", "c\ufffd"]
    assert fragments.replaced == 2
    assert corpus.fragments().replaced == 0, "each pass counts for itself"


def test_unknown_error_handler_is_rejected() -> None:
    with pytest.raises(UsageError, match="strict, replace"):
        Corpus(errors="ignore")  # type: ignore[arg-type]


def test_size_hint_is_the_size_of_the_files(tmp_path: Path) -> None:
    packed = gzip.compress(b"a" * 1000)
    (tmp_path / "a.gz").write_bytes(packed)
    (tmp_path / "b").write_bytes(b"12345")
    assert Corpus.of(tmp_path).size_hint() == len(packed) + 5
    assert Corpus.from_lines(["a"]).size_hint() is None


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
def test_standard_input_can_be_read_twice(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    program = (
        "from chainrule.text.corpus import Corpus\n"
        "corpus = Corpus.of('-')\n"
        "print([list(corpus), list(corpus), corpus.size_hint()])"
    )
    stdin = pack(b"one\r\ntwo")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=stdin,
        capture_output=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert run.stdout.decode().strip() == str([["one", "two"], ["one", "two"], len(stdin)])
    assert run.stderr == b""
    assert list(tmp_path.iterdir()) == [], "the copy is removed"


def write_long_line(file: Path) -> int:
    words = b"some words of a line that does not end " * 1024
    with gzip.open(file, "wb", compresslevel=1) as packed:
        for _ in range(512):
            packed.write(words)
    return 512 * len(words)


def test_reading_a_long_line_uses_bounded_memory(tmp_path: Path) -> None:
    size = write_long_line(tmp_path / "long.gz")
    assert size > 20_000_000
    corpus = Corpus.of(tmp_path / "long.gz")
    tracemalloc.start()
    try:
        lengths = [len(text) for text, _ in corpus.fragments()]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(lengths) == size
    assert peak < 4_000_000


def test_interrupted_iteration_closes_its_file(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("a\nb\n")
    assert next(iter(Corpus.of(file))) == "a"  # an open file would warn, and warnings are errors


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_overlong_word_is_rejected_with_file_and_line(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainrule.text.corpus.LONGEST_WORD", 5)
    monkeypatch.setattr("chainrule.text.readers.BLOCK", step)
    (tmp_path / "a.txt").write_text("12345 12345\t12345\n12345")
    (tmp_path / "b.txt").write_text("12345\n1 123456 1\n")

    def read(*names: str) -> None:
        blocks = Corpus.of([tmp_path / name for name in names]).blocks()
        words = WordLengthCheck(blocks, "cut it")
        for block in blocks:
            words.check(block)

    with pytest.raises(InputError, match=r"b\.txt, line 2 has a word of more than 5 characters; cut it$"):
        read("a.txt", "b.txt")
    read("a.txt")


CSV = 'id,text,note\r\n1,"a ""b"", c",x\n2,"two\nlines",y\n\n3,,z\n'


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("t.csv", CSV.encode()),
        ("t.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("t.CSV.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("t.csv", CSV.replace(",", ";").replace("; c", ", c").encode()),
        ("t.tsv", CSV.replace(",", "\t").replace("\t c", ", c").encode()),
        ("t.tsv.bz2", bz2.compress(CSV.replace(",", "\t").replace("\t c", ", c").encode())),
    ],
)
def test_column_is_read_from_a_table(tmp_path: Path, name: str, stored: bytes) -> None:
    (tmp_path / name).write_bytes(stored)
    corpus = Corpus.of(tmp_path / name, column="text")
    assert list(corpus) == ['a "b", c', "two", "lines", ""]


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ("id,body\n1,x\n", r"has no column 'text'; specify one of these with --column: id, body"),
        ("text,text\n1,x\n", r"has 2 columns 'text'"),
        ("id,text\n1,x\n2,x,y\n", r"t\.csv, line 3 has 3 cells but the header has 2"),
        ('id,text\n1,"x"y\n', r"t\.csv, line 2 is not a table row"),
        ('id,text\n1,"x\n', r"t\.csv, line \d is not a table row"),
        ("", r"has no column 'text'"),
    ],
)
def test_malformed_tables_are_rejected(tmp_path: Path, stored: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(stored)
    with pytest.raises(InputError, match=says):
        list(Corpus.of(tmp_path / "t.csv", column="text"))


def test_table_read_as_lines_causes_a_warning(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text\n1,x\n")
    with pytest.warns(ChainruleWarning, match=r"t\.csv is read as lines of text.*--column NAME"):
        corpus = Corpus.of(tmp_path / "t.csv")
    assert list(corpus) == ["id,text", "1,x"]
    assert list(Corpus.of(tmp_path / "t.csv", expects_lines=False)) == ["id,text", "1,x"]


def test_column_of_a_plain_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b\n")
    with pytest.raises(UsageError, match=r"t\.txt is plain text and has no column 'text'; leave out --column"):
        Corpus.of(tmp_path / "t.txt", column="text")


def test_training_reads_a_table_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,body\n1,"a, b"\n2,b a\n')
    model = chainrule.train("ngram", Corpus.of(tmp_path / "t.csv", column="body"), order=1, smoothing="laplace")
    assert set(model.tokenizer.vocab) == {
        "<unk>",
        "a",
        "b",
        "\uffed,",
    }  # "a, b" without its quotes; the header is not text
    assert model.metrics["train_tokens"] == 7
