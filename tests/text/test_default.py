import sys
from pydoc_data.topics import topics

import pytest

from chainrule.errors import NotFoundError
from chainrule.text.default import default_text


def test_every_topic_is_there_in_order() -> None:
    expected = []
    for topic in sorted(topics):
        expected += [line.rstrip(" \t") for line in topics[topic].split("\n")]
    assert default_text() == [line for line in expected if line]
    assert len(default_text()) > 5_000


def test_no_line_is_blank_or_ends_in_blanks() -> None:
    assert all(line and line[-1] not in " \t\r\n" for line in default_text())


def test_a_python_without_its_reference_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(NotFoundError, match="name a text of your own"):
        default_text()
