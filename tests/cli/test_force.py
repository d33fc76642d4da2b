"""Commands that write a folder refuse an unfinished run or another model without --force, leaving it unchanged."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from chainrule.storage import verified_dir
from cli.command import QUIET, TOY, call, digests, run_error, run_ok, trained, write

TAGGED = "i\tPRON\nlove\tVERB\ncats\tNOUN\n\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input files of the commands."""
    path = tmp_path_factory.mktemp("force")
    write(path / "toy.txt", TOY)
    write(path / "spam.tsv", "spam\tbuy cats\nham\ti love cats\n")
    write(path / "toy.vec", "2 2\ncats 1 2\ndogs 3 4\n")
    write(path / "toy.conll", TAGGED)
    trained(path / "a", path / "toy.txt", "--order", 2, *QUIET)
    trained(path / "b", path / "toy.txt", "--order", 1, *QUIET)
    run_ok("convert", path / "a", "--to", "arpa", "--out", path / "toy.arpa")
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
SLOW = ("tag train", "translate train", "pretrain")  # only refusals are tested


def fill(root: Path) -> None:
    write(root / "weights", b"1")


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_refused_output_folder_is_unchanged(place: Path, tmp_path: Path, name: str) -> None:
    run, model = tmp_path / "run", tmp_path / "model"
    verified_dir.write(run / verified_dir.CHECKPOINT, fill, {})
    verified_dir.write(model, fill, {"command": "chainrule train ngram other.txt --out model"})
    before = digests(run / verified_dir.CHECKPOINT), digests(model)
    message = run_error(2, *command(name, place), "--out", run)
    assert (
        "run contains an unfinished run; continue it by running the same command with --resume, or discard it with"
        in message
    )
    message = run_error(2, *command(name, place), "--out", model)
    assert (
        "model contains a finished model (made by: chainrule train ngram other.txt --out model); to replace"
        in message
    )
    assert (digests(run / verified_dir.CHECKPOINT), digests(model)) == before
    assert {path.name for path in tmp_path.iterdir()} == {"run", "model"}


@pytest.mark.parametrize("name", QUICK)
def test_same_command_can_run_again(place: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    verified_dir.write(run / verified_dir.CHECKPOINT, fill, {})
    run_ok(*command(name, place), "--out", run, "--force")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert not (run / verified_dir.CHECKPOINT).exists()
    before = digests(run).keys()
    run_ok(*command(name, place), "--out", run)
    assert digests(run).keys() == before
    assert "finished model" in run_error(2, "tokenizer", "train", place / "toy.txt", "--lowercase", "--out", run)


@pytest.mark.parametrize("name", ["train", "vectors train", "tokenizer train", "classify train"])
def test_same_command_on_another_text_is_refused(place: Path, tmp_path: Path, name: str) -> None:
    texts = {source: (place / source).read_bytes() for source in ("toy.txt", "spam.tsv")}
    for source, text in texts.items():
        write(tmp_path / source, text)
    out = tmp_path / "out"
    run_ok(*command(name, tmp_path), "--out", out)
    before = digests(out)
    for source, text in texts.items():
        write(tmp_path / source, text.replace(b"cats", b"rats"))
    message = run_error(2, *command(name, tmp_path), "--out", out)
    assert "contains a finished model of the same command and another text; to replace it give --force" in message
    assert digests(out) == before
    run_ok(*command(name, tmp_path), "--out", out, "--force")


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_current_directory_is_refused_as_output(
    place: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for out in (".", "", "..", "/"):
        assert "choose another --out" in run_error(2, *command(name, place), "--out", out, "--force")
    assert Path.cwd() == tmp_path  # it still exists
    assert list(tmp_path.iterdir()) == []


CHANGED_INPUTS = {
    "train --config": (
        ("train", "ngram", "toy.txt", *QUIET, "--config", "c.toml"),
        "c.toml",
        "[model]\norder = 2\n",
        "[model]\norder = 3\n",
    ),
    "train --vocab": (("train", "ngram", "toy.txt", *QUIET, "--vocab", "v.txt"), "v.txt", "cats\n", "dogs\n"),
    "train --set vocab": (
        ("train", "ngram", "toy.txt", *QUIET, "--set", "vocab=v.txt"),
        "v.txt",
        "cats\n",
        "dogs\n",
    ),
    "train --valid": (("train", "ngram", "toy.txt", *QUIET, "--valid", "v.txt"), "v.txt", "cats\n", "dogs\n"),
    "train --valid folder": (
        ("train", "ngram", "toy.txt", *QUIET, "--valid", "texts"),
        "texts/v.txt",
        "cats\n",
        "dogs\n",
    ),
    "tokenizer train --vocab": (
        ("tokenizer", "train", "toy.txt", "--tokenizer", "word", "--vocab", "v.txt"),
        "v.txt",
        "cats\n",
        "dogs\n",
    ),
    "vectors import": (("vectors", "import", "t.vec"), "t.vec", "1 2\ncats 1 2\n", "1 2\ncats 1 3\n"),
    "classify train --config": (
        ("classify", "train", "ngram", "spam.tsv", "--config", "c.toml"),
        "c.toml",
        "[model]\norder = 1\n",
        "[model]\norder = 2\n",
    ),
    "mix --held-out": (("mix", "a", "b", "--held-out", "v.txt"), "v.txt", "i love\n", "dogs\n"),
}


@pytest.mark.parametrize("name", CHANGED_INPUTS)
def test_same_command_with_another_input_is_refused(
    place: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in ("toy.txt", "spam.tsv"):
        write(tmp_path / source, (place / source).read_bytes())
    for model in ("a", "b"):
        shutil.copytree(place / model, tmp_path / model)
    (tmp_path / "texts").mkdir()
    monkeypatch.chdir(tmp_path)
    arguments, source, before, after = CHANGED_INPUTS[name]
    write(tmp_path / source, before)
    run_ok(*arguments, "--out", "out")
    run_ok(*arguments, "--out", "out")
    saved = digests(tmp_path / "out")
    write(tmp_path / source, after)
    message = run_error(2, *arguments, "--out", "out")
    assert f"its input {source.split('/')[0]} has changed since; to replace it give --force" in message
    assert digests(tmp_path / "out") == saved
    run_ok(*arguments, "--out", "out", "--force")
    run_ok(*arguments, "--out", "out")


@pytest.mark.parametrize("name", ["convert", "convert --to ngram", "mix", "train --tokenizer"])
def test_same_command_with_another_source_model_is_refused(
    place: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "toy.txt", TOY)
    monkeypatch.chdir(tmp_path)
    for model, order in (("a", 2), ("b", 1)):
        trained(Path(model), Path("toy.txt"), "--order", order, *QUIET)
    run_ok("convert", "a", "--to", "arpa", "--out", "toy.arpa")
    arguments = (
        ("train", "ngram", "toy.txt", "--tokenizer", "a", *QUIET)
        if name == "train --tokenizer"
        else command(name, Path())
    )
    run_ok(*arguments, "--out", "out")
    run_ok(*arguments, "--out", "out")
    trained(Path("a"), Path("toy.txt"), "--order", 2, *QUIET)  # the same model, written at another time
    run_ok(*arguments, "--out", "out")
    trained(Path("a"), Path("toy.txt"), "--order", 3, *QUIET, "--force")
    run_ok("convert", "a", "--to", "arpa", "--out", "toy.arpa")
    source = "toy.arpa" if name == "convert" else "a"
    assert f"its input {source} has changed since" in run_error(2, *arguments, "--out", "out")
    run_ok(*arguments, "--out", "out", "--force")


def test_piped_input_counts_as_changed(place: Path, tmp_path: Path) -> None:
    arguments = ("mix", place / "a", place / "b", "--held-out", "-", "--out", tmp_path / "out")
    run_ok(*arguments, stdin="i love cats\n")
    assert "its input - may have changed; to replace it" in run_error(2, *arguments, stdin="i love cats\n")


def test_manifest_without_inputs_allows_only_commands_without_inputs(place: Path, tmp_path: Path) -> None:
    """A model of an earlier version of chainrule."""
    out = tmp_path / "out"
    line = shlex.join(map(str, ("chainrule", "convert", place / "toy.arpa", "--out", out)))
    verified_dir.write(out, fill, {"command": line})
    message = run_error(2, "convert", place / "toy.arpa", "--out", out)
    assert f"its input {place / 'toy.arpa'} may have changed" in message


def test_every_writing_command_has_the_force_option() -> None:
    for name in ("compare", "train", "vectors train", "vectors import", "tokenizer train", "mix", "convert"):
        assert "--force" in call(*name.split(), "--help").out, name
    for name in ("classify train", "tag train", "translate train", "pretrain"):
        assert "--force" in call(*name.split(), "--help").out, name
