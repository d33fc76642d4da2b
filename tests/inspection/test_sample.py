"""The first tokens of a text, whatever its lines are like."""

from functools import cache
from typing import Any

import pytest

import chainrule
from chainrule.errors import InputError
from chainrule.inspection import sample
from chainrule.inspection.sample import take_sample
from chainrule.model import Model
from chainrule.text.corpus import Corpus

LINES = ["i love cats", "", "cats chase mice"]  # 4 + 1 + 4 tokens, `</s>` counted


@cache
def model(tokenizer: str = "word") -> Model:
    chosen: dict[str, Any] = {"order": 2, "smoothing": "witten-bell", "tokenizer": tokenizer}
    return chainrule.train("ngram", Corpus.from_lines([*LINES, "ab"]), **chosen)


def shown(tokens: int, lines: list[str] = LINES, tokenizer: str = "word") -> list[str]:
    found = take_sample(model(tokenizer), Corpus.from_lines(lines), name="m", tokens=tokens)
    assert len(found.ids) == len(found.tokens)
    return list(found.tokens)


def test_the_first_tokens_and_no_more() -> None:
    assert shown(4) == ["i", "love", "cats", "</s>"]
    assert shown(5) == ["i", "love", "cats", "</s>", "</s>"]
    assert shown(7) == ["i", "love", "cats", "</s>", "</s>", "cats", "chase"]  # cut within a line
    assert shown(1) == ["i"]


def test_a_shorter_text_is_taken_whole() -> None:
    assert shown(1000) == ["i", "love", "cats", "</s>", "</s>", "cats", "chase", "mice", "</s>"]
    assert shown(1000, [""]) == ["</s>"]


def test_unknown_words_keep_their_spellings() -> None:
    corpus = Corpus.from_lines(["zebras love gnus", "gnus"])
    found = take_sample(model(), corpus, name="m", tokens=3, source="a text")
    assert found.tokens == ("<unk>", "love", "<unk>")
    assert found.text.spellings == ["zebras", "gnus"]  # not the third, which is beyond the cut
    assert (found.name, found.source) == ("m", "a text")


def test_a_long_line_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters: 200,000 of a line are several fragments; the cut falls in the second."""
    line = "ab" * 100_000
    assert "".join(shown(70_001, [line, "i"], "char")) == line[:70_001]
    monkeypatch.setattr(sample, "LONGEST_LINE", 6)
    monkeypatch.setattr(sample, "LONGEST_TOKEN", 1)
    assert shown(8, [line, "i"], "char") == [*"abababab"]  # 8 tokens want 8 characters, though 6 are enough for few
    assert shown(3, [line], "char") == [*"aba"]


def test_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="the text is empty"):
        take_sample(model(), Corpus.from_lines([]), name="m", tokens=3)


def test_unknown_words_are_those_of_the_text() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=1, smoothing="witten-bell")
    taken = take_sample(model, Corpus.from_lines(["a zebra b", "yak"]), name="m", tokens=10)
    assert taken.tokens == ("a", "<unk>", "b", "</s>", "<unk>", "</s>")
    assert taken.source_tokens == ("a", "zebra", "b", "</s>", "yak", "</s>")
    assert taken.display_tokens == ("a", "⟨zebra⟩", "b", "</s>", "⟨yak⟩", "</s>")


def test_punctuation_is_shown_without_joiners() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a, b", "b, a"]), order=1, smoothing="witten-bell")
    taken = take_sample(model, Corpus.from_lines(["a, b!"]), name="m", tokens=10)
    assert taken.source_tokens == ("a", "\uffed,", "b", "\uffed!", "</s>")
    assert taken.display_tokens == ("a", ",", "b", "⟨!⟩", "</s>")
