"""Vocabularies in the extension: `tokenizer.json`, and counting words in bounded memory."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models

from chainrule import system
from chainrule.errors import ChainruleError, InputError, ModelFileError
from chainrule.text.compiled_reader import open_reader
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.components import make_backend
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer, VocabularyWords, WordTokenizer
from chainrule.tokenizers.train import from_words, train

pytestmark = pytest.mark.native

WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n"), min_size=1, max_size=12)
CONFIGS = [
    TokenizerConfig(),
    TokenizerConfig(kind="whitespace"),
    TokenizerConfig(kind="whitespace", lowercase=True, locale="tr"),
    TokenizerConfig(unk='"vocab":{}\\'),
]


def library_json(words: list[str], config: TokenizerConfig) -> str:
    """`tokenizer.json` as the `tokenizers` library writes it."""
    vocabulary = {name: i for i, name in enumerate([config.unk, *words])}
    backend = make_backend(config, models.WordLevel(vocabulary, unk_token=config.unk))
    return Tokenizer.with_control_symbols(backend, config).backend.to_str(pretty=True)


@given(
    words=st.lists(WORD | st.sampled_from(['"', "\\", "\x00", "\x1f", "\x7f", "\u2028", "é", "😀"]), unique=True),
    config=st.sampled_from(CONFIGS),
)
def test_tokenizer_json_has_the_bytes_of_the_library(words: list[str], config: TokenizerConfig) -> None:
    words = [word for word in words if word not in (config.unk, "<s>", "</s>")]
    tokenizer = from_words(words, config)
    content = library_json(words, config)
    assert tokenizer.to_json() == content
    loaded = WordTokenizer.read(content.encode(), config)
    assert loaded is not None
    assert loaded.names() == [config.unk, *words, "<s>", "</s>"]
    assert [loaded.token_id(word) for word in words] == list(range(1, len(words) + 1))
    assert loaded.token_id("<s>") is None


@given(data=st.data())
def test_reading_a_changed_tokenizer_json_equals_the_general_parser(data: st.DataObject) -> None:
    """A changed byte gives another vocabulary, or an error: the same as the JSON parser and all checks."""
    config = TokenizerConfig(kind="whitespace")
    content = bytearray(library_json(["the", "cat", '"', "é"], config).encode())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    loaded = WordTokenizer.read(bytes(content), config)
    if loaded is None:
        return
    expected = json.loads(content.decode())["model"]["vocab"]
    assert loaded.vocab == expected
    assert Tokenizer.from_json(bytes(content), config).vocab == expected


def test_reordered_tokenizer_json_is_read() -> None:
    config = TokenizerConfig(kind="whitespace")
    content = json.loads(library_json(["the", "cat"], config))
    content["model"]["vocab"] = {"cat": 2, "<unk>": 0, "the": 1}
    tokenizer = Tokenizer.from_json(json.dumps(content), config)
    assert tokenizer.names() == ["<unk>", "the", "cat", "<s>", "</s>"]
    assert tokenizer.encode("cat the dog").tolist() == [2, 1, 0]


@pytest.mark.parametrize("entries", [b'      "a": 0,\n', b'      "a": 1\n', b'      "a": 0\n      "b": 1\n', b""])
def test_incomplete_entries_are_not_read(entries: bytes) -> None:
    assert system.load_extension().WordVocabulary.from_json(entries, 0, len(entries), ["<s>"]) is None


def test_repeated_word_is_rejected() -> None:
    with pytest.raises(ChainruleError, match="'a' occurs twice in the vocabulary"):
        from_words(["a", "b", "a"], TokenizerConfig())
    config = TokenizerConfig(kind="whitespace")
    content = library_json(["a", "b"], config).replace('"b": 2', '"a": 2')
    with pytest.raises(ModelFileError):
        Tokenizer.from_json(content, config)


def test_whitespace_encoding_equals_the_library() -> None:
    lines = ["the  cat\tsat ", "İstanbul IŞIK\u0307 the", "", "<s> the </s> <unk>"]
    for config in CONFIGS[1:3]:
        tokenizer = train(Corpus.from_lines(lines), config)
        for line in lines:
            expected = tokenizer.backend.encode(line, add_special_tokens=False)
            actual = tokenizer.encoding(line)
            assert (actual.ids, actual.offsets) == (expected.ids, expected.offsets)
            assert tokenizer.decode(actual.ids) == tokenizer.backend.decode(expected.ids)
        with pytest.raises(InputError, match="is not UTF-8"):
            tokenizer.encode("\udc80")


def test_word_tokenizer_is_pickled() -> None:
    tokenizer = from_words(["a", "b"], TokenizerConfig())
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.to_json() == tokenizer.to_json()


def test_vocabulary_words_are_read_from_the_table() -> None:
    tokenizer = from_words(["a", "b"], TokenizerConfig())
    words = tokenizer.vocabulary_words()
    assert isinstance(words, VocabularyWords)
    assert (list(words), len(words), "a" in words, "<unk>" in words) == (["a", "b"], 2, True, False)


LONG = st.tuples(st.sampled_from("abcdé"), st.integers(1, 3000)).map(lambda pair: pair[0] * pair[1])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    words=st.lists(LONG | st.sampled_from(["a", "of", "<unk>"]), max_size=300),
    repeats=st.integers(1, 3),
    threads=st.integers(1, 4),
)
def test_counts_from_a_file_equal_counts_in_memory(
    tmp_path: Path, words: list[str], repeats: int, threads: int
) -> None:
    """The smallest tables hold 147 kB of letters, so that many long words are written to the file."""
    core: Any = system.load_extension()
    text = tmp_path / "text"
    text.write_text("a\n" + "".join(f"{word}\n" for word in words * repeats), encoding="utf-8")
    expected = Counter(["a", *words * repeats])
    del expected["<unk>"]
    order = sorted(expected, key=lambda word: (-expected[word], word))

    def read_text() -> Any:
        reader = open_reader(Corpus.of(text))
        assert reader is not None
        return reader.text

    limited = core.VocabularyCounter(1, str(tmp_path))
    for word in ["a", *words * repeats]:
        limited.add(word)
    for counted in (
        core.count_plain_words(read_text(), threads, None, ["<unk>"]),
        core.count_plain_words(read_text(), threads, None, ["<unk>"], 1, str(tmp_path)),
        limited.finish(["<unk>"]),
    ):
        assert list(counted.counts().items()) == [(word, expected[word]) for word in order]
        assert (counted.types, counted.occurrences) == (len(expected), expected.total())
        assert counted.excluded_count(0) == repeats * words.count("<unk>")
        assert counted.types_from(2) == sum(count >= 2 for count in expected.values())
        some = len(order) // 2
        assert list(counted.select(some, ["<unk>"], ["<s>"])) == ["<unk>", *order[:some], "<s>"]
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_many_short_words_are_counted_in_a_file(tmp_path: Path) -> None:
    core: Any = system.load_extension()
    numbers = np.random.default_rng(1).zipf(1.2, 200_000) % 60_000
    counter = core.VocabularyCounter(1, str(tmp_path))  # tables of 12,287 words
    counter.add(" ".join(map(str, numbers.tolist())))
    assert counter.finish([]).counts() == Counter(map(str, numbers.tolist()))


def test_spill_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    counter = system.load_extension().VocabularyCounter(1, str(tmp_path / "nowhere"))
    with pytest.raises(ChainruleError, match="nowhere cannot be written to"):
        counter.add(" ".join(map(str, range(50_000))))
