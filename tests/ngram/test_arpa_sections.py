"""Invalid ARPA files raise with a line number, in bounded memory."""

import gzip
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chainrule.errors import ChainruleWarning, InputError
from ngram.arpa_files import PRUNED, TINY, Entries, arpa_text, log10_scores, read_text

FAULTS = [
    # replacement, original, line, message
    ("ngram 1=-5", "ngram 1=5", 2, "'ngram 1=-5' is not a count"),
    ("ngram 1=1e3", "ngram 1=5", 2, "is not a count"),
    ("ngram 1=" + "9" * 5000, "ngram 1=5", 2, "is not a count"),
    ("ngram 2=five", "ngram 2=2", 3, "is not a count"),
    ("ngram 3=2", "ngram 3=1", 20, "line 4 counts 2 3-grams, but 1 were listed"),
    ("ngram 3=999999999999999999", "ngram 3=1", 20, "line 4 counts 999999999999999999 3-grams"),
    ("ngram 1=6", "ngram 1=5", 13, "line 2 counts 6 1-grams, but 5 were listed"),
    ("ngram 1=4", "ngram 1=5", 11, "line 2 counts 4 1-grams, but here is one more"),
    ("ngram 2=0", "ngram 2=2", 14, "line 3 counts 0 2-grams, but here is one more"),
    ("ngram 4=1", "ngram 3=1", 4, "counts order 4 where order 3 comes next"),
    ("ngram 2=1", "ngram 3=1", 4, "counts order 2 where order 3 comes next"),
    ("ngrams: 3", "ngram 3=1", 4, "expected 'ngram 3=COUNT'"),
    ("\\3-grams:", "\\2-grams:", 13, "expected \\2-grams: but found '\\\\3-grams:'"),
    ("\\2-gram", "\\2-grams:", 13, "expected \\2-grams:"),
    ("\\4-grams:", "\\end\\", 20, "expected \\end\\ but found"),
    ("nan\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("inf\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("0.2\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("2e-6\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("-0,2\ta b", "-0.2\ta b", 15, "'-0,2' is not a number"),
    ("-1_0\ta b", "-0.2\ta b", 15, "'-1_0' is not a number"),
    ("-٢\ta b", "-0.2\ta b", 15, "is not a number"),
    ("a b\tnan", "a b\t-0.05", 15, "back-off weight is not a finite number"),
    ("a b\tinf", "a b\t-0.05", 15, "back-off weight is not a finite number"),
    ("a b\tlow", "a b\t-0.05", 15, "'low' is not a number"),
    ("<s> a b\t-1", "<s> a b", 18, "a back-off weight in the highest order"),
    ("-0.2\ta", "-0.2\ta b\t-0.05", 15, "2 fields; an entry here has a log-probability, 2 words"),
    ("-0.2", "-0.2\ta b\t-0.05", 15, "1 fields"),
    ("a b b\t-0.05", "a b\t-0.05", 15, "5 fields"),
    ("a b\t-0.05\t-0.3", "a b\t-0.05", 15, "5 fields"),
    ("-0.4\tb c d", "-0.4\tb\t-0.1", 11, "4 fields"),
    ("-1\ta", "-1\t<unk>", 10, "the same n-gram as in line 7"),
    ("<s> a\t-0.05", "a b\t-0.05", 15, "the same n-gram as in line 14"),
    ("a z\t-0.05", "a b\t-0.05", 15, "a word of 'a z' is not among the 1-grams"),
    ("<s> a\u00a0b", "<s> a b", 18, "3 fields"),
    ("a\0b", "a b", 15, "NUL"),
    ("\0", "-0.4\tb", 11, "NUL"),
]


@pytest.mark.parametrize(("wrong", "right", "line", "message"), FAULTS, ids=[repr(f[0][:20]) for f in FAULTS])
def test_arpa_reader_reports_the_line_of_an_error(
    tmp_path: Path, wrong: str, right: str, line: int, message: str
) -> None:
    text = TINY.replace(right, wrong, 1)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_text(tmp_path, text)
    assert f"model.arpa, line {line}: " in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty; it is not an ARPA file"),
        (b"It was a dark\nand stormy night.", "has no \\data\\ in its 2 lines"),
        (b"\\data\\\n", "line 1: the file ends in its header"),
        (b"\\data\\\n\\1-grams:\n", "line 2: the header counts no n-grams"),
        (b"\\data\\\nngram 1=0\n\\1-grams:\n\\end\\\n", "lists no words"),
        (TINY.encode("utf-16"), "line 1: contains a NUL byte"),
        (TINY.replace("\tb\t", "\tb\xe9\t").encode("latin-1"), "line 11: not UTF-8"),
        (TINY.replace("a b\t", "a \xe9\t").encode("latin-1"), "line 15: not UTF-8"),
        (TINY.removesuffix("\\end\\\n").encode(), "line 19: the file ends in its 3-grams, without \\end\\"),
        (TINY.split("-0.2\ta b")[0].encode(), "line 14: the file ends in its 2-grams, without \\end\\"),
        (gzip.compress(TINY.encode(), mtime=0)[:60], "gzip data cut short"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_arpa_reader_rejects_files_that_are_not_arpa(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_text(tmp_path, text)


def test_arpa_reader_reports_duplicate_ngrams_with_both_lines(tmp_path: Path) -> None:
    words = [f"w{i % 499}" for i in range(500)]
    text = "\n".join(["\\data\\", "ngram 1=500", "\\1-grams:", *(f"-3 {word}" for word in words), "\\end\\"])
    with pytest.raises(InputError, match="line 503: the same n-gram as in line 4"):
        read_text(tmp_path, text)


def test_arpa_reader_accepts_orders_up_to_32(tmp_path: Path) -> None:
    entries: Entries = {("</s>",): (-0.5, 0.0), ("a",): (-0.5, 0.0), ("a",) * 32: (-0.1, 0.0)}
    assert read_text(tmp_path, arpa_text(entries, 32)).tables.order == 32
    with pytest.raises(InputError, match="line 34: order 33 is above 32"):
        read_text(tmp_path, arpa_text(entries, 33))


# In a separate process: the compiled reader's memory is not Python's, and the peak only rises.
REFUSED = """
import resource, sys
from pathlib import Path
from chainrule.errors import InputError
from chainrule.ngram.arpa import read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read(Path(sys.argv[1]))
except InputError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


def read_error_within(mebibytes: float, path: Path) -> str:
    """The error message of reading the file; the memory peak must grow by less than this."""
    command = [sys.executable, "-c", REFUSED, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kibibytes, message = output.split(" ", 1)
    assert int(kibibytes) < mebibytes * 2**10
    return message


def test_arpa_reader_does_not_allocate_claimed_counts(tmp_path: Path) -> None:
    (tmp_path / "model.arpa").write_text(re.sub("=[0-9]", "=1000000000000", TINY))
    assert "line 2 counts 1000000000000 1-grams" in read_error_within(8, tmp_path / "model.arpa")


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("line", [1, 14])
def test_arpa_reader_rejects_long_lines_in_bounded_memory(tmp_path: Path, line: int, is_packed: bool) -> None:
    lines = TINY.encode().split(b"\n")
    lines[line - 1] = b"-0.2 " + b"a" * 40_000_000
    text = b"\n".join(lines)
    (tmp_path / "model.arpa").write_bytes(gzip.compress(text, 1) if is_packed else text)
    assert f"line {line}: longer than 1048576 bytes" in read_error_within(16, tmp_path / "model.arpa")


Edit = tuple[int, int, bytes]  # position, number of bytes removed, inserted bytes


def edited(text: bytes, edits: Sequence[Edit], length: int) -> bytes:
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    return text[:length]


PIECES = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([b"\n", b"\t", b"-", b"9", b"nan", b"\\end\\\n", b"<s> ", b"\n-0.1\ta b\n", b"\n\\4-grams:\n"]),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, len(PRUNED)), st.integers(0, 3), PIECES), max_size=3),
    length=st.one_of(st.just(1 << 20), st.integers(0, len(PRUNED))),
    text=st.sampled_from([TINY.encode(), PRUNED.encode()]),
)
@example(edits=[], length=1 << 20, text=TINY.encode())
@example(edits=[(TINY.index("-0.5"), 1, b"")], length=1 << 20, text=TINY.encode())
def test_edited_arpa_file_is_read_or_rejected(tmp_path: Path, edits: list[Edit], length: int, text: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        try:
            arpa = read_text(tmp_path, edited(text, edits, length))
        except InputError:
            return
    for level in arpa.tables.levels:
        assert (level.log_prob <= 0).all()
        assert (level.log_backoff < np.inf).all()
        assert (np.diff(level.key) > 0).all()
    assert not np.isnan(log10_scores(arpa, "a b c a")).any()


def test_unedited_arpa_files_are_valid(tmp_path: Path) -> None:
    """Otherwise the previous test would be vacuous."""
    assert {read_text(tmp_path, text).tables.order for text in (TINY, PRUNED)} == {3, 4}
