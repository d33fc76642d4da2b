"""Word vector folders: round trips, and errors for modified files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import chainrule
from chainrule.embeddings import storage
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import InputError, ModelFileError, NotFoundError
from chainrule.storage import verified_dir
from chainrule.storage.provenance import Origin
from chainrule.text.fingerprint import Fingerprint


def small_vectors() -> WordVectors:
    rng = np.random.default_rng(0)
    return WordVectors(
        words=("the", "König", "n\u00a0b", "a\u2028b"),
        matrix=rng.normal(size=(4, 3)).astype(np.float32),
        counts=np.array([9, 5, 2, 1], np.uint64),
        subwords=Subwords(3, 6, 10),
        buckets=rng.normal(size=(10, 3)).astype(np.float32),
        lowercase=True,
        metrics={"loss": 2.5, "words": 17},
        config=VectorConfig(method="cbow", dimensions=3, shortest=3, longest=6, buckets=10),
        origin=Origin.now(
            text="corpus.txt", fingerprint=Fingerprint("0" * 64), command="chainrule vectors train", seed=3
        ),
    )


def test_vector_folder_round_trips(tmp_path: Path) -> None:
    before = small_vectors()
    before.save(tmp_path / "m")
    after = chainrule.load(tmp_path / "m")
    assert isinstance(after, WordVectors)
    for name in ("words", "subwords", "lowercase", "metrics", "config"):
        assert getattr(after, name) == getattr(before, name), name
    for name in ("matrix", "counts", "buckets"):
        assert_array_equal(getattr(after, name), getattr(before, name))
    assert (after.origin.text, after.origin.text_sha256) == ("corpus.txt", "0" * 64)
    assert after.vector("unknown").shape == (3,)
    after.save(tmp_path / "again")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("m", "again"))
    assert first == second


def test_saved_tensors_equal_the_safetensors_library(tmp_path: Path) -> None:
    padded = np.arange(3000 * 5, dtype=np.float32).reshape(3000, 5)
    arrays: dict[str, NDArray[Any]] = {
        "matrix": padded[:, :3],
        "counts": np.arange(3000, dtype=np.uint64),
        "buckets": padded[:7, :3],
    }
    file = storage._tensor_file(arrays)
    file.write(tmp_path / "n")
    assert len(file) == (tmp_path / "n").stat().st_size
    expected = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    assert (tmp_path / "n").read_bytes() == expected


def test_minimal_one_hot_vectors_round_trip(tmp_path: Path) -> None:
    WordVectors(("a", "b"), np.zeros((2, 0), np.float32)).save(tmp_path / "m")
    vectors = storage.read(tmp_path / "m")
    assert vectors.is_one_hot
    assert (vectors.counts, vectors.buckets, vectors.config, vectors.method) == (None, None, None, "imported")


def test_model_card_describes_the_vectors(tmp_path: Path) -> None:
    small_vectors().save(tmp_path / "m")
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    for fact in ("cbow", "corpus.txt", "4 words, 3 dimensions", "| loss | 2.5 |", "chainrule vectors neighbors"):
        assert fact in card


@pytest.mark.parametrize("name", ["words.txt", "model.safetensors", "config.json", "metrics.json"])
def test_vector_folder_with_a_flipped_bit_is_rejected(tmp_path: Path, name: str) -> None:
    small_vectors().save(tmp_path / "m")
    content = bytearray((tmp_path / "m" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "m" / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=name):
        storage.read(tmp_path / "m")


def rewrite_folder(source: Path, target: Path, **changed: bytes) -> Path:
    """Write the folder with replaced files and a valid manifest."""
    old = verified_dir.open_dir(source)
    files = {name: old.bytes(name) for name in old.files} | {n.replace("__", "."): c for n, c in changed.items()}

    def fill(temporary: Path) -> None:
        for name, content in files.items():
            (temporary / name).write_bytes(content)

    verified_dir.write(target, fill, old.facts)
    return target


def test_vector_folder_with_inconsistent_parts_is_rejected(tmp_path: Path) -> None:
    small_vectors().save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())

    def changed(**values: object) -> bytes:
        return json.dumps(config | values).encode()

    cases: list[dict[str, bytes]] = [
        {"words__txt": b"the\nK\nn\n"},
        {"words__txt": b"a\na\nb\nc\n"},
        {"model__safetensors": b"no tensors"},
        {"config__json": changed(subwords=None)},
        {"config__json": changed(subwords=[3, 6, 11])},
        {"config__json": changed(subwords="no")},
        {"config__json": changed(model={"method": "magic"})},
        {"config__json": b'{"task": "vectors"}'},
        {"config__json": b"[]"},
        {"metrics__json": b"{"},
    ]
    for number, case in enumerate(cases):
        with pytest.raises(ModelFileError):
            storage.read(rewrite_folder(tmp_path / "m", tmp_path / str(number), **case))


def test_folder_from_before_punctuation_splitting_loads_as_whitespace(tmp_path: Path) -> None:
    small_vectors().save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["model"].pop("tokenizer") == "word"
    old = rewrite_folder(tmp_path / "m", tmp_path / "old", config__json=json.dumps(config).encode())
    vectors = chainrule.load(old)
    assert isinstance(vectors, WordVectors)
    assert vectors.config is not None
    assert vectors.config.tokenizer == "whitespace"
    assert_array_equal(vectors.matrix, small_vectors().matrix)


def test_folders_of_other_kinds_are_rejected(tmp_path: Path, toy: Path) -> None:
    chainrule.train("ngram", toy, order=2, smoothing="laplace").save(tmp_path / "n")
    with pytest.raises(ModelFileError, match="does not contain word vectors but a model of kind 'ngram'"):
        storage.read(tmp_path / "n")
    with pytest.raises(NotFoundError):
        storage.read(tmp_path / "nowhere")


@pytest.mark.parametrize("word", ["", "a\nb"])
def test_invalid_words_are_rejected_on_save(tmp_path: Path, word: str) -> None:
    with pytest.raises(InputError, match="is not a valid word"):
        WordVectors(("a", word), np.ones((2, 2), np.float32)).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
