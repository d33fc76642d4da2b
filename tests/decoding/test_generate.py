"""Text generation: blanks, stop strings, incomplete characters and streaming."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding.generate import generate, next_tokens, stream
from chainrule.decoding.settings import Decoding, Strategy
from chainrule.errors import ConfigError, VocabularyError
from decoding.toy import Bytes, Markov, Script, Words, log, random_markov

CATS = Words("i", "love", "cats", "mice")  # ids 3, 4, 5, 6
GREEDY = Decoding(strategy="greedy")


def scripted_model(text: str, prompt: str = "") -> Script:
    """A byte model that generates this text after the prompt, then `</s>`."""
    return Script([*Bytes().encode(text).tolist(), 1], 258, len(Bytes().encode(prompt)))


def test_generation_has_text_tokens_and_log_probs() -> None:
    # p(love | i) = .5, p(cats | love) = .8, p(</s> | cats) = .9
    p = np.full((7, 7), 0.0)
    p[:, 2] = 0.1
    p[3, 4], p[4, 5], p[5, 1] = 0.5, 0.8, 0.9
    (generation,) = generate(Markov(log(p.tolist())), CATS, "i", GREEDY)
    assert (generation.text, generation.finish_reason) == (" love cats", "stop")
    assert generation.tokens == ["love", "cats", "</s>"]
    assert generation.ids == [4, 5, 1]
    assert generation.log_probs == pytest.approx(np.log([0.5, 0.8, 0.9]))
    assert generation.log_prob == pytest.approx(np.log(0.36))
    assert str(generation) == "i love cats"


def test_log_probs_are_those_of_the_unfiltered_model() -> None:
    lm = Markov(log([(0, 0.1, 0.2, 0.3, 0.4)] * 5))
    settings = Decoding(strategy="greedy", no_repeat_ngram=1, repetition_penalty=3.0, temperature=0.1, top_k=2)
    (generation,) = generate(lm, Words("a", "b"), "", settings)
    assert generation.text == "b a <unk>"
    assert generation.log_probs == pytest.approx(np.log([0.4, 0.3, 0.2, 0.1]))


@pytest.mark.parametrize(
    ("prompt", "text", "full_text"),
    [
        ("i love", " cats", "i love cats"),
        ("i love ", " cats", "i love cats"),  # a space that the tokenizer drops is not written twice
        ("", "cats", "cats"),
        ("  ", "cats", "cats"),
        ("I adore", " cats", "I adore cats"),  # unknown words keep their spelling
        ("i love mice\ni love", " cats", "i love mice\ni love cats"),
        ("i love mice\n", "cats", "i love mice\ncats"),
        ("i love mice\r\ni", " cats", "i love mice\r\ni cats"),
    ],
)
def test_spaces_between_prompt_and_continuation(prompt: str, text: str, full_text: str) -> None:
    (generation,) = generate(Script([5, 1], 7, len(prompt.split()) + prompt.count("\n")), CATS, prompt, GREEDY)
    assert (generation.text, str(generation)) == (text, full_text)


def test_byte_tokenizer_keeps_the_prompt_s_spaces() -> None:
    (generation,) = generate(scripted_model("  b", "a "), Bytes(), "a ", GREEDY)
    assert (generation.text, str(generation)) == ("  b", "a   b")


def test_line_break_in_the_prompt_is_read_as_eos() -> None:
    lm = Markov(log([(0, 0, 0, 0, 0, 1, 0)] * 7))
    lm.table[1] = log((0, 0, 0, 0, 0, 0, 1))  # mice after </s>
    assert generate(lm, CATS, "i\n", Decoding(strategy="greedy", max_tokens=1))[0].tokens == ["mice"]


def test_generation_ends_at_max_tokens() -> None:
    lm = scripted_model("abc")
    (generation,) = generate(lm, Bytes(), "", Decoding(max_tokens=2))
    assert (generation.text, generation.finish_reason) == ("ab", "length")
    (none,) = generate(lm, Bytes(), "", Decoding(max_tokens=0))
    assert (none.text, none.ids, none.log_prob, none.finish_reason) == ("", [], 0.0, "length")
    assert list(stream(lm, Bytes(), "", Decoding(max_tokens=0))) == []


@pytest.mark.parametrize("context", ["line", "stream"])
def test_generation_ends_at_eos_in_both_contexts(context: str) -> None:
    lm = scripted_model("ab")
    lm.context = context  # type: ignore[assignment]
    assert generate(lm, Bytes(), "", Decoding())[0].ids[-1] == 1


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        (("c",), "ab", 3),
        (("cd",), "ab", 4),  # spans two tokens
        (("xx", "de", "cd"), "ab", 4),  # the first one completed
        (("abcdef",), "", 6),
        (("cx",), "abcdef", 7),  # begins but is not completed
    ],
)
@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam"])
def test_stop_strings_end_generation(stop: tuple[str, ...], text: str, tokens: int, strategy: Strategy) -> None:
    settings = Decoding(strategy=strategy, stop=stop)
    (generation,) = generate(scripted_model("abcdef"), Bytes(), "", settings)
    assert (generation.text, len(generation.ids), generation.finish_reason) == (text, tokens, "stop")
    assert "".join(stream(scripted_model("abcdef"), Bytes(), "", settings)) == text


def test_stop_string_across_the_prompt_does_not_stop() -> None:
    (generation,) = generate(scripted_model("ab", "b"), Bytes(), "b", Decoding(stop=("bab",)))
    assert generation.text == "ab"


def test_stop_string_at_the_last_token_is_a_stop() -> None:
    (generation,) = generate(scripted_model("ab"), Bytes(), "", Decoding(stop=("b",), max_tokens=2))
    assert (generation.text, generation.finish_reason) == ("a", "stop")


def test_stop_string_within_words() -> None:
    (generation,) = generate(Script([4, 5, 6, 1], 7, 1), CATS, "i", Decoding(stop=("cats m",)))
    assert (generation.text, generation.tokens) == (" love ", ["love", "cats", "mice"])


def test_stream_holds_back_incomplete_text() -> None:
    # é is C3 A9; the stop string "xy" begins at x but is not completed
    pieces = list(stream(scripted_model("aéxzé"), Bytes(), "", Decoding(stop=("xy",))))
    assert pieces == ["a", "é", "xz", "é"]


def test_stream_ends_with_incomplete_characters_replaced() -> None:
    lm = Script([2 + ord("a"), 2 + 0xC3, 1], 258)
    assert list(stream(lm, Bytes(), "", Decoding())) == ["a", "\ufffd"]
    assert generate(lm, Bytes(), "", Decoding())[0].text == "a\ufffd"


@given(
    seed=st.integers(0, 10**6),
    stop=st.sampled_from([(), ("ab",), ("é", "ba"), ("aba", "b\xc3"), ("\ufffd",)]),
)
def test_streamed_pieces_concatenate_to_the_generated_text(seed: int, stop: tuple[str, ...]) -> None:
    # a model that generates a, b and loose bytes of é and €, valid UTF-8 or not
    p = np.zeros(258)
    p[[1, 2 + 0x61, 2 + 0x62, 2 + 0xC3, 2 + 0xA9, 2 + 0xE2, 2 + 0x82, 2 + 0xAC]] = 0.02, *[0.14] * 7
    lm = Markov(log([p.tolist()] * 258))
    settings = Decoding(seed=seed, stop=stop, max_tokens=30)
    assert "".join(stream(lm, Bytes(), "aé", settings)) == generate(lm, Bytes(), "aé", settings)[0].text


def test_seeded_samples_do_not_depend_on_num() -> None:
    lm, words = random_markov(5, V=7), CATS
    settings = Decoding(seed=3, max_tokens=12)
    many = generate(lm, words, "i", settings, num=8)
    assert generate(lm, words, "i", settings, num=2) == many[:2]
    assert "".join(stream(lm, words, "i", settings)) == many[0].text
    assert len({item.text for item in many}) > 4


def test_beam_generations_are_sorted_by_probability() -> None:
    lm = random_markov(5, V=7)
    best = generate(lm, CATS, "i", Decoding(strategy="beam", max_tokens=6), num=3)
    assert best[0].log_prob >= best[1].log_prob >= best[2].log_prob
    assert "".join(stream(lm, CATS, "i", Decoding(strategy="beam", max_tokens=6))) == best[0].text
    assert all(generation.log_prob == pytest.approx(sum(generation.log_probs)) for generation in best)


def test_next_tokens_are_sorted_with_ties_by_lowest_id() -> None:
    lm = Markov(log([(0, 0.2, 0, 0.1, 0.4, 0.2, 0.1)] * 7))
    expected = [("love", 0.4), ("</s>", 0.2), ("cats", 0.2), ("i", 0.1)]
    tokens = next_tokens(lm, CATS, "i", 4)
    assert [token for token, _ in tokens] == [token for token, _ in expected]
    assert [p for _, p in tokens] == pytest.approx([p for _, p in expected])
    assert len(next_tokens(lm, CATS, "i", 100)) == 5  # impossible tokens are not listed


def test_next_tokens_of_an_unnormalised_model() -> None:
    lm = Markov(log([(0, 0.4, 0.4)] * 3), is_normalized=False)
    assert dict(next_tokens(lm, Words(), "", 2)) == pytest.approx(
        {"</s>": 0.4, "<unk>": 0.4}
    )  # the probabilities that `score` gives


def test_invalid_calls_are_rejected_immediately() -> None:
    lm = random_markov(0, V=7)
    with pytest.raises(VocabularyError, match=r"built for 7 ids.* makes 258"):
        stream(lm, Bytes(), "", Decoding())
    with pytest.raises(ConfigError, match="num is 0"):
        generate(lm, CATS, "", Decoding(), num=0)
    with pytest.raises(ConfigError, match="top is 0"):
        next_tokens(lm, CATS, "", 0)
