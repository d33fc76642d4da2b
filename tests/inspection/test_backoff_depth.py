"""Back-off orders: shares worked by hand, description, coloured text, bars."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.inspection.predictions import (
    Orders,
    describe_orders,
    ngram_name,
    order_statistics,
    orders_html,
    plot_orders,
    reasons_table,
)

REASONS = ("longest", "word <unseen>", "context unseen")

# Eight tokens of a trigram model: two by trigrams, five by bigrams, one by an impossible unigram.
FOUND = np.array([3, 3, 2, 2, 2, 2, 2, 1])
BITS = np.array([1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 9.0, math.inf])
WHY = np.array([0, 0, 1, 1, 1, 2, 2, 2])
TEXT = Orders(3, FOUND, BITS, WHY, REASONS)
IS_END = np.array([False] * 7 + [True])
TOKENS = ["a", "<b>", "c", "d", "e", "f", "\0", "</s>"]


def test_order_statistics_worked_by_hand() -> None:
    three, two, unigrams = order_statistics(TEXT)
    assert (three.order, three.tokens, three.share, three.bits) == (3, 2, 0.25, 1.5)
    assert (two.order, two.tokens, two.share, two.bits) == (2, 5, 0.625, 5.0)  # (4 + 4 + 4 + 4 + 9) / 5
    assert (unigrams.order, unigrams.tokens, unigrams.impossible, unigrams.bits) == (1, 1, 1, 0.0)
    assert two.reasons == {"word <unseen>": 3, "context unseen": 2}


def test_describe_orders() -> None:
    assert describe_orders(TEXT) == (
        "25 % of tokens were scored by a trigram, at 1.5 bits each; 62 % backed off to bigrams, "
        "mostly because: word <unseen>; 12 % have probability 0"  # one of eight
    )


def test_describe_orders_without_or_with_only_backoff() -> None:
    none = Orders(3, np.full(4, 3), np.ones(4), np.zeros(4, int), REASONS)
    assert describe_orders(none) == "100 % of tokens were scored by a trigram, at 1.0 bits each"
    every = Orders(2, np.ones(4, int), np.ones(4), np.ones(4, int), REASONS)
    assert describe_orders(every) == (
        "0 % of tokens were scored by a bigram; 100 % backed off to unigrams, all because: word <unseen>"
    )
    single = Orders(1, np.ones(1, int), np.array([math.inf]), np.zeros(1, int), REASONS)
    assert describe_orders(single) == "100 % of tokens were scored by a unigram, 1 of them impossible"


def test_ngram_names() -> None:
    assert [ngram_name(n) for n in (1, 2, 3, 4)] == ["unigram", "bigram", "trigram", "4-gram"]


def test_colour_deepens_with_the_order() -> None:
    markup = orders_html(TOKENS, TEXT, IS_END)
    # 0.6 for trigrams, half of that for bigrams, none for unigrams.
    assert markup.count("rgba(0,114,178,0.60)") == 2
    assert markup.count("rgba(0,114,178,0.30)") == 5
    assert markup.count("rgba(0,114,178,0.00)") == 1
    assert 'title="bigram, 4.00 bits; word &lt;unseen&gt;"' in markup
    assert "&lt;b&gt;" in markup
    assert "<b>" not in markup
    assert "␀" in markup
    assert markup.count('class="read-token none"') == 1


def test_reasons_table_counts_reasons() -> None:
    table = reasons_table(TEXT)
    assert '<td>bigram</td><td>word &lt;unseen&gt;</td><td class="read-number">3</td>' in table
    assert table.count("<tr>") == 1 + 4  # trigram once, bigram twice, unigram once


def test_order_bars_show_share_and_bits() -> None:
    pytest.importorskip("matplotlib")
    drawn = plot_orders(TEXT, title="Orders")
    labels = {
        (e.text or "").strip() for e in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"trigram", "bigram", "unigram", "25 %, at 1.5 bits each", "62 %, at 5.0 bits each"} <= labels
    assert "<desc>trigram: 25 %" in drawn
    only = Orders(1, np.ones(1, int), np.ones(1), np.zeros(1, int), REASONS)
    assert "unigram" in plot_orders(only, title="One")
