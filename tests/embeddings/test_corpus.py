"""Counting words and writing word numbers."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import system
from chainrule.embeddings import corpus
from chainrule.embeddings.corpus import (
    SENTENCE_BREAK,
    CountedCorpus,
    count_blocks,
    split_chunks,
)
from chainrule.errors import ChainruleError, InputError
from embeddings import reference
from embeddings.small_texts import count


def numbers(counted: CountedCorpus) -> list[int]:
    return [int(number) for number in np.fromfile(counted.file, np.int32)]


def test_word_counts_worked_by_hand(tmp_path: Path) -> None:
    counted = count(["the cat  the", "", " \t ", "A\tcat"], tmp_path / "numbers")
    assert counted.words == ("the", "cat", "A")  # in order of first appearance
    assert counted.counts.tolist() == [2, 2, 1]
    assert counted.counts.dtype == np.uint64
    assert numbers(counted) == [0, 1, 0, SENTENCE_BREAK, 2, 1, SENTENCE_BREAK]  # lines without words leave nothing
    assert (counted.numbers, counted.total) == (7, 5)


def test_count_lowercases_words(tmp_path: Path) -> None:
    assert count(["The THE the", "Ä ä"], tmp_path / "numbers", lowercase=True).words == ("the", "ä")


@pytest.mark.native
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize("lowercase", [False, True])
def test_punctuation_is_split_wherever_blocks_are_cut(tmp_path: Path, size: int, lowercase: bool) -> None:
    text = 'The cat, "the cat."\n\nJohn\'s U.S. cat\n(日本)'
    blocks = [text[i : i + size] for i in range(0, len(text), size)]
    counted = count_blocks(blocks, tmp_path / "numbers", lowercase, splits_punctuation=True)
    words = ["The", "cat", ",", '"', "the", "cat", ".", '"', "John", "'s", "U.S.", "cat", "(", "日", "本", ")"]
    words = [word.lower() for word in words] if lowercase else words
    names = counted.words
    ids = numbers(counted)
    assert [names[i] for i in ids if i != SENTENCE_BREAK] == words
    assert [place for place, i in enumerate(ids) if i == SENTENCE_BREAK] == [8, 13, 18]


def test_count_of_an_empty_text(tmp_path: Path) -> None:
    counted = count([], tmp_path / "numbers")
    assert counted.words == ()
    assert (counted.numbers, counted.total, counted.file.stat().st_size) == (0, 0, 0)


def test_other_unicode_spaces_stay_in_words(tmp_path: Path) -> None:
    words = ("a\u00a0b", "c\u2028d", "e\x0cf", "g\0h", "i\r")
    assert count([" ".join(words)], tmp_path / "numbers").words == words


def test_line_breaks_within_a_line_end_sentences(tmp_path: Path) -> None:
    assert numbers(count(["a\nb", "c\n"], tmp_path / "numbers")) == [
        0,
        SENTENCE_BREAK,
        1,
        SENTENCE_BREAK,
        2,
        SENTENCE_BREAK,
    ]


def test_count_reports_progress_in_bytes(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    count(["ä b", "c"], tmp_path / "numbers", progress=lambda *what: calls.append(what))
    assert calls[0] == ("counting words", 0, None)
    assert calls[-1] == ("counting words, 3", 7, 7)  # 2 + 1 + 1 bytes and a line break, 1 and a line break


def test_count_raises_chainrule_errors(tmp_path: Path) -> None:
    with pytest.raises(ChainruleError, match="cannot be written"):
        count(["a"], tmp_path / "none" / "numbers")
    with pytest.raises(InputError, match="surrogate"):
        count(["a \ud800"], tmp_path / "numbers")


def test_split_chunks_joins_small_and_cuts_large_blocks() -> None:
    assert list(split_chunks(["ab\n", "c\n", "def\n", "g"], False, size=5)) == ["ab\nc\n", "def\ng"]
    assert list(split_chunks(["abcdefg", "h"], False, size=3)) == ["abc", "def", "gh"]
    assert list(split_chunks(["ab c", "d e", "fghi", "j k"], True, size=4)) == ["ab ", "cd ", "efghij ", "k"]
    assert list(split_chunks([], False)) == []


def test_final_sigma_is_lowercased_by_the_complete_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus.split_chunks, "__defaults__", (4,))
    # At the end of a word Σ becomes ς, before a letter σ; cut after four letters, the third word would end in ς.
    counted = count_blocks(["ΑΣ Α", "ΑΣΑ\tΑ\n"], tmp_path / "numbers", lowercase=True)
    assert counted.words == ("ας", "αασα", "α")


def test_digest_is_of_the_unmodified_text(tmp_path: Path) -> None:
    digest = hashlib.sha256()
    count_blocks(["Ä b", "c\nd"], tmp_path / "numbers", lowercase=True, digest=digest)
    assert digest.hexdigest() == hashlib.sha256("Ä bc\nd".encode()).hexdigest()


def test_words_of_selected_numbers(tmp_path: Path) -> None:
    counted = count(["a b c ä"], tmp_path / "numbers")
    assert counted.words_of(np.array([3, 1])) == ["ä", "b"]
    assert counted.words_of(np.zeros(0, np.int64)) == []
    assert counted.types == counted.without_words().types == 4
    with pytest.raises(AssertionError):
        counted.without_words().words_of(np.array([0]))


def fed(counter: Any, parts: Sequence[bytes]) -> Any:
    for part in parts:
        counter.feed(part)
    counter.finish()
    return (
        counter.words,
        counter.numbers,
        counter.counts().tolist(),
        counter.words_of(np.arange(len(counter.counts()))),
    )


@pytest.mark.native
@given(
    text=st.text(st.sampled_from("ab\u00e4\u4e2d\U0001f600 \t\n\r\0"), max_size=60),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_compiled_counter_equals_the_reference(
    text: str, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("counting")
    content = text.encode()
    places = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
    parts = [content[a:b] for a, b in pairwise(places)]  # also within words and characters
    core: Any = system.load_extension()
    assert fed(core.WordCounter(str(folder / "a")), parts) == fed(
        reference.WordCounter(str(folder / "b")), [content]
    )
    assert fed(reference.WordCounter(str(folder / "c")), parts) == fed(
        core.WordCounter(str(folder / "d")), [content]
    )
    contents = {(folder / name).read_bytes() for name in "abcd"}
    assert len(contents) == 1


@pytest.mark.native
def test_compiled_counter_equals_the_reference_on_many_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{i}" for i in rng.integers(0, 90_000, 50)) for _ in range(3000)]
    fast = count(lines, tmp_path / "a")
    monkeypatch.setattr(system, "load_extension", lambda: reference)
    slow = count(lines, tmp_path / "b")
    assert fast.words == slow.words
    assert fast.counts.tolist() == slow.counts.tolist()
    assert fast.file.read_bytes() == slow.file.read_bytes()
