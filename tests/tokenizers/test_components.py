"""Allow-list of `tokenizer.json` components: the files of chainrule and listed components are loaded, no others."""

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers

from chainrule.errors import ModelFileError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import components
from chainrule.tokenizers.config import KINDS, Kind, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer, byte_alphabet
from chainrule.tokenizers.train import train

LINES = ["the cat sat, on the mat.", "a dog ran to Häuser <unk> x"] * 5
SIZES = {"bpe": 300, "wordpiece": 600, "unigram": 300}


@cache
def trained(kind: Kind, lowercase: bool = False) -> Tokenizer:
    config = TokenizerConfig(kind=kind, lowercase=lowercase, vocab_size=SIZES.get(kind))
    return train(Corpus.from_lines(LINES), config)


def document(kind: Kind) -> Any:
    return json.loads(trained(kind).to_json())


def error_message(kind: Kind, content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ModelFileError) as caught:
        Tokenizer.from_json(text, trained(kind).config)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_round_trips(kind: Kind, lowercase: bool) -> None:
    tokenizer = trained(kind, lowercase)
    loaded = Tokenizer.from_json(tokenizer.to_json().encode(), tokenizer.config)
    text = "the cat sat on Häuser 1 \U0001f600"
    assert loaded.encode(text).tolist() == tokenizer.encode(text).tolist()
    assert loaded.names() == tokenizer.names()


def test_custom_unknown_word_round_trips() -> None:
    tokenizer = train(Corpus.from_lines(LINES), TokenizerConfig(unk="UNK", min_count=6))
    assert Tokenizer.from_json(tokenizer.to_json(), tokenizer.config).encode("cat").tolist() == [tokenizer.unk]


GPT2: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 256,
            "special": True,
            "content": "<|endoftext|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
    "model": {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": {**byte_alphabet(), "<|endoftext|>": 256, "th": 257},
        "merges": ["t h"],
    },
}
NEOX = {**GPT2, "normalizer": {"type": "NFC"}, "model": {**GPT2["model"], "type": "BPE"}}
BERT = {
    **GPT2,
    "added_tokens": [{**GPT2["added_tokens"][0], "id": 1, "content": "[CLS]"}],
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}},
    },
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "[CLS]": 1, "a": 2, "##b": 3},
    },
}


@pytest.mark.parametrize("content", [GPT2, NEOX, BERT], ids=["GPT-2", "GPT-NeoX", "BERT"])
def test_components_of_well_known_tokenizers_are_allowed(content: Any) -> None:
    """Checks the published files as they are; the tokenizers library reads them too."""
    text = json.dumps(content)
    assert components.check(text) == content
    assert tokenizers.Tokenizer.from_str(text).get_vocab_size() == len(content["model"]["vocab"])


def set_value(*keys: Any, value: Any) -> Callable[[Any], None]:
    def edit(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return edit


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
EDITS: list[tuple[Kind, Callable[[Any], object], str]] = [
    (
        "bpe",
        set_value("truncation", value={"max_length": 2, "strategy": "LongestFirst", "stride": 0}),
        "truncation",
    ),
    ("bpe", set_value("padding", value={"strategy": {"Fixed": 10**9}}), "padding"),
    (
        "bpe",
        set_value("normalizer", value={"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 99}),
        "Replace with pattern",
    ),
    (
        "bpe",
        set_value("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "'Precompiled'",
    ),
    (
        "bpe",
        set_value("normalizer", value={"type": "NFKD"}),
        "'NFKD', which chainrule does not load; allowed: Lowercase",
    ),
    ("bpe", set_value("normalizer", value={"type": "NFC"}), "another normalizer"),
    ("bpe", set_value("normalizer", value={"type": "Lowercase"}), "another normalizer"),
    ("bpe", set_value("normalizer", value="Lowercase"), "normalizer 'Lowercase'"),
    ("bpe", set_value("normalizer", value={"type": ["Lowercase"]}), "does not load"),
    ("bpe", set_value("normalizer", value={"type": "Sequence", "normalizers": [{"type": "Prepend"}]}), "'Prepend'"),
    ("bpe", set_value("normalizer", value={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}), "Sequence"),
    ("bpe", set_value("normalizer", value={"type": "Lowercase", "more": 1}), "more 1"),
    ("word", set_value("pre_tokenizer", "pattern", value={"Regex": "(a+)+$"}), "does not load"),
    ("word", set_value("pre_tokenizer", "pattern", value={"Regex": "[\\s\\S]"}), "another pre_tokenizer"),
    ("word", set_value("pre_tokenizer", "pattern", value={"String": " "}), "does not load"),
    ("word", set_value("pre_tokenizer", "invert", value=True), "invert true"),
    ("word", set_value("pre_tokenizer", "behavior", value="MergedWithNext"), "behavior"),
    ("word", set_value("pre_tokenizer", value={"type": "Whitespace"}), "'Whitespace'"),
    ("word", set_value("pre_tokenizer", value=None), "another pre_tokenizer"),
    ("bpe", set_value("post_processor", value={"type": "RobertaProcessing"}), "'RobertaProcessing'"),
    (
        "bpe",
        set_value("post_processor", value={"type": "ByteLevel", "add_prefix_space": True}),
        "another post_processor",
    ),
    ("bpe", set_value("decoder", value={"type": "Metaspace"}), "'Metaspace'"),
    ("wordpiece", set_value("decoder", "decoders", 1, "content", value="x" * 10**6), "does not load"),
    ("wordpiece", set_value("model", "max_input_chars_per_word", value=10**9), "max_input_chars_per_word"),
    ("wordpiece", set_value("model", "continuing_subword_prefix", value=""), "continuing_subword_prefix"),
    ("wordpiece", set_value("model", "unk_token", value="nothing"), "no 'nothing'"),
    ("bpe", set_value("model", "dropout", value=0.5), "dropout 0.5"),
    ("bpe", set_value("model", "byte_fallback", value=True), "byte_fallback"),
    ("bpe", set_value("model", "fuse_unk", value=True), "fuse_unk"),
    ("bpe", set_value("model", "ignore_merges", value=True), "ignore_merges"),
    ("bpe", set_value("model", "end_of_word_suffix", value="</w>"), "end_of_word_suffix"),
    ("bpe", set_value("model", "unk_token", value="a"), "unknown words"),
    ("bpe", set_value("model", "merges", 0, value=["no", "such"]), "not symbols of its vocabulary"),
    ("bpe", set_value("model", "merges", 0, value=["a", 1]), "not symbols of its vocabulary"),
    ("bpe", lambda c: c["model"]["merges"].append(c["model"]["merges"][0]), "same merge twice"),
    ("bpe", set_value("model", "merges", value={}), "not a list"),
    ("bpe", set_value("model", "vocab", "a", value=0), "one id to two symbols"),
    ("bpe", set_value("model", "vocab", "a", value=10**6), "but only"),
    ("bpe", set_value("model", "vocab", "a", value=-1), "whole numbers"),
    ("bpe", set_value("model", "vocab", "a", value=True), "whole numbers"),
    ("bpe", set_value("model", "vocab", "a", value=10**30), "whole numbers"),
    ("bpe", set_value("model", "vocab", value=[]), "whole numbers"),
    ("bpe", set_value("model", "type", value="WordLevel"), "does not load"),
    ("byte", set_value("model", "merges", value=["a b"]), "not symbols"),
    ("byte", lambda c: c["model"]["vocab"].update({"€": c["model"]["vocab"].pop("a")}), "no symbol 'a'"),
    ("word", set_value("model", "vocab", "cat", value="1"), "whole numbers"),
    ("word", set_value("model", "unk_token", value="the"), "for unknown words"),
    ("word", set_value("model", "unk_token", value=None), "unk_token null"),
    ("char", lambda c: c["model"]["vocab"].update(ab=len(c["model"]["vocab"])), "follow"),
    ("unigram", set_value("model", "vocab", 0, value=["a", float("inf")]), "is not JSON"),
    ("unigram", set_value("model", "vocab", 0, value=["a", 1e300]), "symbol and its score"),
    ("unigram", set_value("model", "vocab", 0, value=["a"]), "symbol and its score"),
    ("unigram", lambda c: c["model"]["vocab"].append(c["model"]["vocab"][0]), "symbol and its score"),
    ("unigram", set_value("model", "unk_id", value=10**6), "unk_id 1000000"),
    ("unigram", set_value("model", "unk_id", value=0), "unknown words"),
    ("word", set_value("added_tokens", 0, "id", value=0), "ids do not follow"),
    ("word", set_value("added_tokens", 0, "id", value=99), "ids do not follow"),
    ("word", set_value("added_tokens", 0, "content", value="cat"), "two ids"),
    ("word", set_value("added_tokens", 0, "content", value=7), "content 7"),
    ("word", set_value("added_tokens", 0, "lstrip", value=True), "lstrip true"),
    ("word", set_value("added_tokens", 0, "special", value=False), "no other symbol"),
    ("word", set_value("added_tokens", value=[]), "no other symbol"),
    ("word", set_value("added_tokens", value=None), "no list of added tokens"),
    (
        "word",
        lambda c: c["added_tokens"].append({"id": c["added_tokens"][1]["id"] + 1, "content": "x y", **ADDED}),
        "no other",
    ),
    ("word", set_value("version", value="2.0"), "version"),
    ("word", set_value("plugins", value=["x"]), "field 'plugins'"),
    ("word", set_value("model", value=None), "no model"),
]


@pytest.mark.parametrize("place", range(len(EDITS)))
def test_components_outside_the_allow_list_are_rejected(place: int) -> None:
    kind, edit, message = EDITS[place]
    content = copy.deepcopy(document(kind))
    edit(content)
    assert message in error_message(kind, content)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"model": {"vocab": {"a": 0, "a": 1}}}', "[" * 100_000, '{"model": NaN}']
)
def test_invalid_tokenizer_json_is_rejected(text: str) -> None:
    assert "is not a tokenizer" in error_message("word", text)


def test_invalid_utf8_in_tokenizer_json_is_rejected() -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is not UTF-8"):
        Tokenizer.from_json(b"\xff", TokenizerConfig())


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_of_another_kind_is_rejected(kind: Kind) -> None:
    for other_kind in KINDS:
        if other_kind != kind:
            error_message(kind, document(other_kind))


class Panicking:
    """A backend whose every method triggers a real panic of the tokenizers library."""

    normalizer = None

    def __getattr__(self, name: str) -> Any:
        def panic(*_: object, **__: object) -> Any:
            normalizers.Precompiled(b"\x04\x00\x00\x00" + b"\xff" * 4 + b"abc\0").normalize_str("a")
            raise AssertionError("the library did not panic")

        return panic


def test_rust_panic_becomes_a_chainrule_error() -> None:
    tokenizer = trained("bpe")
    broken = Tokenizer(Panicking(), tokenizer.config)  # type: ignore[arg-type]
    for action in (
        lambda: broken.encode("a"),
        lambda: broken.encodings(["a"]),
        lambda: broken.decode([1]),
        lambda: encode(Corpus.from_lines(["a"]), broken),
        lambda: broken.names(),
        lambda: broken.bos,
    ):
        with pytest.raises(ModelFileError, match="the tokenizers library failed: index out of bounds"):
            action()
