"""Two models side by side: words of any tokenizer, differences worked by hand, hostile words in tables."""

import math
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection import predictions
from chainrule.inspection.predictions import (
    Disagreement,
    WordBits,
    compare_words,
    describe_disagreement,
    group_words,
    table_html,
    to_json,
    word_positions,
)
from chainrule.lm import Mask


def ends(tokens: list[str]) -> Mask:
    return np.array([token == "</s>" for token in tokens])


def words_of_tokens(tokens: list[str], kind: str) -> WordBits:
    """Every token costs one bit."""

    def spell(at: list[int]) -> str:
        return "".join(tokens[i].removeprefix("##") for i in at).strip()

    return group_words(tokens, np.ones(len(tokens)), ends(tokens), kind, spell)


LINES = {  # "the cats sat", "", "it" in every kind of token
    "word": ["the", "cats", "sat", "</s>", "</s>", "it", "</s>"],
    "wordpiece": ["the", "cat", "##s", "sat", "</s>", "</s>", "it", "</s>"],
    "bpe": ["the", " cat", "s", " sat", "</s>", "</s>", "it", "</s>"],
    "unigram": ["the", " ", "cats", " sat", "</s>", "</s>", "i", "t", "</s>"],
    "char": [*"the cats sat", "</s>", "</s>", *"it", "</s>"],
    "byte": [*"the cats sat", "</s>", "</s>", *"it", "</s>"],
}


@pytest.mark.parametrize("kind", LINES)
def test_all_tokenizers_give_the_same_words(kind: str) -> None:
    words = words_of_tokens(LINES[kind], kind)
    assert list(words.names.items()) == [
        ((0, 0), "the"),
        ((0, 1), "cats"),
        ((0, 2), "sat"),
        ((0, 3), "</s>"),
        ((1, 0), "</s>"),
        ((2, 0), "it"),
        ((2, 1), "</s>"),
    ]
    assert sum(words.bits.values()) == len(LINES[kind])  # every token is counted once


def test_space_counts_for_the_word_after_it() -> None:
    assert list(words_of_tokens(LINES["char"], "char").bits.values()) == [3, 5, 4, 1, 1, 2, 1]


def test_word_positions_with_unusual_spaces() -> None:
    # Spaces before, between, and after; the last belong to the end of the line.
    assert word_positions([" ", "a", " ", "\t", "b", " ", "</s>"], ends([*"123456", "</s>"]), "char") == [
        (0, 0),
        (0, 0),
        (0, 1),
        (0, 1),
        (0, 1),
        (0, 2),
        (0, 2),
    ]
    assert words_of_tokens([" ", "a", " ", "</s>"], "char").names == {(0, 0): "a", (0, 1): "</s>"}
    # A token over several words belongs to the last of them.
    assert word_positions(["a b", "c ", "d"], ends(["", "", ""]), "bpe") == [(0, 1), (0, 1), (0, 2)]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "char", "byte", "unigram"])
def test_incomplete_last_word_is_left_out(kind: str) -> None:
    broken = LINES[kind][:-1]  # breaks off after "it"
    assert (2, 0) not in words_of_tokens(broken, kind).names
    assert (1, 0) in words_of_tokens(broken, kind).names


def test_complete_last_word_is_kept() -> None:
    assert (2, 0) in words_of_tokens(LINES["word"][:-1], "whitespace").names


def test_word_positions_with_split_punctuation() -> None:
    tokens = ["(\uffed", "the", "\uffed,", "cat", "\uffed-\uffed", "like", "</s>", "it"]
    assert word_positions(tokens, ends(tokens), "word") == [*[(0, 0)] * 3, *[(0, 1)] * 3, (0, 2), (1, 0)]


@pytest.mark.parametrize("kind", LINES)
def test_words_of_a_single_token(kind: str) -> None:
    assert words_of_tokens(["a"], kind).names == {}  # the word may continue
    assert len(words_of_tokens(["a"], "whitespace").names) == 1
    assert words_of_tokens(["</s>"], kind).names == {(0, 0): "</s>"}


def test_words_are_aligned_across_tokenizers() -> None:
    comparison = compare_words(
        "bpe", "word", words_of_tokens(LINES["bpe"], "bpe"), words_of_tokens(LINES["word"][:-2], "word")
    )
    assert list(comparison.names) == ["the", "cats", "sat", "</s>", "</s>"]
    assert comparison.first_bits.tolist() == [1, 2, 1, 1, 1]
    assert comparison.second_bits.tolist() == [1, 1, 1, 1, 1]
    assert comparison.mean_gain == pytest.approx(-0.2)  # the first needs one bit more in five words


def pair(first: list[float], second: list[float]) -> Disagreement:
    names = [f"w{i}" for i in range(len(first))]
    return Disagreement("A", "B", "token", names, np.array(first), np.array(second))


def test_disagreement_worked_by_hand() -> None:
    disagreement = pair([1.0, 5.0, 2.0, 3.0], [4.0, 4.0, 2.0, 9.0])
    # A is better by 3, −1, 0 and 6 bits: 8 over 4 tokens.
    assert_allclose(disagreement.gain, [3, -1, 0, 6])
    assert disagreement.mean_gain == 2.0
    assert disagreement.largest(1) == [3, 0]
    assert disagreement.largest(-1) == [1]
    assert disagreement.largest(1, 1) == [3]
    assert describe_disagreement(disagreement) == (
        "A predicts this text better than B, by 2.00 bits per token over 4 tokens; they differ most on “w3”."
    )


def test_second_model_can_be_the_better_one() -> None:
    assert describe_disagreement(pair([2.0, 2.0], [1.0, 1.5])).startswith(
        "B predicts this text better than A, by 0.75 bits"
    )


def test_one_sided_impossible_tokens_come_first_and_are_not_averaged() -> None:
    disagreement = pair([1.0, math.inf, math.inf, 2.0], [math.inf, 3.0, math.inf, 5.0])
    assert disagreement.gain.tolist() == [math.inf, -math.inf, 0.0, 3.0]
    assert disagreement.mean_gain == 3.0
    assert disagreement.one_sided == 2
    assert disagreement.largest(1) == [0, 3]
    assert disagreement.impossible == (2, 2)
    assert disagreement.shared == 1
    # Only one token has nonzero probability under both; A predicts it better by 5 − 2 bits.
    assert describe_disagreement(disagreement) == (
        "Both A and B give parts of this text probability 0: A gives probability 0 to 2 of 4 tokens and B to 2; "
        "over the 1 token possible under both, A is 3.00 bits per token better than B; they differ most on “w0”."
    )
    assert "infinite" in table_html(disagreement)
    data = to_json(disagreement)
    assert (data["impossible"], data["possible_to_both"]) == ([2, 2], 1)
    assert [row["bits"] for row in data["largest"]] == [[1.0, None], [2.0, 5.0], [None, 3.0]]


@pytest.mark.parametrize("is_turned", [False, True])
def test_model_with_impossible_tokens_is_never_the_better_one(is_turned: bool) -> None:
    # A is three bits better on two tokens but gives the third probability 0.
    first, second = [1.0, 1.0, math.inf], [4.0, 4.0, 9.0]
    disagreement = pair(second, first) if is_turned else pair(first, second)
    words = describe_disagreement(disagreement)
    if is_turned:
        assert words == (
            "A predicts this text better than B: A gives probability 0 to none of 3 tokens and B to 1; over the 2 "
            "tokens possible under both, A is 3.00 bits per token worse than B; they differ most on “w2”."
        )
    else:
        assert words == (
            "B predicts this text better than A: A gives probability 0 to 1 of 3 tokens and B to none; over the 2 "
            "tokens possible under both, A is 3.00 bits per token better than B; they differ most on “w2”."
        )


def test_disagreement_without_common_tokens() -> None:
    assert describe_disagreement(pair([math.inf], [2.0])) == (
        "B predicts this text better than A: A gives probability 0 to 1 of 1 token and B to none; no unit is "
        "possible under both; they differ most on “w0”."
    )
    both = pair([math.inf, 1.0], [math.inf, 1.0])
    assert (
        describe_disagreement(both)
        == "A and B give every token the same probability; both give 1 of them probability 0."
    )


def test_unnormalised_scores_are_labelled_as_scores() -> None:
    disagreement = Disagreement("A", "B", "token", ["w"], np.array([1.0]), np.array([2.0]), is_probability=False)
    assert "(by score, not probability)" in describe_disagreement(disagreement)
    assert to_json(disagreement)["is_probability"] is False


def test_equal_models_have_an_empty_table() -> None:
    disagreement = pair([1.0, 2.0], [1.0, 2.0])
    assert describe_disagreement(disagreement) == "A and B give every token the same probability."
    assert table_html(disagreement).count(">none<") == 2


def test_table_has_fifteen_rows_each_way_with_context() -> None:
    disagreement = pair([*np.arange(20.0), *np.zeros(20)], [*np.zeros(20), *np.arange(20.0)])
    table = table_html(disagreement)
    assert table.count("<tr>") == 1 + 2 + 2 * predictions.SHOWN
    # The largest for A is the last, 19 bits, with five words before it and none after.
    assert "<bdi>w34 w35 w36 w37 w38 <b>w39</b></bdi>" in table
    assert "+19.00" in table
    assert "−19.00" in table


class Tags(HTMLParser):
    """Names of all elements that a browser would parse."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


def test_hostile_words_stay_text() -> None:
    names = ["<script>", "\0", "\udc80", "שלום"]
    disagreement = Disagreement("<i>", "B", "word", names, np.array([1.0, 2, 3, 4]), np.array([9.0, 9, 1, 1]))
    markup = table_html(disagreement)
    assert not {"script", "i"} & Tags(markup).found
    assert "␀" in markup
    markup.encode("utf-8")
