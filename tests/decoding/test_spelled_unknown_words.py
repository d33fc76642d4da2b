"""Unknown words in generated text: excluded, spelled or kept."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.generate import generate, next_tokens, stream
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from decoding.toy import Markov, Words, log

WORDS = Words("a", "b")  # <s> 0, </s> 1, <unk> 2, a 3, b 4


def model(*rows: Sequence[float]) -> Markov:
    """p(next | last) with `<unk>` in the vocabulary."""
    markov = Markov(log([list(row) for row in rows]))
    markov.vocabulary = Vocabulary(5, 0, 1, 2)
    return markov


# <s> -> <unk> .6, a .4; a -> <unk> .5, b .3, </s> .2; <unk>, b -> </s>
MODEL = model([0, 0, 0.6, 0.4, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0.2, 0.5, 0, 0.3], [0, 1, 0, 0, 0])
ONLY_UNK = model(*[[0, 0, 1, 0, 0]] * 5)


def spelled(*words: str) -> Iterator[str]:
    yield from words


def test_greedy_skips_unk() -> None:
    (generation,) = generate(MODEL, WORDS, "", Decoding(strategy="greedy"))
    assert generation.text == "a b"
    # the log-probabilities are the model's: .4, .3 and 1
    np.testing.assert_allclose(np.exp(generation.log_probs), [0.4, 0.3, 1], atol=1e-12)


def test_beam_search_excludes_unk() -> None:
    generations = generate(MODEL, WORDS, "", Decoding(strategy="beam", beam_size=4), num=4)
    # after a: </s> .2 and b .3, of .5 in all: .4 and .6
    assert [generation.text for generation in generations] == ["a b", "a"]
    with_unk = generate(MODEL, WORDS, "", Decoding(strategy="beam", beam_size=4, unk="keep"), num=4)
    assert [generation.text for generation in with_unk] == ["<unk>", "a <unk>", "a b", "a"]


def test_samples_contain_unk_only_if_kept() -> None:
    texts = [g.text for g in generate(MODEL, WORDS, "", Decoding(seed=1), num=200)]
    assert set(texts) == {"a", "a b"}
    assert 0.5 < texts.count("a b") / 200 < 0.7  # .3 of .5
    texts = [g.text for g in generate(MODEL, WORDS, "", Decoding(seed=1, unk="keep"), num=200)]
    assert set(texts) == {"<unk>", "a", "a b", "a <unk>"}


@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam"])
def test_generation_ends_where_unk_is_the_only_continuation(strategy: str) -> None:
    (generation,) = generate(ONLY_UNK, WORDS, "a", Decoding(strategy=strategy))  # type: ignore[arg-type]
    assert (generation.text, generation.tokens, generation.finish_reason) == ("", ["</s>"], "stop")
    assert generation.log_prob == -np.inf  # the model gives `</s>` probability 0 there
    assert "".join(stream(ONLY_UNK, WORDS, "a", Decoding(strategy=strategy))) == ""  # type: ignore[arg-type]


def test_next_tokens_include_unk() -> None:
    expected = {"<unk>": 0.5, "b": 0.3, "</s>": 0.2}
    assert dict(next_tokens(MODEL, WORDS, "a", 3)) == pytest.approx(expected)


def test_speller_writes_unknown_words() -> None:
    settings = Decoding(unk="spell", max_tokens=3)
    spellings = spelled("zebra", "yak", "gnu")
    (generation,) = generate(ONLY_UNK, WORDS, "a", settings, spell=lambda rng: next(spellings))
    assert generation.text == " zebra yak gnu"
    assert generation.ids == [2, 2, 2]
    assert generation.tokens == ["<unk>"] * 3
    assert generation.log_prob == 0  # of the tokens, without the spelling
    spellings = spelled("zebra", "yak", "gnu")
    assert list(stream(ONLY_UNK, WORDS, "a", settings, spell=lambda rng: next(spellings))) == [
        " zebra",
        " yak",
        " gnu",
    ]


def test_spelling_can_complete_a_stop_string() -> None:
    spellings = spelled("zebra", "yak", "gnu")
    settings = Decoding(unk="spell", max_tokens=3, stop=("ak",))
    (generation,) = generate(ONLY_UNK, WORDS, "", settings, spell=lambda rng: next(spellings))
    assert (generation.text, generation.finish_reason) == ("zebra y", "stop")


@pytest.mark.parametrize("stop", ["<", "unk", "k> "])
def test_name_of_unk_never_matches_a_stop_string_when_spelled(stop: str) -> None:
    settings = Decoding(unk="spell", max_tokens=3, stop=(stop,))
    spellings = spelled("zebra", "yak", "gnu")
    (generation,) = generate(ONLY_UNK, WORDS, "x a", settings, spell=lambda rng: next(spellings))
    assert (generation.text, generation.finish_reason) == (" zebra yak gnu", "length")
    spellings = spelled("zebra", "yak", "gnu")
    assert "".join(stream(ONLY_UNK, WORDS, "x a", settings, spell=lambda rng: next(spellings))) == " zebra yak gnu"


def test_spelling_keeps_the_tokens_and_depends_on_the_seed() -> None:
    def text(unk: str, num: int = 20) -> list[str]:
        settings = Decoding(unk=unk, seed=3)  # type: ignore[arg-type]
        generations = generate(MODEL, WORDS, "", settings, num=num, spell=lambda rng: f"w{rng.integers(1000)}")
        return [generation.text for generation in generations]

    assert text("spell") == text("spell")
    assert text("spell", 5) == text("spell")[:5]
    assert ["<unk>" in with_unk for with_unk in text("keep")] == ["w" in written for written in text("spell")]
    assert len({written for written in text("spell") if "w" in written}) > 1


def test_word_containing_the_name_of_unk_is_kept() -> None:
    words = Words("a", "<unk>s")
    assert Continuation(words, "").decode([4, 2, 4], lambda: "zebra") == ("<unk>s zebra <unk>s", False)


def test_spelling_without_a_speller_is_rejected() -> None:
    with pytest.raises(ConfigError, match="no speller; choose exclude or keep"):
        generate(MODEL, WORDS, "", Decoding(unk="spell"))
    with pytest.raises(ConfigError, match="unk is 'drop'; choose one of exclude, spell, keep"):
        Decoding(unk="drop")  # type: ignore[arg-type]
