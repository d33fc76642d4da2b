import sys
from pydoc_data.topics import topics

import pytest

from chainrule.errors import NotFoundError
from chainrule.text.default import default_text


def test_every_line_of_every_topic_is_there_in_order() -> None:
    found = iter(default_text())
    met: set[str] = set()
    for topic in sorted(topics):
        for line in topics[topic].split("\n"):
            if line.strip(" \t") and (len(line.rstrip(" \t")) < 20 or line.strip(" \t") not in met):
                assert next(found) == line.rstrip(" \t")
                met.add(line.strip(" \t"))
    assert list(found) == []


def test_longer_lines_stand_once() -> None:
    lines = [line.strip(" \t") for line in default_text() if len(line) >= 20]
    assert len(lines) == len(set(lines)) > 4_000


def test_no_line_is_blank_or_ends_in_blanks() -> None:
    assert all(line and line[-1] not in " \t\r\n" for line in default_text())


def test_a_python_without_its_reference_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(NotFoundError, match="name a text of your own"):
        default_text()
