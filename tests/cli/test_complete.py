"""`chainrule next --complete`: completions of an unfinished word."""

from pathlib import Path

import pytest

from cli.command import run_error, run_ok


def test_complete_worked_example(closed: Path) -> None:
    # After "i love": cats 2/9, chase 1/9; given the prefix c they are 2/3 and 1/3.
    document = run_ok("next", closed, "i love c", "--complete", "--json").json()
    assert document.keys() == {"schema_version", "context", "prefix", "next"}
    assert (document["context"], document["prefix"]) == ("i love c", "c")
    assert [entry["token"] for entry in document["next"]] == ["cats", "chase"]
    assert [entry["probability"] for entry in document["next"]] == pytest.approx([2 / 3, 1 / 3], rel=1e-6)
    assert run_ok("next", closed, "i love c", "--complete", "--top", 1).out == "0.666667\tcats\n"


def test_complete_without_matching_words(closed: Path) -> None:
    assert run_ok("next", closed, "i love zz", "--complete").out == ""
    assert run_ok("next", closed, "i love zz", "--complete", "--json").json()["next"] == []


def test_complete_wrong_usage(closed: Path) -> None:
    assert "top is 0" in run_error(2, "next", closed, "i", "--top", 0, "--complete")
    assert "not UTF-8" in run_error(3, "next", closed, "a\udcff", "--complete")
