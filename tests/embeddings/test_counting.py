"""Text to word numbers, in Python and compiled."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import native
from chainrule.embeddings.counting import BREAK, Counted, Counter, CounterInPython, count, pieces
from chainrule.errors import ChainruleError, InputError

WAYS = ["python", pytest.param("native", marks=pytest.mark.native)]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(native, "load", lambda: None)
    else:
        assert native.load() is not None
    return str(request.param)


def numbers(counted: Counted) -> list[int]:
    return [int(number) for number in np.fromfile(counted.file, np.int32)]


@pytest.mark.usefixtures("way")
def test_by_hand(tmp_path: Path) -> None:
    counted = count(["the cat  the", "", " \t ", "A\tcat"], tmp_path / "numbers")
    assert counted.words == ("the", "cat", "A")  # in the order they appear
    assert counted.counts.tolist() == [2, 2, 1]
    assert counted.counts.dtype == np.uint64
    assert numbers(counted) == [0, 1, 0, BREAK, 2, 1, BREAK]  # lines without words leave nothing
    assert (counted.numbers, counted.total) == (7, 5)


@pytest.mark.usefixtures("way")
def test_lower_case(tmp_path: Path) -> None:
    assert count(["The THE the", "Ä ä"], tmp_path / "numbers", lowercase=True).words == ("the", "ä")


@pytest.mark.usefixtures("way")
def test_an_empty_text_is_no_error(tmp_path: Path) -> None:
    counted = count([], tmp_path / "numbers")
    assert counted.words == ()
    assert (counted.numbers, counted.total, counted.file.stat().st_size) == (0, 0, 0)


@pytest.mark.usefixtures("way")
def test_what_is_no_separator_stays_in_the_word(tmp_path: Path) -> None:
    words = ("a\u00a0b", "c\u2028d", "e\x0cf", "g\0h", "i\r")
    assert count([" ".join(words)], tmp_path / "numbers").words == words


@pytest.mark.usefixtures("way")
def test_a_line_with_breaks_is_several(tmp_path: Path) -> None:
    assert numbers(count(["a\nb", "c\n"], tmp_path / "numbers")) == [0, BREAK, 1, BREAK, 2, BREAK]


@pytest.mark.usefixtures("way")
def test_progress_tells_the_bytes(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    count(["ä b", "c"], tmp_path / "numbers", progress=lambda *what: told.append(what))
    assert told[0] == ("counting words", 0, None)
    assert told[-1] == ("counting words, 3", 7, 7)  # 2 + 1 + 1 bytes and a break, 1 and a break


@pytest.mark.usefixtures("way")
def test_errors_are_chainrules(tmp_path: Path) -> None:
    with pytest.raises(ChainruleError, match="cannot be written"):
        count(["a"], tmp_path / "none" / "numbers")
    with pytest.raises(InputError, match="surrogate"):
        count(["a \ud800"], tmp_path / "numbers")


def test_pieces_join_lines() -> None:
    assert list(pieces(["ab", "c", "def", "g"], False, size=5)) == ["ab\nc\n", "def\ng\n"]
    assert list(pieces([], False)) == []


def fed(counter: Counter, parts: Sequence[bytes]) -> Any:
    for part in parts:
        counter.feed(part)
    counter.finish()
    return counter.words, counter.numbers, counter.counts().tolist(), counter.word_list()


@pytest.mark.native
@given(
    text=st.text(st.sampled_from("ab\u00e4\u4e2d\U0001f600 \t\n\r\0"), max_size=60),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_compiled_and_not_write_the_same(
    text: str, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("counting")
    whole = text.encode()
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    parts = [whole[a:b] for a, b in pairwise(places)]  # within a word or a letter, too
    core: Any = native.load()
    assert fed(core.WordCounter(str(folder / "a")), parts) == fed(CounterInPython(folder / "b"), [whole])
    assert fed(CounterInPython(folder / "c"), parts) == fed(core.WordCounter(str(folder / "d")), [whole])
    made = {(folder / name).read_bytes() for name in "abcd"}
    assert len(made) == 1


@pytest.mark.native
def test_many_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{i}" for i in rng.integers(0, 90_000, 50)) for _ in range(3000)]
    fast = count(lines, tmp_path / "a")
    monkeypatch.setattr(native, "load", lambda: None)
    slow = count(lines, tmp_path / "b")
    assert fast.words == slow.words
    assert fast.counts.tolist() == slow.counts.tolist()
    assert fast.file.read_bytes() == slow.file.read_bytes()
