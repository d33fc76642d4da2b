"""Strict JSON by itself: depth, and what takes no longer for being nonsense."""

import json
import time

import pytest

from chainrule.server import body
from chainrule.server.errors import ApiError


def test_brackets_inside_strings_are_not_depth() -> None:
    document = {"prompt": "[" * 50 + '"\\' + "{" * 50, "é": [[["]"]]]}
    assert body.parse(json.dumps(document).encode(), 4) == document
    with pytest.raises(ApiError, match="more than 3 deep") as told:
        body.parse(json.dumps(document).encode(), 3)
    assert told.value.param == "\\u00e9"


@pytest.mark.parametrize(
    "sent",
    [b'{"a": "' + b'\\"' * 500_000, b'{"a": [' + b"[]," * 300_000, b'"' * 1_000_000, b'{"a": "' + b"\\" * 999_999],
    ids=["a string that never ends", "brackets", "quotes", "backslashes"],
)
def test_a_megabyte_of_nonsense_is_refused_at_once(sent: bytes) -> None:
    start = time.process_time()
    with pytest.raises(ApiError):
        body.parse(sent, 32)
    assert time.process_time() - start < 2
