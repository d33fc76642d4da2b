"""Text coloured by surprisal: escaped, on one scale, with its numbers."""

import math
import re
from html.parser import HTMLParser

import pytest

from chainrule.plots.html import MAX_OPACITY, surprisal_html


def opacities(markup: str) -> list[float]:
    return [float(value) for value in re.findall(r"rgba\(213,94,0,([\d.]+)\)", markup)]


def test_colour_deepens_with_bits_up_to_a_limit() -> None:
    # full colour from 16 bits: 0, 8 / 16, 1, 1 of the maximum
    depths = opacities(surprisal_html(["a", "b", "c", "d"], [0.0, 8.0, 16.0, 99.0]))
    assert depths == [0.0, MAX_OPACITY / 2, MAX_OPACITY, MAX_OPACITY]


def test_bits_are_shown_on_hover_and_to_screen_readers() -> None:
    markup = surprisal_html(["mice"], [9.5])
    assert 'title="9.50 bits"' in markup
    assert "(9.50 bits)</bdi>" in markup


def test_impossible_token_has_a_dashed_mark() -> None:
    markup = surprisal_html(["mice"], [math.inf])
    assert opacities(markup) == [MAX_OPACITY]
    assert "dashed" in markup
    assert "impossible" in markup
    assert "dashed" not in surprisal_html(["mice"], [99.0])


def test_tokens_are_escaped_and_control_characters_shown() -> None:
    markup = surprisal_html(['<b title="x">', "&amp;", "\n", "\0"], [1.0, 1.0, 1.0, 1.0])
    texts = list[str]()
    parser = HTMLParser()
    parser.handle_data = texts.append  # type: ignore[assignment, method-assign]
    parser.feed(markup)
    text = "".join(texts)
    assert '<b title="x">' in text
    assert "&amp;" in text
    assert "␊" in text
    assert "␀" in text


def test_control_characters_without_a_symbol_are_replaced() -> None:
    markup = surprisal_html(["a\x80\x9bb\x9f"], [1.0])
    assert "a��b�" in markup
    assert not {chr(code) for code in range(0x80, 0xA0)} & set(markup)


def test_text_direction_is_automatic() -> None:
    assert surprisal_html(["שלום"], [1.0]).startswith('<span dir="auto"')


def test_empty_text_is_allowed_and_mismatched_lengths_are_rejected() -> None:
    assert opacities(surprisal_html([], [])) == []
    with pytest.raises(ValueError, match="shorter"):
        surprisal_html(["a", "b"], [1.0])


def test_joiners_are_not_shown() -> None:
    markup = surprisal_html(["(\uffed", "a", "\uffed,", "\uffed-\uffed", "\uffed"], [1.0] * 5)
    texts = re.findall(r'bits">([^<]*)<bdi', markup)
    assert texts == ["(", "a", ",", "-", "\uffed"]  # the last is a character of the text
