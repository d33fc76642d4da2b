from pathlib import Path

import pytest

from chainrule import api
from chainrule.errors import ChainruleWarning, ConfigError, InputError, NotFoundError
from chainrule.prepared_corpus import prepare_corpus
from chainrule.storage.provenance import Origin
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from chainrule.tokenizers.train import train


def tokenizer_from_list(folder: Path, content: str | bytes, **settings: object) -> Tokenizer:
    path = folder / "words.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return train(Corpus(), TokenizerConfig(vocab=str(path), **settings))  # type: ignore[arg-type]


def names(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.tokens(range(tokenizer.vocab_size))


def test_word_list_fixes_the_vocabulary_and_its_order(tmp_path: Path, toy: Path) -> None:
    tokenizer = tokenizer_from_list(tmp_path, "dogs\nzebra\ncats\n")
    assert names(tokenizer) == ["<unk>", "dogs", "zebra", "cats", "<s>", "</s>"]
    assert tokenizer.encode("cats chase zebra").tolist() == [3, 0, 2]
    config = TokenizerConfig(vocab=str(tmp_path / "words.txt"))
    assert names(prepare_corpus(Corpus.of(toy), config).tokenizer) == names(tokenizer)


def test_word_list_skips_blanks_duplicates_and_control_symbols(tmp_path: Path) -> None:
    text = "\ufeff\r\nb\r\n\t \r\n a\t\r\nb\r\n<s>\r\n</s>\r\n<unk>\r\nUNK\r\na"
    assert names(tokenizer_from_list(tmp_path, text, unk="UNK")) == ["UNK", "b", "a", "<s>", "</s>"]


def test_word_list_strips_spaces_and_tabs_only(tmp_path: Path) -> None:
    assert names(tokenizer_from_list(tmp_path, "New\u00a0York\n")) == ["<unk>", "New\u00a0York", "<s>", "</s>"]
    with pytest.raises(InputError, match=r"words\.txt, line 2: 'New York' is 2 words"):
        tokenizer_from_list(tmp_path, "a\nNew York\n")


@pytest.mark.parametrize("content", ["", "\n \n", "<s>\n</s>\n<unk>\n"])
def test_empty_word_list_is_rejected(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"words\.txt contains no words; give a file with one word per line"):
        tokenizer_from_list(tmp_path, content)


def test_unreadable_word_list_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        train(Corpus(), TokenizerConfig(vocab=str(tmp_path / "nowhere.txt")))
    with pytest.raises(InputError, match=r"words\.txt.*UTF-8"):
        tokenizer_from_list(tmp_path, b"a\n\xff\n")
    for name in ("a", "b"):
        (tmp_path / "many").mkdir(exist_ok=True)
        (tmp_path / "many" / name).write_text("word\n")
    with pytest.raises(InputError, match="contains 2 files; give one"):
        train(Corpus(), TokenizerConfig(vocab=str(tmp_path / "many")))


def test_settings_that_contradict_a_word_list_are_rejected(tmp_path: Path) -> None:
    for cut in ({"vocab_size": 5}, {"min_count": 2}, {"top_percent": 50.0}):
        with pytest.raises(ConfigError, match="vocab fixes the vocabulary"):
            TokenizerConfig(vocab="words.txt", **cut)
    with pytest.raises(ConfigError, match="a bpe tokenizer has no words"):
        TokenizerConfig(vocab="words.txt", kind="bpe")


def test_lowercase_applies_to_a_word_list(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_list(tmp_path, "The\nthe\nCat\n", lowercase=True)
    assert names(tokenizer) == ["<unk>", "the", "cat", "<s>", "</s>"]
    assert tokenizer.encode("THE CAT").tolist() == [1, 2]


def test_saved_tokenizer_contains_the_words_of_the_list(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_list(tmp_path, "b\na\n")
    save_tokenizer(tokenizer, tmp_path / "kept", Origin())
    (tmp_path / "words.txt").unlink()
    loaded = load_tokenizer(tmp_path / "kept")
    assert names(loaded) == names(tokenizer)
    assert loaded.config.vocab == "words.txt"


def test_words_of_the_list_missing_from_the_text_are_known(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "words.txt").write_text("i\nlove\nzebras\n")
    with pytest.warns(ChainruleWarning, match="default discounts 0.5"):
        model = api.train("ngram", toy, order=2, vocab=str(tmp_path / "words.txt"))
    evaluation = model.evaluate(Corpus.from_lines(["i love zebras"]))
    assert evaluation.oov == 0
    assert 1 < evaluation.perplexity < float("inf")
    # "cats", "dogs", "chase", "mice": five of the text's nine words are not in the list.
    assert model.metrics["train_oov"] == 5


def test_closed_vocabulary_must_contain_the_text(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "words.txt").write_text("i\nlove\n")
    with pytest.raises(ConfigError, match="does not know 'cats'"):
        api.train("ngram", toy, vocab=str(tmp_path / "words.txt"), closed=True)
    (tmp_path / "words.txt").write_text("mice\nchase\ndogs\ncats\ni\nlove\n")
    model = api.train("ngram", toy, order=2, smoothing="laplace", vocab=str(tmp_path / "words.txt"), closed=True)
    assert model.score("i love zebras").log_prob == float("-inf")
