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

pytestmark = pytest.mark.native  # without it all is the same, and slow, and warned of


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("method", METHODS)
def test_every_method(corpus: Path, tmp_path: Path, method: str) -> None:
    made = train.train(corpus, method=method, **TINY)
    counts = Counter(TEXT.split())
    assert dict(zip(made.words, made.counts.tolist(), strict=True)) == counts  # type: ignore[union-attr]
    assert list(made.counts) == sorted(counts.values(), reverse=True)  # type: ignore[arg-type]
    assert made.method == method
    assert made.dimensions == (len(counts) if method == "one-hot" else 6)
    assert np.isfinite(made.matrix).all()
    assert made.metrics["train_words"] == counts.total()
    assert made.metrics["vocab_size"] == made.metrics["train_types"] == len(counts)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert (made.origin.text, made.origin.text_sha256) == (str(corpus), digest)
    made.save(tmp_path / "m")
    assert_array_equal(chainrule.load(tmp_path / "m").matrix, made.matrix)


def test_the_way_the_text_is_stored_does_not_matter(corpus: Path, tmp_path: Path) -> None:
    packed = tmp_path / "c.gz"
    packed.write_bytes(gzip.compress(TEXT.replace("\n", "\r\n").encode()))
    first, *others = (
        train.train(text, **TINY) for text in (corpus, packed, Corpus.from_lines(TEXT.split("\n")[:-1]))
    )
    for other in others:
        assert_array_equal(other.matrix, first.matrix)
        assert other.origin.text_sha256 == first.origin.text_sha256


def test_scipy_is_looked_for_before_any_work(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)

    def progress(what: str, done: int, total: int | None) -> None:
        raise AssertionError(f"{what} has begun")

    with pytest.raises(MissingExtra, match="scipy"):
        train.train(corpus, method="ppmi", progress=progress, **TINY)


def test_the_digest_is_that_of_the_corpus(tmp_path: Path) -> None:
    for number, text in enumerate(["a b\r\nb a\r \n\n", "a b a " * 30_000, "\ufeffa b\n\x0ca"]):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
        for drop_blank_lines in (False, True):
            corpus = Corpus.of(tmp_path / f"{number}.txt", drop_blank_lines=drop_blank_lines)
            made = train.train(corpus, **TINY | {"method": "one-hot"})
            assert made.origin.text_sha256 == corpus.digest()


def test_seeds(corpus: Path) -> None:
    one, two, other = (train.train(corpus, seed=seed, **TINY).matrix for seed in (1, 1, 2))
    assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_which_words_are_kept(corpus: Path) -> None:
    counts = Counter(TEXT.split())
    made = train.train(corpus, **TINY | {"min_count": 100})
    assert set(made.words) == {word for word, n in counts.items() if n >= 100}
    assert len(train.train(corpus, vocab_size=3, **TINY)) == 3


def test_lower_case() -> None:
    made = train.train(Corpus.from_lines(["The cat", "THE Dog"] * 20), lowercase=True, **TINY)
    assert set(made.words) == {"the", "cat", "dog"}
    assert "CAT" in made


def test_character_n_grams_give_unknown_words_a_vector(corpus: Path) -> None:
    made = train.train(corpus, shortest=3, longest=6, buckets=500, **TINY)
    assert "cats" not in made
    assert made.vector("cats").shape == (6,)
    assert made.similarity("cat", "cats") > 0.5  # they share <ca, <cat, cat


def test_a_config_or_settings(corpus: Path) -> None:
    config = VectorConfig(dimensions=6, epochs=2, min_count=1)
    one = train.train(corpus, config=config, threads=1)
    assert_array_equal(one.matrix, train.train(corpus, **TINY).matrix)
    with pytest.raises(UsageError, match="settings were given twice"):
        train.train(corpus, config=config, epochs=3)
    with pytest.raises(ConfigError, match="no setting 'dimension'; did you mean 'dimensions'"):
        train.train(corpus, dimension=3)


def test_out_writes_the_folder_or_refuses_before_any_work(corpus: Path, tmp_path: Path) -> None:
    train.train(corpus, out=tmp_path / "m", **TINY)
    assert len(chainrule.load(tmp_path / "m")) == len(set(TEXT.split()))
    with pytest.raises(UsageError, match="not a model folder"):
        train.train(corpus, out=corpus, **TINY)


def test_what_cannot_be_learnt_from(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"empty\.txt holds no words"):
        train.train(tmp_path / "empty.txt")
    with pytest.raises(InputError, match=r"occurs 5 times or more; .*\(the most frequent word occurs 2 times\)"):
        train.train(Corpus.from_lines(["a b a"]))
    with pytest.raises(InputError, match="no two words with a vector stand in one line"):
        train.train(Corpus.from_lines(["a", "b"] * 20), **TINY)
    for wrong in ({"threads": 0}, {"threads": 257}, {"seed": -1}, {"seed": 1 << 64}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            train.train(Corpus.from_lines(["a b a"]), **wrong)  # type: ignore[arg-type]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a b \xff\n" * 10)
    with pytest.raises(InputError, match="byte 4"):
        train.train(tmp_path / "t.txt", **TINY)
    with pytest.warns(ChainruleWarning, match="10 sequences are not UTF-8"):
        made = train.train(Corpus.of(tmp_path / "t.txt", errors="replace"), **TINY)
    assert "\ufffd" in made
