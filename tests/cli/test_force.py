"""Every command that writes a folder: an unfinished run or another model is refused without --force, untouched."""

from pathlib import Path
from typing import Any

import pytest

from chainrule import folder
from cli.command import QUIET, TOY, call, digests, done, refused, trained, write

TAGGED = "i\tPRON\nlove\tVERB\ncats\tNOUN\n\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    path = tmp_path_factory.mktemp("force")
    write(path / "toy.txt", TOY)
    write(path / "spam.tsv", "spam\tbuy cats\nham\ti love cats\n")
    write(path / "toy.vec", "2 2\ncats 1 2\ndogs 3 4\n")
    write(path / "toy.conll", TAGGED)
    trained(path / "a", path / "toy.txt", "--order", 2, *QUIET)
    trained(path / "b", path / "toy.txt", "--order", 1, *QUIET)
    done("convert", path / "a", "--to", "arpa", "--out", path / "toy.arpa")
    return path


def command(name: str, at: Path) -> tuple[Any, ...]:
    text = at / "toy.txt"
    return {
        "train": ("train", "ngram", text, "--order", 3, *QUIET),
        "vectors train": ("vectors", "train", text, "--method", "one-hot", "--min-count", 1),
        "vectors import": ("vectors", "import", at / "toy.vec"),
        "tokenizer train": ("tokenizer", "train", text, "--tokenizer", "word"),
        "mix": ("mix", at / "a", at / "b", "--held-out", text),
        "convert": ("convert", at / "toy.arpa"),
        "convert --to ngram": ("convert", at / "a", "--to", "ngram"),
        "classify train": ("classify", "train", "ngram", at / "spam.tsv"),
        "tag train": ("tag", "train", "lstm", at / "toy.conll"),
        "translate train": ("translate", "train", "gru", at / "spam.tsv"),
        "pretrain": ("pretrain", "lstm", text),
    }[name]


QUICK = (
    *("train", "vectors train", "vectors import", "tokenizer train", "mix"),
    *("convert", "convert --to ngram", "classify train"),
)
SLOW = ("tag train", "translate train", "pretrain")  # only refused here


def fill(root: Path) -> None:
    write(root / "weights", b"1")


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_what_is_refused_is_untouched(place: Path, tmp_path: Path, name: str) -> None:
    run, model = tmp_path / "run", tmp_path / "model"
    folder.write(run / folder.CHECKPOINT, fill, {})
    folder.write(model, fill, {"command": "chainrule train ngram other.txt --out model"})
    before = digests(run / folder.CHECKPOINT), digests(model)
    message = refused(2, *command(name, place), "--out", run)
    assert "run holds an unfinished run; go on with the same command with --resume, or discard it with" in message
    message = refused(2, *command(name, place), "--out", model)
    assert (
        "model holds a finished model (made by: chainrule train ngram other.txt --out model); to replace" in message
    )
    assert (digests(run / folder.CHECKPOINT), digests(model)) == before
    assert {path.name for path in tmp_path.iterdir()} == {"run", "model"}


@pytest.mark.parametrize("name", QUICK)
def test_the_same_command_may_run_again(place: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    folder.write(run / folder.CHECKPOINT, fill, {})
    done(*command(name, place), "--out", run, "--force")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert not (run / folder.CHECKPOINT).exists()
    before = digests(run).keys()
    done(*command(name, place), "--out", run)
    assert digests(run).keys() == before
    assert "finished model" in refused(2, "tokenizer", "train", place / "toy.txt", "--lowercase", "--out", run)


@pytest.mark.parametrize("name", ["train", "vectors train", "tokenizer train", "classify train"])
def test_the_same_command_on_another_text_is_refused(place: Path, tmp_path: Path, name: str) -> None:
    texts = {source: (place / source).read_bytes() for source in ("toy.txt", "spam.tsv")}
    for source, text in texts.items():
        write(tmp_path / source, text)
    out = tmp_path / "out"
    done(*command(name, tmp_path), "--out", out)
    before = digests(out)
    for source, text in texts.items():
        write(tmp_path / source, text.replace(b"cats", b"rats"))
    message = refused(2, *command(name, tmp_path), "--out", out)
    assert "holds a finished model of the same command and another text; to replace it give --force" in message
    assert digests(out) == before
    done(*command(name, tmp_path), "--out", out, "--force")


def test_every_command_that_writes_a_folder_has_the_option() -> None:
    for name in ("compare", "train", "vectors train", "vectors import", "tokenizer train", "mix", "convert"):
        assert "--force" in call(*name.split(), "--help").out, name
    for name in ("classify train", "tag train", "translate train", "pretrain"):
        assert "--force" in call(*name.split(), "--help").out, name
