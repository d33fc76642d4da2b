"""Id shards and tokenizers made on engines, compared with those made in one process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule.applications.encode import encode_corpus, train_tokenizer_on
from chainrule.data.id_shards import open_shards
from chainrule.distributed.options import EngineOptions
from chainrule.errors import ConfigError, InputError, ModelFileError, UsageError
from chainrule.prepared_corpus import MemoryLimit, prepare_corpus
from chainrule.storage import verified_dir
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import load_tokenizer
from chainrule.tokenizers.train import train
from cli.command import english

pytestmark = pytest.mark.native
WORKERS = EngineOptions(workers=2, partition="1k")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(english(80) + "\n  Ünknown, wörds:\tİ!\n" + "ab " * 25_000 + " y\n\n“end”")
    return path


@pytest.mark.parametrize(
    "config",
    [
        TokenizerConfig(kind="word", min_count=2),
        TokenizerConfig(kind="word", vocab_size=9, lowercase=True),
        TokenizerConfig(kind="whitespace", top_percent=50),
        TokenizerConfig(kind="char", min_count=2),
        TokenizerConfig(kind="bpe", vocab_size=300),
    ],
    ids=lambda config: f"{config.kind}{'-lowercase' if config.lowercase else ''}",
)
def test_shards_hold_the_ids_of_the_text(text: Path, tmp_path: Path, config: TokenizerConfig) -> None:
    corpus = Corpus.of(text)
    expected = encode(corpus, train(corpus, config))
    shards = encode_corpus(text, tmp_path / "shards", tokenizer=config, tokens_per_shard=200)
    assert len(shards.shards) > 2
    read = shards.read()
    assert read.ids.tolist() == expected.ids.tolist()
    for name in ("eos", "unk", "words", "characters", "bytes", "lines"):
        assert getattr(read, name) == getattr(expected, name), name
    assert sorted(read.spellings) == sorted(expected.spellings)
    encode_corpus(text, tmp_path / "two", tokenizer=config, tokens_per_shard=200, options=WORKERS)
    names = {path.name for path in (tmp_path / "shards").iterdir()} - {"manifest.json"}
    assert names == {path.name for path in (tmp_path / "two").iterdir()} - {"manifest.json"}
    for name in names:
        assert (tmp_path / "shards" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_training_on_shards_equals_training_on_the_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(english(200))
    valid = tmp_path / "valid.txt"
    valid.write_text(english(20, seed=5) + "zebras today\n")
    for kind in ("word", "char", "bpe"):
        config = TokenizerConfig(kind=kind, vocab_size=260)
        folder = tmp_path / kind
        shards = encode_corpus(text, folder, tokenizer=config)
        settings: dict[str, Any] = {"order": 3, "valid": valid, "smoothing": "witten-bell"}
        from_shards = chainrule.train("ngram", folder, **settings)
        from_text = chainrule.train("ngram", text, tokenizer=folder, **settings)
        assert from_shards.origin.fingerprint is not None
        assert from_shards.origin.text_sha256 == from_text.origin.text_sha256 == shards.fingerprint.sha256
        from_shards.save(tmp_path / f"{kind}-shards")
        from_text.save(tmp_path / f"{kind}-text")
        names = [path.name for path in (tmp_path / f"{kind}-text").iterdir()]
        assert "model.ngram" in names
        for name in {*names} - {"manifest.json", "metrics.json", "README.md"}:
            contents = [(tmp_path / f"{kind}-{source}" / name).read_bytes() for source in ("shards", "text")]
            assert contents[0] == contents[1], name
    limit = MemoryLimit(limit=1 << 40, folder=tmp_path, minimum=lambda tokens, words, has_words: 0)
    with_file = prepare_corpus(Corpus.of(tmp_path / "char"), TokenizerConfig(), memory=limit)
    in_memory = prepare_corpus(Corpus.of(tmp_path / "char"), TokenizerConfig())
    assert with_file.train.ids.dtype == in_memory.train.ids.dtype == np.int32
    assert np.array_equal(with_file.train.ids, in_memory.train.ids)


def test_shards_are_not_text(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    encode_corpus(text, folder, tokenizer=TokenizerConfig(kind="char"))
    model = chainrule.train("ngram", folder, order=2, smoothing="witten-bell")
    for read in (lambda: model.evaluate(folder), lambda: list(Corpus.of(folder))):
        with pytest.raises(UsageError, match="contains token ids, not text"):
            read()
    with pytest.raises(UsageError, match="leave out --tokenizer"):
        chainrule.train("ngram", folder, tokenizer="bpe")
    with pytest.raises(ModelFileError, match="chainrule train ngram"):
        chainrule.load(folder)
    config = TokenizerConfig(kind="wordpiece", vocab_size=520)
    encode_corpus(text, tmp_path / "pieces", tokenizer=config)
    with pytest.raises(UsageError, match="whose speller needs the text"):
        chainrule.train("ngram", tmp_path / "pieces")


def test_damaged_shards_are_refused(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    vocabulary = encode_corpus(text, folder, tokenizer=TokenizerConfig(kind="char")).vocabulary
    shard = folder / "ids-00000.bin"
    content = bytearray(shard.read_bytes())
    content[7] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"ids-00000\.bin is damaged"):
        open_shards(folder, vocabulary).read()
    shard.write_bytes(content[:-2])
    with pytest.raises(ModelFileError, match="bytes, the manifest says"):
        open_shards(folder, vocabulary)


def test_shards_with_other_ids_are_refused(tmp_path: Path) -> None:
    """A folder with a valid manifest, whose content does not fit together."""
    text = Corpus.from_lines(["a b c"] * 3)
    encode_corpus(text, tmp_path / "shards", tokenizer=TokenizerConfig(kind="char"))
    facts = verified_dir.read_facts(tmp_path / "shards")
    assert facts is not None
    facts = {name: value for name, value in facts.items() if name not in ("files", "digest", "format_version")}
    files = {path.name: path.read_bytes() for path in (tmp_path / "shards").iterdir()}
    del files["manifest.json"]
    changes = {
        "ids-00000.bin": (b"\xff\x00" * (len(files["ids-00000.bin"]) // 2), "contains the id 255"),
        "unknown_words.json": (b'{"x": 1000000000000}', "not that of the shards"),
        "ids.shards": (files["ids.shards"].replace(b'"eos": ', b'"eos": 1'), "not those of the tokenizer"),
    }
    for number, (name, (content, message)) in enumerate(changes.items()):

        def fill(folder: Path, changed: dict[str, bytes] = files | {name: content}) -> None:
            for file, data in changed.items():
                (folder / file).write_bytes(data)

        verified_dir.write(tmp_path / str(number), fill, facts)
        with pytest.raises(ModelFileError, match=message):
            chainrule.train("ngram", tmp_path / str(number), order=2)


def test_invalid_texts_are_refused(tmp_path: Path) -> None:
    char, closed = TokenizerConfig(kind="char"), TokenizerConfig(kind="whitespace", closed=True)
    with pytest.raises(InputError, match="no words"):
        encode_corpus(Corpus.from_lines([" ", ""]), tmp_path / "out", tokenizer=char)
    encode_corpus(Corpus.from_lines(["a b"]), tmp_path / "closed", tokenizer=closed)
    with pytest.raises(ConfigError, match="does not know 'c'"):
        encode_corpus(Corpus.from_lines(["a c"]), tmp_path / "out", tokenizer=tmp_path / "closed")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["word", "whitespace", "char"])
def test_tokenizers_are_those_of_one_process(tmp_path: Path, kind: Any) -> None:
    text = tmp_path / "text.txt"
    text.write_text(english(80) + "Wörds, words.\twörds\n")
    corpus = Corpus.of(text)
    for settings in ({}, {"lowercase": True, "min_count": 2}):
        config = TokenizerConfig(kind=kind, **settings)  # type: ignore[arg-type]
        assert train_tokenizer_on(WORKERS, corpus, config).to_json() == train(corpus, config).to_json()


def test_subword_tokenizers_are_trained_in_one_process(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a bpe tokenizer is made in one process"):
        train_tokenizer_on(WORKERS, Corpus.from_lines(["a"]), TokenizerConfig(kind="bpe"))


def test_the_tokenizer_of_shards_can_be_used(text: Path, tmp_path: Path) -> None:
    first = encode_corpus(text, tmp_path / "one", tokenizer=TokenizerConfig(kind="char"))
    shards = encode_corpus(text, tmp_path / "two", tokenizer=tmp_path / "one")
    assert load_tokenizer(tmp_path / "two").to_json() == load_tokenizer(tmp_path / "one").to_json()
    assert shards.read().ids.tolist() == first.read().ids.tolist()
