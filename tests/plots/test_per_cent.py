"""One way to write a share in words, tables and drawings: 12 %, with a blank."""

import re
from pathlib import Path

import pytest

import chainrule

SOURCES = [
    path
    for folder in ("inspection", "microscope")
    for path in sorted((Path(chainrule.__file__).parent / folder).glob("*.py"))
]
GLUED = re.compile(r"\.\d+%\}|:%\}|\.\d+f\}%")  # {share:.0%}, {share:%}, {100 * share:.0f}%


def test_what_is_looked_for_is_found() -> None:
    assert all(GLUED.search(text) for text in ("{share:.0%}", "{x:%}", "{100 * share:.1f}%"))
    assert not GLUED.search("{100 * share:.0f} %")
    assert len(SOURCES) > 30


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_blank_stands_before_the_sign(path: Path) -> None:
    assert not GLUED.findall(path.read_text(encoding="utf-8"))
