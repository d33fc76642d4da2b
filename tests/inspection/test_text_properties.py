"""Text properties worked by hand, for characters, words and bytes."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule.errors import UsageError
from chainrule.inspection.text_properties import PROPERTIES, AlignedText, parse_property
from chainrule.lm import Floats


def characters(text: str, is_line: bool = False) -> AlignedText:
    return AlignedText.from_bytes([c.encode() for c in text], [False] * len(text), is_line=is_line)


def words(*lines: str) -> AlignedText:
    pieces, is_apart = list[bytes](), list[bool]()
    for line in lines:
        for i, word in enumerate(line.split()):
            pieces.append(word.encode())
            is_apart.append(i > 0)
        pieces.append(b"\n")
        is_apart.append(False)
    return AlignedText.from_bytes(pieces, is_apart)


def bits(name: str, run: AlignedText) -> str:
    return "".join(str(int(value)) for value in parse_property(name).values(run))


def numbers(name: str, run: AlignedText) -> list[int]:
    values: Floats = parse_property(name).values(run)
    return [int(value) for value in values]


def test_words_are_separated_and_lines_end() -> None:
    run = words("the cat", "sat")
    assert run.text == "the cat\nsat\n"
    assert run.first.tolist() == [0, 4, 7, 8, 11]
    assert run.last.tolist() == [3, 7, 8, 11, 12]
    assert run.token_texts() == ["the", " cat", "\n", "sat", "\n"]


def test_bytes_share_their_character_and_invalid_ones_stay() -> None:
    # ï is two bytes; 0xff is not a character
    run = AlignedText.from_bytes([b"a", b"\xc3", b"\xaf", b"\xff", b"b"], [False] * 5)
    assert run.first.tolist() == [0, 1, 1, 2, 3]
    assert run.last.tolist() == [1, 2, 2, 3, 4]
    assert run.token_texts() == ["a", "", "ï", "\ufffd", "b"]
    assert numbers("line-position", run) == [1, 2, 2, 3, 4]
    "".join(run.token_texts()).encode()


def test_inside_quotes_property() -> None:
    assert bits("quotes", characters('a "bc" d')) == "00111000"
    assert bits("quotes", characters("a “bc” d")) == "00111000"
    # a mark of two characters is recognised at its second, opening and closing
    assert bits("quotes", characters("``b'' d")) == "0111000"
    # words with a character inside quotes: he said [" no] " then ↵ ["no"] yes ↵
    assert bits("quotes", words('he said " no " then', '"no" yes')) == "0011000100"


def test_quotes_end_with_the_paragraph_or_line() -> None:
    assert bits("quotes", characters('"a\nb\n\nc')) == "1111100"
    assert bits("quotes", characters('"a\nb', is_line=True)) == "1100"


def test_inside_brackets_property() -> None:
    assert bits("brackets", characters("a(b[c]d)e)f")) == "01111110000"
    assert bits("brackets", characters("(a\n\nb")) == "11100"


def test_position_properties() -> None:
    run = characters("ab c\nd")
    assert numbers("line-position", run) == [1, 2, 3, 4, 0, 1]
    assert numbers("since-blank", run) == [1, 2, 0, 1, 0, 1]
    assert numbers("line-position", words("the cat sat", "on")) == [3, 7, 11, 0, 2, 0]
    assert numbers("line-tokens", words("the cat sat", "on")) == [1, 2, 3, 0, 1, 0]
    assert numbers("sentence-position", characters("Hi. 3.5 it")) == [1, 2, 0, 1, 2, 3, 4, 5, 6, 7]


def test_character_class_properties() -> None:
    assert bits("upper-case", words("The iPod is On fire")) == "110100"
    assert bits("digits", words("B2 or not 2")) == "10010"
    assert bits("punctuation", words("well , it's so")) == "01100"
    assert bits("upper-case", characters("Éa")) == "10"


def test_frequent_words_property() -> None:
    rare = " ".join(f"w{i}" for i in range(20))
    run = words(f"the the {rare} The")
    # "the" three times and the first nineteen others of equal count by name: w0 w1 w10 … w19 w2 … w8, without w9
    values = dict(zip(run.token_texts(), parse_property("frequent-words").values(run), strict=True))
    assert values[" The"] == 1.0
    assert [word for word, value in values.items() if value == 0.0] == [" w9", "\n"]


def test_near_end_properties() -> None:
    text = "0123456789abcde. x"
    # the full stop is character 15: near from 5 to itself
    assert bits("sentence-end", characters(text)) == "0" * 5 + "1" * 11 + "00"
    assert bits("line-end", characters("0123456789ab\nc")) == "00" + "1" * 11 + "0"


def test_regular_expression_property() -> None:
    assert bits("/at/", characters("a cat sat")) == "000110011"
    assert bits("/t s/", words("a cat sat on")) == "01100"
    assert bits("/^on$/", words("on it", "on")) == "00010"
    assert bits("/x*/", words("a b")) == "000"  # empty matches cover nothing


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("text", ["\n", "a", "שלום עולם.\nא", "\x00\t", '"', "(((", "\u2028x"])
def test_properties_of_unusual_text_are_finite(name: str, text: str) -> None:
    values = parse_property(name).values(characters(text))
    assert values.shape == (len(text),)
    assert np.isfinite(values).all()


def test_properties_of_empty_text() -> None:
    run = AlignedText.from_bytes([b""], [False])
    assert run.token_texts() == [""]
    for property_ in PROPERTIES.values():
        assert_array_equal(property_.values(run).shape, (1,))


def test_property_names_are_normalised_and_unknown_ones_rejected() -> None:
    assert parse_property("Line_Position") is PROPERTIES["line-position"]
    with pytest.raises(UsageError, match="did you mean 'quotes'"):
        parse_property("quote")
    with pytest.raises(UsageError, match=r"choose one of quotes, brackets.* or /a regular expression/"):
        parse_property("zzz")
    with pytest.raises(UsageError, match="not a valid regular expression"):
        parse_property("/(/")
