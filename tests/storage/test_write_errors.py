"""I/O errors at any call during a write: exit status 1, a correct message, and the old or the new content."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import chainrule
from chainrule import families
from chainrule.applications import convert
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ChainruleError
from chainrule.model import Model
from chainrule.storage.provenance import Origin
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts
from chainrule.tokenizers.tokenizer import save_tokenizer
from storage.failing_disk import FailingDisk, largest_file

LINES = ["i love cats", "i love dogs", "cats chase mice"]
Writer = Callable[[Path, int], None]


def language_model(version: int) -> Model:
    model = chainrule.train("ngram", Corpus.from_lines(LINES), order=version, smoothing="witten-bell")
    return dataclasses.replace(model, metrics={}, origin=dataclasses.replace(model.origin, created=""))


def word_vectors(version: int) -> WordVectors:
    return WordVectors(("a", "b"), np.full((2, 3), version, np.float32), origin=Origin(created="then"))


@pytest.fixture(scope="module")
def writers() -> dict[str, Writer]:
    """Every function that writes a folder or a file, each in two versions."""
    models = {version: language_model(version) for version in (1, 2)}
    vectors = {version: word_vectors(version) for version in (1, 2)}
    classify = families.get_task("classify")
    table = LabelledTexts(texts=LINES, labels=["x", "y", "x"], name="toy")
    classifiers = {
        version: dataclasses.replace(
            trained := classify.train("ngram", table, order=version),
            metrics={},
            origin=dataclasses.replace(trained.origin, created=""),
        )
        for version in (1, 2)
    }
    origins = {version: Origin(command=str(version)) for version in (1, 2)}
    return {
        "model": lambda path, version: models[version].save(path, force=True),
        "tokenizer": lambda path, version: save_tokenizer(models[1].tokenizer, path, origins[version], force=True),
        "vectors": lambda path, version: vectors[version].save(path, force=True),
        "classifier": lambda path, version: classifiers[version].save(path, force=True),
        "arpa": lambda path, version: convert.export_arpa(models[version], path),
        "word2vec": lambda path, version: vectors[version].export(path),
    }


KINDS = ("model", "tokenizer", "vectors", "classifier", "arpa", "word2vec")


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(file.relative_to(path)): file.read_bytes() for file in files if file.is_file()}


def run_with_failing_disk(call: Callable[[], None], disk: FailingDisk) -> ChainruleError | None:
    try:
        with disk:
            call()
    except ChainruleError as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore:.* cannot be removed")
@pytest.mark.parametrize("for_good", [False, True], ids=["single failure", "persistent failure"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_failing_call_leaves_old_or_new_content(
    writers: dict[str, Writer], kind: str, for_good: bool, tmp_path: Path
) -> None:
    write, path = writers[kind], tmp_path / "out"
    contents = {}
    for version in (1, 2):
        with FailingDisk(tmp_path) as disk:
            write(path, version)
        contents[version] = content(path)
    assert contents[1] != contents[2]
    failures = 0
    for n in range(disk.calls):
        if content(path) != contents[1]:
            with FailingDisk(tmp_path):
                write(path, 1)
        error = run_with_failing_disk(lambda: write(path, 2), FailingDisk(tmp_path, n, for_good=for_good))
        is_new = error is None or "the new content is in place, but the disk did not confirm it" in str(error)
        assert content(path) == contents[2 if is_new else 1], (n, error)
        if error is not None:
            failures += 1
            assert (type(error), error.exit_code) == (ChainruleError, 1), (n, error)
            assert is_new or "the existing content is unchanged" in str(error), (n, error)
            assert for_good or not is_new, (n, error)  # a single failing call is rolled back
    assert failures > 5
    with FailingDisk(tmp_path):
        write(path, 2)
    assert content(path) == contents[2]
    assert [left.name for left in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", KINDS)
def test_file_size_limit_leaves_the_old_content(writers: dict[str, Writer], kind: str, tmp_path: Path) -> None:
    """The compiled writer of model.ngram also receives a real I/O error."""
    write, path = writers[kind], tmp_path / "out"
    write(path, 2)
    sizes = sorted({len(file_content) for file_content in content(path).values() if file_content})
    write(path, 1)
    before = content(path)
    for size in (0, *(size - 1 for size in sizes)):
        with (
            largest_file(size),
            pytest.raises(ChainruleError, match=r"cannot write .*out: File too large") as error,
        ):
            write(path, 2)
        assert error.value.exit_code == 1
        assert content(path) == before
    assert [left.name for left in tmp_path.iterdir()] == ["out"]
