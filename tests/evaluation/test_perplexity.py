import math

import numpy as np
import pytest

from chainrule.data.encoded import EncodedText
from chainrule.evaluation.perplexity import first_impossible, summarize

# "i zebra" and "cats": i 1, cats 2, <unk> 0, </s> 9; 2 lines, 3 words, 13 bytes with line breaks.
TEXT = EncodedText(
    ids=np.array([1, 0, 9, 2, 9]), eos=9, unk=0, words=3, characters=13, bytes=13, spellings=["zebra"]
)
LOG_PROBS = np.log([1 / 2, 1 / 4, 1 / 2, 1 / 8, 1 / 2])
SPELLING = np.log([1 / 64])


def test_every_figure_by_hand() -> None:
    report = summarize(TEXT, LOG_PROBS, SPELLING, seconds=2.0)
    assert (report.sentences, report.tokens, report.oov) == (2, 5, 1)
    # 1 + 2 + 1 + 3 + 1 = 8 bits over 5 tokens; 6 bits without the unknown word over 4; 6 more to spell it.
    assert report.bits_per_token == pytest.approx(8 / 5)
    assert report.nats_per_token == pytest.approx(8 / 5 * math.log(2))
    assert report.perplexity == pytest.approx(2 ** (8 / 5))
    assert report.perplexity_excluding_oov == pytest.approx(2 ** (6 / 4))
    assert report.bits_per_byte == pytest.approx(14 / 13)
    assert report.bits_per_character == pytest.approx(14 / 13)
    assert report.perplexity_per_word == pytest.approx(2 ** (14 / 5))  # 3 words and 2 line breaks
    assert report.tokens_per_second == pytest.approx(2.5)
    assert not report.infinite


def test_infinity_is_reported_with_its_first_cause() -> None:
    log_probs = LOG_PROBS.copy()
    log_probs[[3, 4]] = -math.inf
    report = summarize(TEXT, log_probs, SPELLING, seconds=1)
    assert report.infinite
    assert report.perplexity == report.bits_per_byte == math.inf
    assert first_impossible(TEXT, log_probs) == (2, 2, 1)
    assert first_impossible(TEXT, LOG_PROBS) is None


def test_a_text_of_unknown_words_has_no_perplexity_without_them() -> None:
    text = EncodedText(ids=np.array([0, 0]), eos=9, unk=0, words=2, characters=4, bytes=4, spellings=["a", "b"])
    assert math.isnan(summarize(text, np.log([0.5, 0.5]), np.log([0.1, 0.1]), seconds=1).perplexity_excluding_oov)


def test_a_certain_text_has_zero_bits_without_a_minus_sign() -> None:
    text = EncodedText(ids=np.array([1, 9]), eos=9, unk=0, words=1, characters=2, bytes=2, spellings=[])
    figures = summarize(text, np.zeros(2), np.zeros(0), seconds=1)
    for value in (figures.nats, figures.nats_known, figures.nats_per_token, figures.bits_per_token):
        assert math.copysign(1, value) == 1
    assert math.copysign(1, figures.bits_per_byte) == math.copysign(1, figures.bits_per_character) == 1
    assert figures.perplexity == 1
