"""Training word vectors from text: input, vocabulary, metrics and messages."""

import gzip
import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import chainrule
from chainrule.embeddings import train
from chainrule.embeddings.config import METHODS, VectorConfig
from chainrule.errors import ChainruleWarning, ConfigError, InputError, MissingExtra, UsageError
from chainrule.text.corpus import Corpus
from cli.command import english

TEXT = english(200)
TINY: dict[str, Any] = {"dimensions": 6, "epochs": 2, "min_count": 1, "threads": 1}

pytestmark = pytest.mark.native  # the NumPy reference gives the same results, slowly and with a warning


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_round_trips(corpus: Path, tmp_path: Path, method: str) -> None:
    vectors = train.train(corpus, method=method, **TINY)
    counts = Counter(TEXT.split())
    assert dict(zip(vectors.words, vectors.counts.tolist(), strict=True)) == counts  # type: ignore[union-attr]
    assert list(vectors.counts) == sorted(counts.values(), reverse=True)  # type: ignore[arg-type]
    assert vectors.method == method
    assert vectors.dimensions == (len(counts) if method == "one-hot" else 6)
    assert np.isfinite(vectors.matrix).all()
    assert vectors.metrics["train_words"] == counts.total()
    assert vectors.metrics["vocab_size"] == vectors.metrics["train_types"] == len(counts)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert (vectors.origin.text, vectors.origin.text_sha256) == (str(corpus), digest)
    vectors.save(tmp_path / "m")
    assert_array_equal(chainrule.load(tmp_path / "m").matrix, vectors.matrix)


def test_container_of_the_text_does_not_matter(corpus: Path, tmp_path: Path) -> None:
    packed = tmp_path / "c.gz"
    packed.write_bytes(gzip.compress(TEXT.replace("\n", "\r\n").encode()))
    first, *others = (
        train.train(text, **TINY) for text in (corpus, packed, Corpus.from_lines(TEXT.split("\n")[:-1]))
    )
    for other_vectors in others:
        assert_array_equal(other_vectors.matrix, first.matrix)
        assert other_vectors.origin.text_sha256 == first.origin.text_sha256


def test_missing_scipy_is_reported_before_training(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)

    def progress(what: str, done: int, total: int | None) -> None:
        raise AssertionError(f"{what} has begun")

    with pytest.raises(MissingExtra, match="scipy"):
        train.train(corpus, method="ppmi", progress=progress, **TINY)


def test_digest_of_the_text_is_recorded(tmp_path: Path) -> None:
    for number, text in enumerate(["a b\r\nb a\r \n\n", "a b a " * 30_000, "\ufeffa b\n\x0ca"]):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
        for drop_blank_lines in (False, True):
            corpus = Corpus.of(tmp_path / f"{number}.txt", drop_blank_lines=drop_blank_lines)
            vectors = train.train(corpus, **TINY | {"method": "one-hot"})
            assert vectors.origin.text_sha256 == corpus.digest()


def test_same_seed_gives_the_same_vectors(corpus: Path) -> None:
    first, again, other_seed = (train.train(corpus, seed=seed, **TINY).matrix for seed in (1, 1, 2))
    assert_array_equal(first, again)
    assert not np.array_equal(first, other_seed)


def test_min_count_and_vocab_size_select_words(corpus: Path) -> None:
    counts = Counter(TEXT.split())
    vectors = train.train(corpus, **TINY | {"min_count": 100})
    assert set(vectors.words) == {word for word, n in counts.items() if n >= 100}
    assert len(train.train(corpus, vocab_size=3, **TINY)) == 3


def test_lowercase_training() -> None:
    vectors = train.train(Corpus.from_lines(["The cat", "THE Dog"] * 20), lowercase=True, **TINY)
    assert set(vectors.words) == {"the", "cat", "dog"}
    assert "CAT" in vectors


def test_subwords_give_unknown_words_a_vector(corpus: Path) -> None:
    vectors = train.train(corpus, shortest=3, longest=6, buckets=500, **TINY)
    assert "cats" not in vectors
    assert vectors.vector("cats").shape == (6,)
    assert vectors.similarity("cat", "cats") > 0.5  # they share <ca, <cat, cat


def test_train_accepts_a_config_or_settings_but_not_both(corpus: Path) -> None:
    config = VectorConfig(dimensions=6, epochs=2, min_count=1)
    vectors = train.train(corpus, config=config, threads=1)
    assert_array_equal(vectors.matrix, train.train(corpus, **TINY).matrix)
    with pytest.raises(UsageError, match="settings were given twice"):
        train.train(corpus, config=config, epochs=3)
    with pytest.raises(ConfigError, match="no setting 'dimension'; did you mean 'dimensions'"):
        train.train(corpus, dimension=3)


def test_out_writes_the_folder_or_fails_before_training(corpus: Path, tmp_path: Path) -> None:
    train.train(corpus, out=tmp_path / "m", **TINY)
    assert len(chainrule.load(tmp_path / "m")) == len(set(TEXT.split()))
    with pytest.raises(UsageError, match="not a model folder"):
        train.train(corpus, out=corpus, **TINY)


def test_unusable_texts_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"empty\.txt contains no words"):
        train.train(tmp_path / "empty.txt")
    with pytest.raises(InputError, match=r"occurs 5 times or more; .*\(the most frequent word occurs 2 times\)"):
        train.train(Corpus.from_lines(["a b a"]))
    with pytest.raises(InputError, match="no two words with a vector stand in one line"):
        train.train(Corpus.from_lines(["a", "b"] * 20), **TINY)
    for wrong in ({"threads": 0}, {"threads": 257}, {"seed": -1}, {"seed": 1 << 64}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            train.train(Corpus.from_lines(["a b a"]), **wrong)  # type: ignore[arg-type]


def test_invalid_utf8_is_rejected_or_replaced(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a b \xff\n" * 10)
    with pytest.raises(InputError, match="byte 4"):
        train.train(tmp_path / "t.txt", **TINY)
    with pytest.warns(ChainruleWarning, match="10 sequences are not UTF-8"):
        vectors = train.train(Corpus.of(tmp_path / "t.txt", errors="replace"), **TINY)
    assert "\ufffd" in vectors
