"""`chainrule next --complete`: the words an unfinished one may become."""

from pathlib import Path

import pytest

from cli.command import done, refused


def test_the_worked_example(closed: Path) -> None:
    # After "i love": cats 2/9, chase 1/9; given the c they are 2/3 and 1/3.
    found = done("next", closed, "i love c", "--complete", "--json").json()
    assert found.keys() == {"schema_version", "context", "prefix", "next"}
    assert (found["context"], found["prefix"]) == ("i love c", "c")
    assert [entry["token"] for entry in found["next"]] == ["cats", "chase"]
    assert [entry["probability"] for entry in found["next"]] == pytest.approx([2 / 3, 1 / 3], rel=1e-6)
    assert done("next", closed, "i love c", "--complete", "--top", 1).out == "0.666667\tcats\n"


def test_nothing_begins_so(closed: Path) -> None:
    assert done("next", closed, "i love zz", "--complete").out == ""
    assert done("next", closed, "i love zz", "--complete", "--json").json()["next"] == []


def test_wrong_usage(closed: Path) -> None:
    assert "top is 0" in refused(2, "next", closed, "i", "--top", 0, "--complete")
    assert "not UTF-8" in refused(3, "next", closed, "a\udcff", "--complete")
