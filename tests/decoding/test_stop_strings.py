"""Incremental stop-string search against its definition, and its number of operations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding.detokenizer import StopSearch, StopStrings


def held_back(text: str, stops: list[str]) -> int:
    """Length of the longest suffix that is a proper prefix of a stop string, by trying all."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


def start_of(parts: list[str], stops: list[str]) -> int | None:
    """Where the first stop string begins, in the shortest sequence of parts that completes one."""
    text = ""
    for part in parts:
        text += part
        if starts := [text.index(stop) for stop in stops if stop in text]:
            return min(starts)
    return None


@given(
    stops=st.lists(st.text("ab🐭", min_size=1, max_size=5), max_size=5),
    parts=st.lists(st.text("ab🐭", max_size=4), max_size=8),
)
def test_stop_search_equals_its_definition(stops: list[str], parts: list[str]) -> None:
    search = StopSearch(StopStrings(stops))
    for count, part in enumerate(parts, start=1):
        search.feed(part)
        text = "".join(parts[:count])
        assert search.length == len(text)
        assert search.start == start_of(parts[:count], stops)
        if search.start is not None:
            break
        assert search.held_back == held_back(text, stops)


def test_stop_search_worked_by_hand() -> None:
    search = StopSearch(StopStrings(["she", "hers", "he"]))
    search.feed("us")
    assert (search.start, search.held_back) == (None, 1)  # "s" may begin "she"
    search.feed("hh")
    assert (search.start, search.held_back) == (None, 1)  # "h" may begin "hers"
    search.feed("e")
    assert search.start == 3  # "he"
    nothing = StopSearch(StopStrings())
    nothing.feed("text")
    assert (nothing.start, nothing.held_back, nothing.length) == (None, 0, 4)


@pytest.mark.parametrize("text", ["a" * 20_000, "ab" * 10_000, ("a" * 1022 + "b") * 20], ids=["a", "ab", "nearly"])
def test_stop_search_work_is_linear_in_the_text(text: str) -> None:
    """64 stop strings of 1,024 characters, of which the text is nearly always a prefix."""
    lookups = 0

    class Counted(StopStrings):
        def _child(self, state: int, code: int) -> int | None:
            nonlocal lookups
            lookups += 1
            return super()._child(state, code)

    stops = Counted("a" * 1023 + chr(ord("c") + number) for number in range(64))
    assert lookups < 4 * 64 * 1024  # construction
    lookups = 0
    search = StopSearch(stops)
    for first in range(0, len(text), 5):
        search.feed(text[first : first + 5])
    assert search.start is None
    assert lookups <= 2 * len(text)
