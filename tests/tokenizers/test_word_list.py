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


def listed(folder: Path, content: str | bytes, **settings: object) -> Tokenizer:
    path = folder / "words.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return train(Corpus(), TokenizerConfig(vocab=str(path), **settings))  # type: ignore[arg-type]


def names(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.tokens(range(tokenizer.vocab_size))


def test_the_words_of_the_file_in_its_order_and_no_others(tmp_path: Path, toy: Path) -> None:
    made = listed(tmp_path, "dogs\nzebra\ncats\n")
    assert names(made) == ["<unk>", "dogs", "zebra", "cats", "<s>", "</s>"]
    assert made.encode("cats chase zebra").tolist() == [3, 0, 2]
    config = TokenizerConfig(vocab=str(tmp_path / "words.txt"))
    assert names(prepare_corpus(Corpus.of(toy), config).tokenizer) == names(made)


def test_what_is_passed_over(tmp_path: Path) -> None:
    text = "\ufeff\r\nb\r\n\t \r\n a\t\r\nb\r\n<s>\r\n</s>\r\n<unk>\r\nUNK\r\na"
    assert names(listed(tmp_path, text, unk="UNK")) == ["UNK", "b", "a", "<s>", "</s>"]


def test_blanks_are_space_and_tab_alone(tmp_path: Path) -> None:
    assert names(listed(tmp_path, "New\u00a0York\n")) == ["<unk>", "New\u00a0York", "<s>", "</s>"]
    with pytest.raises(InputError, match=r"words\.txt, line 2: 'New York' is 2 words"):
        listed(tmp_path, "a\nNew York\n")


@pytest.mark.parametrize("content", ["", "\n \n", "<s>\n</s>\n<unk>\n"])
def test_an_empty_list(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"words\.txt holds no words; give a file with one word a line"):
        listed(tmp_path, content)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        train(Corpus(), TokenizerConfig(vocab=str(tmp_path / "nowhere.txt")))
    with pytest.raises(InputError, match=r"words\.txt.*UTF-8"):
        listed(tmp_path, b"a\n\xff\n")
    for name in ("a", "b"):
        (tmp_path / "many").mkdir(exist_ok=True)
        (tmp_path / "many" / name).write_text("word\n")
    with pytest.raises(InputError, match="holds 2 files; give one"):
        train(Corpus(), TokenizerConfig(vocab=str(tmp_path / "many")))


def test_settings_that_contradict_it(tmp_path: Path) -> None:
    for cut in ({"vocab_size": 5}, {"min_count": 2}, {"top_percent": 50.0}):
        with pytest.raises(ConfigError, match="vocab fixes the vocabulary"):
            TokenizerConfig(vocab="words.txt", **cut)
    with pytest.raises(ConfigError, match="a bpe tokenizer has no words"):
        TokenizerConfig(vocab="words.txt", kind="bpe")


def test_lower_case(tmp_path: Path) -> None:
    made = listed(tmp_path, "The\nthe\nCat\n", lowercase=True)
    assert names(made) == ["<unk>", "the", "cat", "<s>", "</s>"]
    assert made.encode("THE CAT").tolist() == [1, 2]


def test_the_words_are_saved_and_only_the_name_of_the_file(tmp_path: Path) -> None:
    made = listed(tmp_path, "b\na\n")
    save_tokenizer(made, tmp_path / "kept", Origin())
    (tmp_path / "words.txt").unlink()
    loaded = load_tokenizer(tmp_path / "kept")
    assert names(loaded) == names(made)
    assert loaded.config.vocab == "words.txt"


def test_words_never_seen_keep_a_place(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "words.txt").write_text("i\nlove\nzebras\n")
    with pytest.warns(ChainruleWarning, match="default discounts 0.5"):
        model = api.train("ngram", toy, order=2, vocab=str(tmp_path / "words.txt"))
    found = model.evaluate(Corpus.from_lines(["i love zebras"]))
    assert found.oov == 0
    assert 1 < found.perplexity < float("inf")
    # "cats", "dogs", "chase", "mice": five of the nine words of the text are not in the list.
    assert model.metrics["train_oov"] == 5


def test_a_closed_vocabulary_must_hold_the_text(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "words.txt").write_text("i\nlove\n")
    with pytest.raises(ConfigError, match="does not know 'cats'"):
        api.train("ngram", toy, vocab=str(tmp_path / "words.txt"), closed=True)
    (tmp_path / "words.txt").write_text("mice\nchase\ndogs\ncats\ni\nlove\n")
    model = api.train("ngram", toy, order=2, smoothing="laplace", vocab=str(tmp_path / "words.txt"), closed=True)
    assert model.score("i love zebras").log_prob == float("-inf")
