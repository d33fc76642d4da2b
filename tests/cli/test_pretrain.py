"""`chainrule pretrain`: encoder folders, and errors with their location."""

import signal
from pathlib import Path
from typing import Any

import pytest

from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.tasks import pretrain
from cli.command import call, digests, english, run_error, run_ok, write
from training.test_resume import send_signal_during_step

TINY = ("--hidden", 8, "--layers", 1, "--epochs", 2, "--batch-size", 8, "--device", "cpu", "--seed", 1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pretrain") / "text.txt", english(40))


@pytest.fixture(scope="module")
def valid(text: Path) -> Path:
    return write(text.with_name("valid.txt"), english(10, seed=8))


def pretrained(family: str, text: Path, out: Path, *more: object) -> Any:
    return run_ok("pretrain", family, text, "--out", out, *TINY, *more)


@pytest.mark.parametrize(("family", "names"), [("lstm", ("forward", "backward")), ("transformer", ("masked",))])
def test_pretrain_saves_an_encoder(
    tmp_path: Path, text: Path, valid: Path, family: str, names: tuple[str, ...]
) -> None:
    out = tmp_path / "encoder"
    outcome = pretrained(family, text, out, "--valid", valid, "--json", "--min-count", 2)
    document, loaded = outcome.json(), api.load(out, kind="pretrain", device="cpu")
    assert (document["task"], document["family"], document["model"]) == ("pretrain", family, str(out))
    assert document["parameters"] == loaded.parameters
    for name, figures in loaded.evaluate(valid).items():
        assert document[f"valid_{name}_perplexity"] == pytest.approx(figures.perplexity)
        assert document["validation"][name]["perplexity"] == document[f"valid_{name}_perplexity"]
    assert tuple(loaded.evaluate(valid)) == tuple(document["validation"]) == names
    perplexities = ", ".join(f"{name} {document['validation'][name]['perplexity']:.2f}" for name in names)
    assert f"saved {out}: {loaded.parameters:,} parameters, validation perplexity {perplexities}, " in outcome.err
    assert loaded.origin.command.startswith(f"chainrule pretrain {family}")


def test_pretrain_in_python_gives_the_same_files(tmp_path: Path, text: Path) -> None:
    pretrained("gru", text, tmp_path / "one", "--set", "dropout=0.3")
    settings: dict[str, Any] = {"hidden": 8, "layers": 1, "epochs": 2, "batch_size": 8, "dropout": 0.3}
    running = RunOptions(seed=1, device="cpu")
    pretrain.train("gru", text, options=running, **settings).save(tmp_path / "two")
    by_command, by_python = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert by_command["model.safetensors"] == by_python["model.safetensors"]
    assert by_command["tokenizer.json"] == by_python["tokenizer.json"]


def test_pretrain_from_stdin(tmp_path: Path) -> None:
    run_ok("pretrain", "rnn", "-", "--out", tmp_path / "encoder", *TINY, stdin=english(20))
    assert api.load(tmp_path / "encoder", kind="pretrain", device="cpu").metrics["train_tokens"] > 20 * 6


def test_interrupted_pretraining_resumes(tmp_path: Path, text: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    pretrained("transformer", text, whole, "--mask", 0.3)
    arguments = ("pretrain", "transformer", text, "--out", out, *TINY, "--mask", 0.3)
    with send_signal_during_step(signal.SIGTERM, 3):
        stopped = call(*arguments)
    assert stopped.status == 143
    assert "the same command with --resume continues from there" in stopped.err
    assert "unfinished run" in run_error(2, *arguments)
    run_ok(*arguments, "--resume")
    assert digests(out)["model.safetensors"] == digests(whole)["model.safetensors"]


def test_finished_encoder_is_not_resumed(tmp_path: Path, text: Path) -> None:
    first = pretrained("rnn", text, tmp_path / "encoder", "--json")
    assert "validation" not in first.json()
    arguments = ("pretrain", "rnn", text, "--out", tmp_path / "encoder", *TINY, "--resume")
    assert "encoder contains a finished model; remove --resume to retrain it" in run_error(2, *arguments)


def test_vocabulary_coverage_of_an_encoder_is_reported(tmp_path: Path, text: Path) -> None:
    """Two texts that differ in their language: all words of the first are known, of the second only the four
    `a`.
    """
    pretrained("lstm", text, tmp_path / "encoder")
    known = write(tmp_path / "known.tsv", "x\tthe cat sees a dog\ny\ta dog sees the bird\n" * 4)
    foreign = write(tmp_path / "foreign.tsv", "x\tle chat voit a\ny\tun chien dort ici\n" * 4)
    arguments = ("--pretrained", tmp_path / "encoder", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "m")
    message = run_ok("classify", "train", "lstm", known, *arguments).err
    line = f"the encoder of {tmp_path / 'encoder'} covers"
    assert f"{line} 100.0% of the running words\n" in message
    assert f"warning: {line}" not in message
    message = run_ok("classify", "train", "lstm", foreign, *arguments, "--force").err
    assert f"\n{line} 12.5% of the running words\n" in f"\n{message}"  # 4 of 32
    assert f"warning: {line} 12.5% of the running words" in message


@pytest.mark.parametrize("family", ["ngram", "lstm"])
def test_finished_classifier_is_not_resumed(tmp_path: Path, family: str) -> None:
    labelled = write(tmp_path / "x.tsv", "x\tthe cat sees a dog\ny\ta dog sees the bird\n" * 4)
    small = () if family == "ngram" else ("--hidden", 8, "--epochs", 1, "--device", "cpu")
    arguments = ("classify", "train", family, labelled, "--out", tmp_path / "m", *small)
    run_ok(*arguments)
    assert "m contains a finished model; remove --resume to retrain it" in run_error(2, *arguments, "--resume")


def test_pretrain_reports_the_location_of_unreadable_text(tmp_path: Path) -> None:
    """The byte 0xff comes after nine bytes of the first line and four of the second, counted from 0."""
    bad = write(tmp_path / "bad.txt", b"one line\nand \xff another\n")
    records = write(tmp_path / "bad.jsonl", '{"text": "one line"}\n{"text": "another"\n')
    for file, place in ((bad, f"{bad} is not UTF-8 at byte 13"), (records, f"{records}, line 2")):
        assert place in run_error(3, "pretrain", "lstm", file, "--out", tmp_path / "encoder", *TINY)
        assert not (tmp_path / "encoder").exists()
    again = pretrained("lstm", bad, tmp_path / "encoder", "--errors", "replace")
    assert f"{bad}: 1 sequences are not UTF-8" in again.err


def test_pretrain_rejects_a_text_without_words(tmp_path: Path, text: Path) -> None:
    blank = write(tmp_path / "blank.txt", "\n \n")
    assert "contains no words" in run_error(3, "pretrain", "lstm", blank, "--out", tmp_path / "encoder", *TINY)
    message = run_error(3, "pretrain", "lstm", text, "--valid", blank, "--out", tmp_path / "encoder", *TINY)
    assert f"{blank} contains no words" in message


@pytest.mark.parametrize(
    ("family", "more", "words"),
    [
        ("ngram", (), "there is no encoder of family 'ngram'; choose rnn, lstm, gru or transformer"),
        ("lstm", ("--set", "heads=2"), "heads is not a setting of family 'lstm'"),
        ("lstm", ("--set", "directions=joined"), "independent forward and backward networks"),
        ("lstm", ("--mask", 0.2), "mask is not a setting of family 'lstm'"),
        ("transformer", ("--recipe", "wikitext2-bilm"), "'wikitext2-bilm' is for family 'lstm', not 'transformer'"),
        ("lstm", ("--recipe", "small-lstm"), "recipe 'small-lstm' is for chainrule train lstm"),
    ],
)
def test_pretrain_rejects_invalid_choices_before_any_work(
    tmp_path: Path, text: Path, family: str, more: tuple[object, ...], words: str
) -> None:
    assert words in run_error(2, "pretrain", family, text, "--out", tmp_path / "encoder", *more)
    assert not (tmp_path / "encoder").exists()


def test_pretrain_follows_a_recipe(tmp_path: Path, text: Path) -> None:
    small = (*TINY, "--precision", "fp32", "--set", "embedding=6")
    run_ok("pretrain", "lstm", text, "--out", tmp_path / "encoder", "--recipe", "wikitext2-bilm", *small)
    config = api.load(tmp_path / "encoder", kind="pretrain", device="cpu").config
    assert (config.dropout, config.hidden, config.embedding) == (0.4, 8, 6)


def test_pretrain_help_shows_its_use() -> None:
    help_text = " ".join(run_ok("pretrain", "--help").out.split())
    assert "chainrule tag train lstm train.conll --valid dev.conll --pretrained runs/encoder" in help_text
