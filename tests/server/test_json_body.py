"""Strict JSON parsing: depth, number of names, and bounded work on invalid input."""

import json
import re
import sys
from types import FrameType
from typing import Any

import pytest

from chainrule.server import json_body
from chainrule.server.errors import ApiError

NAMES = 100


def test_brackets_inside_strings_are_not_depth() -> None:
    document = {"prompt": "[" * 50 + '"\\' + "{" * 50, "é": [[["]"]]]}
    assert json_body.parse_json(json.dumps(document).encode(), 4, NAMES) == document
    with pytest.raises(ApiError, match="more than 3 levels deep") as caught:
        json_body.parse_json(json.dumps(document).encode(), 3, NAMES)
    assert caught.value.param == "\\u00e9"


def count_calls(sent: bytes) -> int:
    """Calls inside the parser and `json` while a body is rejected, without garbage collection."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_globals.get("__name__", "").partition(".")[0] in ("chainrule", "json")

    sys.setprofile(count)
    try:
        with pytest.raises(ApiError):
            json_body.parse_json(sent, 32, NAMES)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("start", "repeated"),
    [(b'{"a": "', b'\\"'), (b'{"a": [', b"[],"), (b'"', b'"'), (b'{"a": "', b"\\"), (b"", b'{"a"'), (b"", b"[")],
    ids=["a string that never ends", "brackets", "quotes", "backslashes", "names", "depth"],
)
def test_parsing_work_does_not_grow_with_invalid_input(start: bytes, repeated: bytes) -> None:
    small, large = (count_calls(start + repeated * (size // len(repeated))) for size in (1_000, 1_000_000))
    assert large <= small + 10


@pytest.mark.parametrize(
    "expression", [json_body.STRINGS, json_body.STRINGS_AND_BRACKETS], ids=["strings", "brackets"]
)
def test_body_patterns_cannot_backtrack(expression: re.Pattern[bytes]) -> None:
    """Every repetition is possessive: matched text is never retried differently."""
    without_sets = re.sub(rb"\[(?:\\.|[^\]])*\]", b".", expression.pattern)
    repetitions = re.findall(rb"(?<!\\)[*+]\+?", without_sets)
    assert repetitions
    assert all(len(repetition) == 2 for repetition in repetitions), repetitions


@pytest.mark.parametrize(
    "sent",
    [
        {f"field {number}": 1 for number in range(NAMES + 1)},
        {"list": [{"name": 1}] * NAMES},
        {"object": {f"field {number}": {} for number in range(NAMES)}},
    ],
    ids=["flat", "in a list", "nested"],
)
def test_too_many_names_are_rejected_before_parsing(sent: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="more than 100 names") as caught:
        json_body.parse_json(json.dumps(sent).encode(), 32, NAMES)
    assert caught.value.status == 400


def test_maximum_number_of_names_is_accepted() -> None:
    sent = {f"field {number}": 1 for number in range(NAMES)}
    assert json_body.parse_json(json.dumps(sent).encode(), 32, NAMES) == sent
