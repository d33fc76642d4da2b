"""Two models side by side: words of any tokenizer, differences by hand, a table of hostile words."""

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


def read(tokens: list[str], kind: str) -> WordBits:
    """Every token at one bit."""

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
def test_all_kinds_of_tokens_make_the_same_words(kind: str) -> None:
    found = read(LINES[kind], kind)
    assert list(found.names.items()) == [
        ((0, 0), "the"),
        ((0, 1), "cats"),
        ((0, 2), "sat"),
        ((0, 3), "</s>"),
        ((1, 0), "</s>"),
        ((2, 0), "it"),
        ((2, 1), "</s>"),
    ]
    assert sum(found.bits.values()) == len(LINES[kind])  # every token is somewhere, once


def test_a_blank_costs_what_it_costs_the_word_behind_it() -> None:
    assert list(read(LINES["char"], "char").bits.values()) == [3, 5, 4, 1, 1, 2, 1]


def test_blanks_in_odd_places() -> None:
    # Blanks before, between, and after; the last belong to the end of the line.
    assert word_positions([" ", "a", " ", "\t", "b", " ", "</s>"], ends([*"123456", "</s>"]), "char") == [
        (0, 0),
        (0, 0),
        (0, 1),
        (0, 1),
        (0, 1),
        (0, 2),
        (0, 2),
    ]
    assert read([" ", "a", " ", "</s>"], "char").names == {(0, 0): "a", (0, 1): "</s>"}
    # A token over several words ends in the last of them.
    assert word_positions(["a b", "c ", "d"], ends(["", "", ""]), "bpe") == [(0, 1), (0, 1), (0, 2)]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "char", "byte", "unigram"])
def test_a_word_that_may_go_on_is_left_out(kind: str) -> None:
    broken = LINES[kind][:-1]  # breaks off after "it"
    assert (2, 0) not in read(broken, kind).names
    assert (1, 0) in read(broken, kind).names


def test_a_whole_word_is_kept_at_the_end() -> None:
    assert (2, 0) in read(LINES["word"][:-1], "whitespace").names


def test_words_with_split_punctuation() -> None:
    tokens = ["(\uffed", "the", "\uffed,", "cat", "\uffed-\uffed", "like", "</s>", "it"]
    assert word_positions(tokens, ends(tokens), "word") == [*[(0, 0)] * 3, *[(0, 1)] * 3, (0, 2), (1, 0)]


@pytest.mark.parametrize("kind", LINES)
def test_one_token_is_no_trouble(kind: str) -> None:
    assert read(["a"], kind).names == {}  # it may go on
    assert len(read(["a"], "whitespace").names) == 1
    assert read(["</s>"], kind).names == {(0, 0): "</s>"}


def test_words_are_aligned_across_tokenizers() -> None:
    found = compare_words("bpe", "word", read(LINES["bpe"], "bpe"), read(LINES["word"][:-2], "word"))
    assert list(found.names) == ["the", "cats", "sat", "</s>", "</s>"]
    assert found.first_bits.tolist() == [1, 2, 1, 1, 1]
    assert found.second_bits.tolist() == [1, 1, 1, 1, 1]
    assert found.mean_gain == pytest.approx(-0.2)  # the first needs one bit more in five words


def pair(first: list[float], second: list[float]) -> Disagreement:
    names = [f"w{i}" for i in range(len(first))]
    return Disagreement("A", "B", "token", names, np.array(first), np.array(second))


def test_differences_by_hand() -> None:
    found = pair([1.0, 5.0, 2.0, 3.0], [4.0, 4.0, 2.0, 9.0])
    # A is better by 3, −1, 0 and 6 bits: 8 over 4 tokens.
    assert_allclose(found.gain, [3, -1, 0, 6])
    assert found.mean_gain == 2.0
    assert found.largest(1) == [3, 0]
    assert found.largest(-1) == [1]
    assert found.largest(1, 1) == [3]
    assert describe_disagreement(found) == (
        "A predicts this text better than B, by 2.00 bits per token over 4 tokens; they differ most on “w3”."
    )


def test_the_second_may_be_the_better() -> None:
    assert describe_disagreement(pair([2.0, 2.0], [1.0, 1.5])).startswith(
        "B predicts this text better than A, by 0.75 bits"
    )


def test_what_only_one_holds_possible_comes_first_and_is_not_averaged() -> None:
    found = pair([1.0, math.inf, math.inf, 2.0], [math.inf, 3.0, math.inf, 5.0])
    assert found.gain.tolist() == [math.inf, -math.inf, 0.0, 3.0]
    assert found.mean_gain == 3.0
    assert found.one_sided == 2
    assert found.largest(1) == [0, 3]
    assert found.impossible == (2, 2)
    assert found.shared == 1
    # Only one token has nonzero probability under both; A predicts it better by 5 − 2 bits.
    assert describe_disagreement(found) == (
        "Both A and B give parts of this text probability 0: A gives probability 0 to 2 of 4 tokens and B to 2; "
        "over the 1 token possible under both, A is 3.00 bits per token better than B; they differ most on “w0”."
    )
    assert "infinite" in table_html(found)
    data = to_json(found)
    assert (data["impossible"], data["possible_to_both"]) == ([2, 2], 1)
    assert [row["bits"] for row in data["largest"]] == [[1.0, None], [2.0, 5.0], [None, 3.0]]


@pytest.mark.parametrize("is_turned", [False, True])
def test_what_holds_a_token_impossible_is_never_the_better(is_turned: bool) -> None:
    # A is three bits better on both tokens it holds possible, and would never have written the third.
    first, second = [1.0, 1.0, math.inf], [4.0, 4.0, 9.0]
    found = pair(second, first) if is_turned else pair(first, second)
    words = describe_disagreement(found)
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


def test_nothing_is_averaged_over_nothing() -> None:
    assert describe_disagreement(pair([math.inf], [2.0])) == (
        "B predicts this text better than A: A gives probability 0 to 1 of 1 token and B to none; no unit is "
        "possible under both; they differ most on “w0”."
    )
    both = pair([math.inf, 1.0], [math.inf, 1.0])
    assert (
        describe_disagreement(both)
        == "A and B give every token the same probability; both give 1 of them probability 0."
    )


def test_a_score_is_called_one() -> None:
    found = Disagreement("A", "B", "token", ["w"], np.array([1.0]), np.array([2.0]), is_probability=False)
    assert "(by score, not probability)" in describe_disagreement(found)
    assert to_json(found)["is_probability"] is False


def test_equal_models_have_nothing_to_show() -> None:
    found = pair([1.0, 2.0], [1.0, 2.0])
    assert describe_disagreement(found) == "A and B give every token the same probability."
    assert table_html(found).count(">none<") == 2


def test_the_table_holds_fifteen_either_way_with_their_neighbours() -> None:
    found = pair([*np.arange(20.0), *np.zeros(20)], [*np.zeros(20), *np.arange(20.0)])
    table = table_html(found)
    assert table.count("<tr>") == 1 + 2 + 2 * predictions.SHOWN
    # The largest for A is the last, 19 bits, with five words before it and none behind.
    assert "<bdi>w34 w35 w36 w37 w38 <b>w39</b></bdi>" in table
    assert "+19.00" in table
    assert "−19.00" in table


class Tags(HTMLParser):
    """Names of all elements that a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


def test_hostile_words_stay_words() -> None:
    names = ["<script>", "\0", "\udc80", "שלום"]
    found = Disagreement("<i>", "B", "word", names, np.array([1.0, 2, 3, 4]), np.array([9.0, 9, 1, 1]))
    markup = table_html(found)
    assert not {"script", "i"} & Tags(markup).found
    assert "␀" in markup
    markup.encode("utf-8")
