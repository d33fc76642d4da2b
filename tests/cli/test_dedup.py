"""`chainrule dedup`: output file, messages and engines."""

from pathlib import Path

import pytest

from cli.command import run_error, run_ok, write

pytestmark = pytest.mark.native


def test_dedup_lines(tmp_path: Path) -> None:
    text = write(tmp_path / "text", "a b\nc\n A  b\n\nc\n")
    outcome = run_ok("dedup", text, "--out", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "a b\nc\n\n"
    assert outcome.err == "kept 3 of 5 lines; removed 2 exact duplicates\n"
    outcome = run_ok(
        "dedup", "-", "--drop-blank-lines", "--out", tmp_path / "out", "--json", stdin=text.read_bytes()
    )
    assert (tmp_path / "out").read_text() == "a b\nc\n"
    document = outcome.json()
    assert {name: document[name] for name in ("by", "total", "kept", "exact", "near")} == {
        "by": "line",
        "total": 4,
        "kept": 2,
        "exact": 2,
        "near": 0,
    }


def test_dedup_documents_on_workers(tmp_path: Path) -> None:
    words = [f"w{n}" for n in range(60)]
    near = [*words[:30], "other", *words[31:]]
    text = write(tmp_path / "text", f"{' '.join(words)}\n\n{' '.join(near)}\n\nc\n\nC\n")
    arguments = ("dedup", text, "--by", "document", "--near", 0.8)
    outcome = run_ok(*arguments, "--workers", 2, "--work", tmp_path / "work", "--out", tmp_path / "out")
    assert (tmp_path / "out").read_text() == f"{' '.join(words)}\n\nc\n"
    assert outcome.err == "kept 2 of 4 documents; removed 1 exact and 1 near duplicates\n"
    (tmp_path / "work" / "near-duplicates" / "_SUCCESS").unlink()
    resumed = (*arguments, "--workers", 1, "--work", tmp_path / "work", "--resume", "--out", tmp_path / "again")
    run_ok(*resumed)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "out").read_bytes()
    error = run_error(2, *arguments, "--near", 0.9, *resumed[6:])
    assert "was created with other settings" in error


def test_wrong_usage(tmp_path: Path) -> None:
    text = write(tmp_path / "text.jsonl", '{"text": "a"}\n')
    assert "choose one of line, document" in run_error(2, "dedup", text, "--by", "page", "--out", tmp_path / "out")
    assert "ends with .jsonl" in run_error(2, "dedup", text, "--by", "document", "--out", tmp_path / "out")
    assert "add --workers N" in run_error(2, "dedup", text, "--work", tmp_path / "w", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_that_is_the_input_is_rejected(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "a\na\n")
    assert "is the text that is read; choose another" in run_error(2, "dedup", text, "--out", text)
    assert text.read_text() == "a\na\n"
