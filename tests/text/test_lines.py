import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.text import lines
from chainrule.text.lines import FRAGMENT, Fragment, cut_lines, drop_blank_lines, end_lines, join_lines

texts = st.text(st.sampled_from("ab  \t\r\né\u2028"), max_size=60)


def lines_by_definition(text: str) -> list[str]:
    pieces = re.split("\r\n|\r|\n", text)
    return pieces if pieces[-1] else pieces[:-1]


@given(chunks=st.lists(texts), limit=st.integers(1, 9))
def test_cut_lines_fragments_join_to_the_lines(chunks: list[str], limit: int) -> None:
    fragments = list(cut_lines(chunks, limit))
    assert list(join_lines(fragments)) == lines_by_definition("".join(chunks))
    assert all(len(text) <= limit for text, _ in fragments)
    assert fragments == list(cut_lines(["".join(chunks)], limit)), "fragments depend on the chunks"


@given(chunks=st.lists(texts))
def test_end_lines_terminates_every_line_once(chunks: list[str]) -> None:
    expected = "".join(f"{line}\n" for line in lines_by_definition("".join(chunks)))
    assert "".join(end_lines(chunks)) == expected


@given(line=st.text(st.sampled_from("ab \t\u00a0"), min_size=1), limit=st.integers(2, 9))
def test_lines_are_cut_before_the_last_space_of_a_run(line: str, limit: int) -> None:
    pieces = [text for text, _ in cut_lines([line], limit)]
    at = 0
    for piece in pieces[:-1]:
        places = [
            i for i in range(at + 1, at + limit) if re.fullmatch(r"[ \t][^ \t\u00a0]", line[i : i + 2]) is not None
        ]
        at += len(piece)
        assert at == (places[-1] if places else at - len(piece) + limit)


def test_space_at_a_cut_goes_to_the_next_fragment() -> None:
    pieces = list(cut_lines(["ab cd  ef\n"], 7))
    assert pieces == [Fragment("ab cd ", False), Fragment(" ef", True)]


@pytest.mark.parametrize("char", "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e")
def test_other_unicode_separators_do_not_end_a_line(char: str) -> None:
    assert list(join_lines(cut_lines([f"a{char}b\nc"]))) == [f"a{char}b", "c"]


def test_default_limit_cuts_only_long_lines() -> None:
    assert [len(text) for text, _ in cut_lines(["x" * FRAGMENT])] == [FRAGMENT]
    assert [len(text) for text, _ in cut_lines(["x" * (FRAGMENT + 1)])] == [FRAGMENT, 1]


@given(text=texts, limit=st.integers(1, 9))
def test_drop_blank_lines_drops_only_blank_lines(text: str, limit: int) -> None:
    remaining = list(join_lines(drop_blank_lines(cut_lines([text], limit))))
    assert remaining == [line for line in lines_by_definition(text) if line.strip(" \t")]


class CountingPattern:
    """`_LAST_CUT` that counts the characters it examines: its single greedy repeat examines each twice."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.characters = 0

    def match(self, text: str, start: int, end: int) -> re.Match[str] | None:
        self.characters += end - start
        return self.pattern.match(text, start, end)


@pytest.mark.parametrize("run", [" ", "\t", " \x0b", " \u00a0\t", "a \x0b"])
def test_cut_lines_examines_each_character_a_bounded_number_of_times(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = CountingPattern(lines._LAST_CUT)
    monkeypatch.setattr(lines, "_LAST_CUT", pattern)
    size = 20 * FRAGMENT
    line = (run * size)[:size]
    assert "".join(text for text, _ in cut_lines([line])) == line
    assert pattern.characters <= 2 * size
