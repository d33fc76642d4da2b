"""The first tokens of a text, for any kind of lines."""

from functools import cache
from typing import Any

import pytest

import chainrule
from chainrule.errors import InputError
from chainrule.inspection import text_excerpt
from chainrule.inspection.text_excerpt import take_sample
from chainrule.model import Model
from chainrule.text.corpus import Corpus

LINES = ["i love cats", "", "cats chase mice"]  # 4 + 1 + 4 tokens including `</s>`


@cache
def model(tokenizer: str = "word") -> Model:
    chosen: dict[str, Any] = {"order": 2, "smoothing": "witten-bell", "tokenizer": tokenizer}
    return chainrule.train("ngram", Corpus.from_lines([*LINES, "ab"]), **chosen)


def sample_tokens(tokens: int, lines: list[str] = LINES, tokenizer: str = "word") -> list[str]:
    result = take_sample(model(tokenizer), Corpus.from_lines(lines), name="m", tokens=tokens)
    assert len(result.ids) == len(result.tokens)
    return list(result.tokens)


def test_sample_has_exactly_the_first_tokens() -> None:
    assert sample_tokens(4) == ["i", "love", "cats", "</s>"]
    assert sample_tokens(5) == ["i", "love", "cats", "</s>", "</s>"]
    assert sample_tokens(7) == ["i", "love", "cats", "</s>", "</s>", "cats", "chase"]  # cut within a line
    assert sample_tokens(1) == ["i"]


def test_sample_of_a_shorter_text_is_complete() -> None:
    assert sample_tokens(1000) == ["i", "love", "cats", "</s>", "</s>", "cats", "chase", "mice", "</s>"]
    assert sample_tokens(1000, [""]) == ["</s>"]


def test_sample_keeps_spellings_of_unknown_words() -> None:
    corpus = Corpus.from_lines(["zebras love gnus", "gnus"])
    result = take_sample(model(), corpus, name="m", tokens=3, source="a text")
    assert result.tokens == ("<unk>", "love", "<unk>")
    assert result.text.spellings == ["zebras", "gnus"]  # not the third, which is beyond the cut
    assert (result.name, result.source) == ("m", "a text")


def test_sample_reads_a_long_line_in_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters: 200,000 in a line are several fragments; the cut is in the second."""
    line = "ab" * 100_000
    assert "".join(sample_tokens(70_001, [line, "i"], "char")) == line[:70_001]
    monkeypatch.setattr(text_excerpt, "LONGEST_LINE", 6)
    monkeypatch.setattr(text_excerpt, "LONGEST_TOKEN", 1)
    assert sample_tokens(8, [line, "i"], "char") == [
        *"abababab"
    ]  # 8 tokens need 8 characters, although 6 suffice for few
    assert sample_tokens(3, [line], "char") == [*"aba"]


def test_sample_of_an_empty_text_is_rejected() -> None:
    with pytest.raises(InputError, match="the text is empty"):
        take_sample(model(), Corpus.from_lines([]), name="m", tokens=3)


def test_sample_shows_unknown_words_of_the_text() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=1, smoothing="witten-bell")
    sample_ = take_sample(model, Corpus.from_lines(["a zebra b", "yak"]), name="m", tokens=10)
    assert sample_.tokens == ("a", "<unk>", "b", "</s>", "<unk>", "</s>")
    assert sample_.source_tokens == ("a", "zebra", "b", "</s>", "yak", "</s>")
    assert sample_.display_tokens == ("a", "⟨zebra⟩", "b", "</s>", "⟨yak⟩", "</s>")


def test_sample_shows_punctuation_without_joiners() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a, b", "b, a"]), order=1, smoothing="witten-bell")
    sample_ = take_sample(model, Corpus.from_lines(["a, b!"]), name="m", tokens=10)
    assert sample_.source_tokens == ("a", "\uffed,", "b", "\uffed!", "</s>")
    assert sample_.display_tokens == ("a", ",", "b", "⟨!⟩", "</s>")
