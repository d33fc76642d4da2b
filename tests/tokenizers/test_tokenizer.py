import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import ConfigError, InputError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.config import KINDS, Kind, TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer, split_words
from chainrule.tokenizers.train import from_words, train

LINES = [
    "the cat sat on the mat",
    "the dog <unk> the cat",
    "a naïve café — 日本 <s> </s>",
    "tab\tand  two blanks",
    "don't stop-me now!",
]
ALL = [
    TokenizerConfig(kind=kind, vocab_size=600 if kind in ("bpe", "wordpiece", "unigram") else None)
    for kind in KINDS
]
TRAINED = {config.kind: train(Corpus.from_lines(LINES), config) for config in ALL}
LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(line=LINE)
def test_decode_inverts_encode(kind: str, line: str) -> None:
    tokenizer = TRAINED[kind]  # type: ignore[index]
    ids = tokenizer.encode(line)
    assert tokenizer.bos not in ids
    assert tokenizer.eos not in ids
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    if tokenizer.unk is None or tokenizer.unk not in ids:
        assert tokenizer.decode(ids.tolist()) == tokenizer.canonicalize(line)
    assert len(tokenizer.tokens(ids.tolist())) == len(ids)


@pytest.mark.parametrize("kind", ["byte", "bpe", "unigram"])
def test_byte_level_tokenizers_have_no_unknown_token(kind: str) -> None:
    tokenizer = TRAINED[kind]  # type: ignore[index]
    assert tokenizer.unk is None
    text = "\x00\x01 \u2028\u0085\x0b\x0c 🙂 \uffff é e\u0301"
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text


@given(text=st.text(st.sampled_from("ab \t\u00a0\u0085\u2028\x0b\x0c\x1c\x1f\u3000"), max_size=20))
def test_split_words_splits_at_ascii_spaces_and_tabs_only(text: str) -> None:
    by_hand: list[str] = [""]
    for character in text:
        if character in " \t":
            by_hand.append("")
        else:
            by_hand[-1] += character
    words = [w for w in by_hand if w]
    assert split_words(text) == words
    if not words:
        return
    tokenizer = from_words(sorted(set(words)), TokenizerConfig(kind="whitespace"))
    assert tokenizer.tokens(tokenizer.encode(text).tolist()) == words


@pytest.mark.parametrize("kind", KINDS)
def test_control_symbols_in_text_are_encoded_as_text(kind: str) -> None:
    tokenizer = TRAINED[kind]  # type: ignore[index]
    again = Tokenizer.from_json(tokenizer.to_json(), tokenizer.config)
    for candidate in (tokenizer, again):
        for text in ("<s>", "</s>", "a <s> b</s>", "<s></s><s>"):
            ids = candidate.encode(text)
            assert candidate.bos not in ids
            assert candidate.eos not in ids
            assert len(ids) > 0
    assert again.encode("the cat <s>").tolist() == tokenizer.encode("the cat <s>").tolist()


def test_control_symbols_in_a_corpus_are_unknown_words() -> None:
    tokenizer = TRAINED["whitespace"]
    assert tokenizer.encode("<s>").tolist() == [tokenizer.unk]
    assert tokenizer.tokens([tokenizer.bos, tokenizer.eos]) == ["<s>", "</s>"]


def test_unknown_word_symbol_in_a_corpus_is_the_unknown_token() -> None:
    assert TRAINED["word"].encode("<unk> zebra").tolist() == [0, 0]
    named = train(Corpus.from_lines(["UNK a", "UNK b"]), TokenizerConfig(unk="UNK"))
    assert named.encode("UNK zebra <unk>").tolist() == [0, 0, 0]
    assert named.tokens([0]) == ["UNK"]


def test_vocabulary_cut_offs_worked_by_hand() -> None:
    lines = ["a a a a b b b c c d"]  # a 4, b 3, c 2, d 1

    def vocabulary(**cut: float) -> str:
        tokenizer = train(Corpus.from_lines(lines), TokenizerConfig(**cut))  # type: ignore[arg-type]
        return "".join(tokenizer.tokens(range(1, tokenizer.vocab_size - 2)))

    assert vocabulary() == "abcd"
    assert vocabulary(min_count=2) == "abc"
    assert vocabulary(vocab_size=2) == "ab"
    assert vocabulary(top_percent=50) == "ab"
    assert vocabulary(min_count=2, vocab_size=1) == "a"
    assert (
        vocabulary(min_count=2, top_percent=50) == "ab"
    )  # percent of all four types, not of the three above min_count
    assert vocabulary(top_percent=1) == "a"  # at least one


def test_vocab_size_breaks_ties_in_code_point_order() -> None:
    tokenizer = train(Corpus.from_lines(["z y x w"]), TokenizerConfig(vocab_size=2))
    assert tokenizer.tokens(range(tokenizer.vocab_size)) == ["<unk>", "w", "x", "<s>", "</s>"]


def test_lower_casing_is_stored_in_the_json() -> None:
    tokenizer = train(Corpus.from_lines(["The CAT the"]), TokenizerConfig(lowercase=True))
    again = Tokenizer.from_json(tokenizer.to_json(), tokenizer.config)
    assert again.tokens(again.encode("THE Cat").tolist()) == ["the", "cat"]
    assert again.canonicalize("THE  Cat") == "the cat"


def test_tokenizer_json_adds_only_the_control_symbols() -> None:
    for tokenizer in TRAINED.values():
        document = json.loads(tokenizer.to_json())
        assert {token["content"] for token in document["added_tokens"]} == {"<s>", "</s>"}


def test_wordpiece_maps_only_very_long_words_to_unknown() -> None:
    tokenizer = TRAINED["wordpiece"]
    assert tokenizer.unk not in tokenizer.encode("🙂 zebra ÿ" + "x" * 150)
    assert tokenizer.encode("a " + "x" * 300).tolist()[-1] == tokenizer.unk


@pytest.mark.parametrize("kind", ["word", "whitespace"])
def test_vocabulary_is_sorted_by_frequency(kind: Kind) -> None:
    tokenizer = TRAINED[kind]
    split = {"word": lambda line: split_words(punctuation.split(line, "<unk>")), "whitespace": split_words}[kind]
    counts = Counter(w for line in LINES for w in split(line))
    names = tokenizer.tokens(range(1, tokenizer.vocab_size - 2))
    assert names == sorted(names, key=lambda w: (-counts[w], w))
    assert set(names) == set(counts) - {"<unk>", "<s>", "</s>"}


def test_invalid_tokenizer_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match="min-count is 0"):
        TokenizerConfig(min_count=0)
    with pytest.raises(ConfigError, match="allows no words outside"):
        TokenizerConfig(closed=True, min_count=2)
    with pytest.raises(ConfigError, match="unk is 'two words'"):
        TokenizerConfig(unk="two words")
    with pytest.raises(ConfigError, match="256 symbols"):
        train(Corpus.from_lines(LINES), TokenizerConfig(kind="bpe", vocab_size=100))
    with pytest.raises(ConfigError, match="contains '<unk>'"):
        train(Corpus.from_lines(LINES), TokenizerConfig(closed=True))
    with pytest.raises(InputError, match="no words"):
        train(Corpus.from_lines(["", "  "]), TokenizerConfig())
