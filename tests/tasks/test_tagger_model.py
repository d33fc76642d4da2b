"""Input of taggers: windows of long sentences, the tag column and invalid data."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, InputError
from chainrule.tasks import tag
from chainrule.tasks.tag import split_windows
from chainrule.text.conll import TaggedSentence
from tasks.toy_tags import TINY, grammar

LONG = [word for sentence in grammar(12, seed=7) for word in sentence.words]


def learn(family: str, data: Any, **chosen: Any) -> tag.Tagger:
    settings = TINY | {"characters": 0, "epochs": 1, "clip": 0} | chosen
    return tag.train(family, data, options=RunOptions(device="cpu"), **settings)


@pytest.fixture(scope="module")
def short_sighted() -> tag.Tagger:
    """A Transformer that reads twelve words."""
    return learn("transformer", grammar(20, seed=1), heads=2, longest=14, positions="learned")


def furthest(n: int, most: int, starts: list[int]) -> list[int]:
    """Of each word the piece in which it stands furthest from a cut; the ends of the sentence are no cuts."""
    chosen = []
    for t in range(n):
        away = [
            min(t - s if s else n, s + most - 1 - t if s + most < n else n) if s <= t < s + most else -1
            for s in starts
        ]
        chosen.append(away.index(max(away)))
    return chosen


@given(st.integers(1, 120), st.integers(1, 40))
def test_windows_of_a_sentence(n: int, most: int) -> None:
    windows = split_windows(n, most)
    read = [range(n)[window.span] for window in windows]
    kept = [range(n)[window.span][window.core] for window in windows]
    assert [t for words in kept for t in words] == list(range(n))
    assert all(len(words) == min(n, most) for words in read)
    assert all(len(set(a) & set(b)) >= most // 4 for a, b in pairwise(read))
    owners = [i for i, words in enumerate(kept) for _ in words]
    assert owners == furthest(n, most, [words.start for words in read])


def test_empty_sentence_has_no_windows() -> None:
    assert split_windows(0, 5) == []


def test_long_sentence_is_read_in_windows(short_sighted: tag.Tagger) -> None:
    """Twelve words at a time, three of them again in the next piece: each word as its best piece has it."""
    n = 30
    words = LONG[:n]
    starts = [0, 9, 18]  # 18 is also where the last twelve words begin
    owners = furthest(n, 12, starts)
    alone = [short_sighted.confidences([words[s : s + 12]])[0] for s in starts]
    tags = [short_sighted.tag(words[s : s + 12]) for s in starts]
    with pytest.warns(ChainruleWarning, match="1 of 2 sentences have more than 12 words") as said:
        (_, sure) = short_sighted.confidences([words[:12], words])
    assert len(said) == 1
    assert_allclose(sure, [alone[i][t - starts[i]] for t, i in enumerate(owners)], atol=1e-6)
    with pytest.warns(ChainruleWarning, match="longest=32 reads them whole"):
        assert short_sighted.tag(words) == [tags[i][t - starts[i]] for t, i in enumerate(owners)]
    with pytest.warns(ChainruleWarning, match="in pieces"):
        ways = short_sighted.marginals(words, most=9)
    assert_allclose([sum(way.values()) for way in ways], np.ones(n), atol=1e-5)
    with pytest.warns(ChainruleWarning, match="in pieces"):
        assert short_sighted.evaluate([TaggedSentence(tuple(words), ("NOUN",) * n)]).words == n


@pytest.mark.parametrize("family", ["rnn", "gru"])
def test_a_recurrent_tagger_reads_any_length(family: str) -> None:
    tagger = learn(family, grammar(20, seed=1))
    many = LONG * 12
    assert len(many) > 600  # and no warning, which would be an error here
    assert len(tagger.tag(many)) == len(many)


@pytest.mark.parametrize("column", [2, "2", "xpos", None])
def test_tag_column_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: int | str | None) -> None:
    tagger = learn("rnn", grammar(4, seed=1), column=column)
    tagger.save(tmp_path / "new")
    assert api.load(tmp_path / "new", kind="tag", device="cpu").column == column
    extra = {name: value for name, value in tagger.extra.items() if name != "column"}
    monkeypatch.setattr(tag.Tagger, "extra", extra)
    tagger.save(tmp_path / "old")
    assert api.load(tmp_path / "old", kind="tag", device="cpu").column is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "there are no sentences; give a file, or a list of Tagged"),
        (None, "there are no sentences; give a file, or a list of Tagged"),
        (
            [["the", "cat"]],
            r"sentence 1 is \['the', 'cat'\]; give TaggedSentence\(words, tags\) with a tag for each word",
        ),
        ([*grammar(1, seed=1), "the cat"], "sentence 2 is 'the cat'; give Tagged"),
        ([TaggedSentence((), ())], "the training text contains no words"),
    ],
)
def test_invalid_sentences(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        learn("rnn", data)


def test_strings_are_not_sentences(short_sighted: tag.Tagger) -> None:
    with pytest.raises(InputError, match="sentence 1 is one text, 'the cat'; give a list of words"):
        short_sighted.tag("the cat")
    with pytest.raises(InputError, match="the sentences are one text, 'the cat'; give a list of lists of words"):
        short_sighted.tag_all("the cat")
    with pytest.raises(InputError, match="sentence 1 is one text, 'the'"):
        short_sighted.tag_all(["the", "cat"])
    with pytest.raises(InputError, match="there are no sentences"):
        short_sighted.evaluate([])
