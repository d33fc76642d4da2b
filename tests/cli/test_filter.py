"""`chainrule filter`: which lines come out, in which form, and what is refused."""

import math
import sys
from pathlib import Path

import pytest

from cli.command import done, process, refused, trained, write

pytestmark = pytest.mark.native
TEXT = "mice mice mice\ni love cats\ncats love i\ni love mice\n"
# Add-one without <unk>: "i love cats", 1/180, and "i love mice", 1/630, are the nearest two; 12 bytes each.
NEAR = "i love cats\ni love mice\n"


def test_the_nearest_lines_in_their_order(closed: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", TEXT)
    found = done("filter", closed, text, "--keep", "50%")
    assert found.out == NEAR
    assert found.err == f"kept 2 of 4 lines; bits-per-byte at most {math.log2(630) / 12:.4g}\n"
    found = done("filter", closed, text, "--keep", "50%", "--by", "perplexity")
    assert (found.out, found.err) == (NEAR, f"kept 2 of 4 lines; perplexity at most {630**0.25:.4g}\n")
    assert done("filter", closed, "--keep", 2, stdin=TEXT).out == NEAR
    assert done("filter", closed, "-", "--keep", "0.5", stdin=TEXT.replace("\n", "\r\n")).out == NEAR
    assert done("filter", closed, text, "--keep", 99).out == TEXT


def test_scores_and_json(closed: Path) -> None:
    rows = done("filter", closed, "--keep", 2, "--scores", stdin=TEXT).out.splitlines()
    assert [row.split("\t")[1] for row in rows] == NEAR.splitlines()
    bits_per_byte = [math.log2(180) / 12, math.log2(630) / 12]
    assert [float(row.split("\t")[0]) for row in rows] == pytest.approx(bits_per_byte, rel=1e-5)
    first, second = done("filter", closed, "--keep", 2, "--json", stdin=TEXT).json_lines()
    assert first.keys() == {"schema_version", "line", "by", "cost", "text"}
    assert (first["line"], second["line"], second["text"]) == (2, 4, "i love mice")
    (only,) = done("filter", closed, "--keep", 1, "--json", stdin="zebra\n").json_lines()
    assert only["cost"] is None  # impossible without <unk>


def test_the_nearest_of_all_is_not_told_as_impossible(closed: Path, tmp_path: Path, toy_text: Path) -> None:
    mle = trained(tmp_path / "mle", toy_text, "--smoothing", "mle", "--closed")
    text = "i love cats\ni love mice\n"
    (only,) = done("filter", closed, "--against", mle, "--keep", 1, "--json", stdin=text).json_lines()
    assert (only["text"], only["cost"]) == (
        "i love mice",
        -sys.float_info.max,
    )  # impossible for the background alone


def test_a_file_is_written_whole(closed: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "kept.txt"
    assert done("filter", closed, "--keep", 2, "--out", out, stdin=TEXT).out == ""
    assert out.read_text() == NEAR
    write(tmp_path / "bad.txt", b"fine\n\xff\n")
    assert "bad.txt" in refused(3, "filter", closed, tmp_path / "bad.txt", "--keep", 1, "--out", out)
    assert out.read_text() == NEAR
    replaced = done("filter", closed, tmp_path / "bad.txt", "--keep", 2, "--errors", "replace")
    assert replaced.out == "fine\n\ufffd\n"


def test_thirds(closed: Path, tmp_path: Path) -> None:
    text = TEXT + "i love dogs\ndogs\n"
    out = tmp_path / "parts"
    found = done("filter", closed, "--buckets", "head,middle,tail", "--out", out, stdin=text)
    assert (out / "head.txt").read_text() == "i love cats\ni love dogs\n"
    parts = [(out / f"{name}.txt").read_text().splitlines() for name in ("head", "middle", "tail")]
    assert sorted(line for part in parts for line in part) == sorted(text.splitlines())
    assert [len(part) for part in parts] == [2, 2, 2]
    assert found.err.count("2 lines; bits-per-byte at most") == 3
    rows = done("filter", closed, "--buckets", "head,middle,tail", "--json", stdin=text).json_lines()
    assert [row["text"] for row in rows] == text.splitlines()
    by_name = {name: [row["text"] for row in rows if row["bucket"] == name] for name in ("head", "middle", "tail")}
    assert list(by_name.values()) == parts


def test_the_difference_to_a_background(tmp_path: Path) -> None:
    options = ("--order", 2, "--smoothing", "witten-bell")
    news = write(tmp_path / "n.txt", "shares rose in tokyo\nshares fell in london\nclick here now\n" * 4)
    web = write(tmp_path / "w.txt", "click here now\nclick here to win\nshares rose in tokyo\n" * 4)
    reference, background = trained(tmp_path / "n", news, *options), trained(tmp_path / "w", web, *options)
    text = "click here now\nshares fell in tokyo\n"
    assert done("filter", reference, "--keep", 1, stdin=text).out == "click here now\n"
    found = done("filter", reference, "--against", background, "--keep", 1, stdin=text)
    assert found.out == "shares fell in tokyo\n"
    assert "difference at most -" in found.err


def test_nothing_is_a_text_too(closed: Path) -> None:
    found = done("filter", closed, "--keep", "20%", stdin="")
    assert (found.out, found.err) == ("", "kept 0 of 0 lines\n")
    assert done("filter", closed, "--keep", "100%", stdin="\n\n").out == "\n\n"
    assert done("filter", closed, "--keep", "100%", "--drop-blank-lines", stdin="\ni\n \n").out == "i\n"


def test_in_a_pipe(closed: Path) -> None:
    found = process("filter", closed, "--keep", "2", "--threads", "1", stdin=TEXT.encode())
    assert (found.returncode, found.stdout) == (0, NEAR.encode())


def test_wrong_usage(closed: Path, tmp_path: Path) -> None:
    assert "one of the two" in refused(2, "filter", closed, stdin=TEXT)
    assert "one of the two" in refused(2, "filter", closed, "--keep", 1, "--buckets", "a,b", stdin=TEXT)
    assert "keep is '0'" in refused(2, "filter", closed, "--keep", 0, stdin=TEXT)
    assert "name their folder with --out" in refused(2, "filter", closed, "--buckets", "a,b", stdin=TEXT)
    for names in ("a,a", "a,,b", "../a", ".a"):
        assert "different names" in refused(2, "filter", closed, "--buckets", names, "--out", tmp_path, stdin=TEXT)
    assert "choose one of" in refused(2, "filter", closed, "--keep", 1, "--by", "length", stdin=TEXT)
    assert "--against" in refused(2, "filter", closed, "--keep", 1, "--by", "difference", stdin=TEXT)
    assert "is not a file" in refused(2, "filter", closed, "--keep", 1, "--out", tmp_path, stdin=TEXT)
    refused(4, "filter", closed, tmp_path / "nowhere", "--keep", 1)
    refused(4, "filter", tmp_path / "nowhere", "--keep", 1, stdin=TEXT)
