"""`chainrule filter`: selected lines, output formats, errors."""

import math
import sys
from pathlib import Path

import pytest

from cli.command import process, run_error, run_ok, trained, write

pytestmark = pytest.mark.native
TEXT = "mice mice mice\ni love cats\ncats love i\ni love mice\n"
# Add-one without <unk>: "i love cats", 1/180, and "i love mice", 1/630, are the nearest two; 12 bytes each.
NEAR = "i love cats\ni love mice\n"


def test_filter_keeps_the_nearest_lines_in_order(closed: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", TEXT)
    result = run_ok("filter", closed, text, "--keep", "50%")
    assert result.out == NEAR
    assert result.err == f"kept 2 of 4 lines; bits-per-byte at most {math.log2(630) / 12:.4g}\n"
    result = run_ok("filter", closed, text, "--keep", "50%", "--by", "perplexity")
    assert (result.out, result.err) == (NEAR, f"kept 2 of 4 lines; perplexity at most {630**0.25:.4g}\n")
    assert run_ok("filter", closed, "--keep", 2, stdin=TEXT).out == NEAR
    assert run_ok("filter", closed, "-", "--keep", "0.5", stdin=TEXT.replace("\n", "\r\n")).out == NEAR
    assert run_ok("filter", closed, text, "--keep", 99).out == TEXT


def test_filter_scores_and_json(closed: Path) -> None:
    rows = run_ok("filter", closed, "--keep", 2, "--scores", stdin=TEXT).out.splitlines()
    assert [row.split("\t")[1] for row in rows] == NEAR.splitlines()
    bits_per_byte = [math.log2(180) / 12, math.log2(630) / 12]
    assert [float(row.split("\t")[0]) for row in rows] == pytest.approx(bits_per_byte, rel=1e-5)
    first, second = run_ok("filter", closed, "--keep", 2, "--json", stdin=TEXT).json_lines()
    assert first.keys() == {"schema_version", "line", "by", "cost", "text"}
    assert (first["line"], second["line"], second["text"]) == (2, 4, "i love mice")
    (only,) = run_ok("filter", closed, "--keep", 1, "--json", stdin="zebra\n").json_lines()
    assert only["cost"] is None  # impossible without <unk>


def test_filter_line_impossible_for_the_background_only(closed: Path, tmp_path: Path, toy_text: Path) -> None:
    mle = trained(tmp_path / "mle", toy_text, "--smoothing", "mle", "--closed")
    text = "i love cats\ni love mice\n"
    (only,) = run_ok("filter", closed, "--against", mle, "--keep", 1, "--json", stdin=text).json_lines()
    assert (only["text"], only["cost"]) == (
        "i love mice",
        -sys.float_info.max,
    )  # impossible for the background only


def test_filter_writes_its_output_atomically(closed: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "kept.txt"
    assert run_ok("filter", closed, "--keep", 2, "--out", out, stdin=TEXT).out == ""
    assert out.read_text() == NEAR
    write(tmp_path / "bad.txt", b"fine\n\xff\n")
    assert "bad.txt" in run_error(3, "filter", closed, tmp_path / "bad.txt", "--keep", 1, "--out", out)
    assert out.read_text() == NEAR
    replaced = run_ok("filter", closed, tmp_path / "bad.txt", "--keep", 2, "--errors", "replace")
    assert replaced.out == "fine\n\ufffd\n"


def test_filter_buckets(closed: Path, tmp_path: Path) -> None:
    text = TEXT + "i love dogs\ndogs\n"
    out = tmp_path / "parts"
    result = run_ok("filter", closed, "--buckets", "head,middle,tail", "--out", out, stdin=text)
    assert (out / "head.txt").read_text() == "i love cats\ni love dogs\n"
    parts = [(out / f"{name}.txt").read_text().splitlines() for name in ("head", "middle", "tail")]
    assert sorted(line for part in parts for line in part) == sorted(text.splitlines())
    assert [len(part) for part in parts] == [2, 2, 2]
    assert result.err.count("2 lines; bits-per-byte at most") == 3
    rows = run_ok("filter", closed, "--buckets", "head,middle,tail", "--json", stdin=text).json_lines()
    assert [row["text"] for row in rows] == text.splitlines()
    by_name = {name: [row["text"] for row in rows if row["bucket"] == name] for name in ("head", "middle", "tail")}
    assert list(by_name.values()) == parts


def test_filter_against_a_background_model(tmp_path: Path) -> None:
    options = ("--order", 2, "--smoothing", "witten-bell")
    news = write(tmp_path / "n.txt", "shares rose in tokyo\nshares fell in london\nclick here now\n" * 4)
    web = write(tmp_path / "w.txt", "click here now\nclick here to win\nshares rose in tokyo\n" * 4)
    reference, background = trained(tmp_path / "n", news, *options), trained(tmp_path / "w", web, *options)
    text = "click here now\nshares fell in tokyo\n"
    assert run_ok("filter", reference, "--keep", 1, stdin=text).out == "click here now\n"
    result = run_ok("filter", reference, "--against", background, "--keep", 1, stdin=text)
    assert result.out == "shares fell in tokyo\n"
    assert "difference at most -" in result.err


def test_filter_of_an_empty_text(closed: Path) -> None:
    result = run_ok("filter", closed, "--keep", "20%", stdin="")
    assert (result.out, result.err) == ("", "kept 0 of 0 lines\n")
    assert run_ok("filter", closed, "--keep", "100%", stdin="\n\n").out == "\n\n"
    assert run_ok("filter", closed, "--keep", "100%", "--drop-blank-lines", stdin="\ni\n \n").out == "i\n"


def test_filter_in_a_pipe(closed: Path) -> None:
    completed = process("filter", closed, "--keep", "2", "--threads", "1", stdin=TEXT.encode())
    assert (completed.returncode, completed.stdout) == (0, NEAR.encode())


def test_filter_wrong_usage(closed: Path, tmp_path: Path) -> None:
    assert "give exactly one of --keep and --buckets" in run_error(2, "filter", closed, stdin=TEXT)
    assert "give exactly one of --keep and --buckets" in run_error(
        2, "filter", closed, "--keep", 1, "--buckets", "a,b", stdin=TEXT
    )
    assert "keep is '0'" in run_error(2, "filter", closed, "--keep", 0, stdin=TEXT)
    assert "give their folder with --out" in run_error(2, "filter", closed, "--buckets", "a,b", stdin=TEXT)
    for names in ("a,a", "a,,b", "../a", ".a"):
        assert "different names" in run_error(
            2, "filter", closed, "--buckets", names, "--out", tmp_path, stdin=TEXT
        )
    assert "choose one of" in run_error(2, "filter", closed, "--keep", 1, "--by", "length", stdin=TEXT)
    assert "--against" in run_error(2, "filter", closed, "--keep", 1, "--by", "difference", stdin=TEXT)
    assert "is not a file" in run_error(2, "filter", closed, "--keep", 1, "--out", tmp_path, stdin=TEXT)
    run_error(4, "filter", closed, tmp_path / "nowhere", "--keep", 1)
    run_error(4, "filter", tmp_path / "nowhere", "--keep", 1, stdin=TEXT)
