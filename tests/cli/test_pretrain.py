"""`chainrule pretrain`: text in, an encoder's folder out, and refusals that say where."""

import signal
from pathlib import Path
from typing import Any

import pytest

from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.tasks import pretrain
from cli.command import call, digests, done, english, refused, write
from training.test_resume import signalled

TINY = ("--hidden", 8, "--layers", 1, "--epochs", 2, "--batch-size", 8, "--device", "cpu", "--seed", 1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pretrain") / "text.txt", english(40))


@pytest.fixture(scope="module")
def valid(text: Path) -> Path:
    return write(text.with_name("valid.txt"), english(10, seed=8))


def learnt(family: str, text: Path, out: Path, *more: object) -> Any:
    return done("pretrain", family, text, "--out", out, *TINY, *more)


@pytest.mark.parametrize(("family", "names"), [("lstm", ("forward", "backward")), ("transformer", ("masked",))])
def test_an_encoder_is_made(tmp_path: Path, text: Path, valid: Path, family: str, names: tuple[str, ...]) -> None:
    out = tmp_path / "encoder"
    outcome = learnt(family, text, out, "--valid", valid, "--json", "--min-count", 2)
    found, loaded = outcome.json(), api.load(out, kind="pretrain", device="cpu")
    assert (found["task"], found["family"], found["model"]) == ("pretrain", family, str(out))
    assert found["parameters"] == loaded.parameters
    for name, figures in loaded.evaluate(valid).items():
        assert found[f"valid_{name}_perplexity"] == pytest.approx(figures.perplexity)
        assert found["validation"][name]["perplexity"] == found[f"valid_{name}_perplexity"]
    assert tuple(loaded.evaluate(valid)) == tuple(found["validation"]) == names
    shown = ", ".join(f"{name} {found['validation'][name]['perplexity']:.2f}" for name in names)
    assert f"saved {out}: {loaded.parameters:,} parameters, validation perplexity {shown}, " in outcome.err
    assert loaded.origin.command.startswith(f"chainrule pretrain {family}")


def test_python_makes_the_same(tmp_path: Path, text: Path) -> None:
    learnt("gru", text, tmp_path / "one", "--set", "dropout=0.3")
    settings: dict[str, Any] = {"hidden": 8, "layers": 1, "epochs": 2, "batch_size": 8, "dropout": 0.3}
    running = RunOptions(seed=1, device="cpu")
    pretrain.train("gru", text, options=running, **settings).save(tmp_path / "two")
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert one["model.safetensors"] == two["model.safetensors"]
    assert one["tokenizer.json"] == two["tokenizer.json"]


def test_text_from_standard_input(tmp_path: Path) -> None:
    done("pretrain", "rnn", "-", "--out", tmp_path / "encoder", *TINY, stdin=english(20))
    assert api.load(tmp_path / "encoder", kind="pretrain", device="cpu").metrics["train_tokens"] > 20 * 6


def test_a_stopped_run_goes_on(tmp_path: Path, text: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    learnt("transformer", text, whole, "--mask", 0.3)
    given = ("pretrain", "transformer", text, "--out", out, *TINY, "--mask", 0.3)
    with signalled(signal.SIGTERM, 3):
        stopped = call(*given)
    assert stopped.status == 143
    assert "the same command with --resume goes on from there" in stopped.err
    assert "unfinished run" in refused(2, *given)
    done(*given, "--resume")
    assert digests(out)["model.safetensors"] == digests(whole)["model.safetensors"]


def test_a_finished_encoder_is_not_resumed(tmp_path: Path, text: Path) -> None:
    first = learnt("rnn", text, tmp_path / "encoder", "--json")
    assert "validation" not in first.json()
    given = ("pretrain", "rnn", text, "--out", tmp_path / "encoder", *TINY, "--resume")
    assert "encoder holds a finished model; remove --resume to train anew" in refused(2, *given)


def test_what_an_encoder_knows_of_a_task_is_said(tmp_path: Path, text: Path) -> None:
    """Of two texts alike but for their language: all words of the one are known, of the other the four `a`."""
    learnt("lstm", text, tmp_path / "encoder")
    known = write(tmp_path / "known.tsv", "x\tthe cat sees a dog\ny\ta dog sees the bird\n" * 4)
    foreign = write(tmp_path / "foreign.tsv", "x\tle chat voit a\ny\tun chien dort ici\n" * 4)
    given = ("--pretrained", tmp_path / "encoder", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "m")
    said = done("classify", "train", "lstm", known, *given).err
    line = f"the encoder of {tmp_path / 'encoder'} covers"
    assert f"{line} 100.0% of the running words\n" in said
    assert f"warning: {line}" not in said
    said = done("classify", "train", "lstm", foreign, *given, "--force").err
    assert f"\n{line} 12.5% of the running words\n" in f"\n{said}"  # 4 of 32
    assert f"warning: {line} 12.5% of the running words" in said


@pytest.mark.parametrize("family", ["ngram", "lstm"])
def test_a_finished_classifier_is_not_resumed(tmp_path: Path, family: str) -> None:
    labelled = write(tmp_path / "x.tsv", "x\tthe cat sees a dog\ny\ta dog sees the bird\n" * 4)
    small = () if family == "ngram" else ("--hidden", 8, "--epochs", 1, "--device", "cpu")
    given = ("classify", "train", family, labelled, "--out", tmp_path / "m", *small)
    done(*given)
    assert "m holds a finished model; remove --resume to train anew" in refused(2, *given, "--resume")


def test_where_a_text_cannot_be_read_is_said(tmp_path: Path) -> None:
    """The byte 0xff stands after nine bytes of the first line and four of the second, counted from 0."""
    bad = write(tmp_path / "bad.txt", b"one line\nand \xff another\n")
    records = write(tmp_path / "bad.jsonl", '{"text": "one line"}\n{"text": "another"\n')
    for file, place in ((bad, f"{bad} is not UTF-8 at byte 13"), (records, f"{records}, line 2")):
        assert place in refused(3, "pretrain", "lstm", file, "--out", tmp_path / "encoder", *TINY)
        assert not (tmp_path / "encoder").exists()
    again = learnt("lstm", bad, tmp_path / "encoder", "--errors", "replace")
    assert f"{bad}: 1 sequences are not UTF-8" in again.err


def test_a_text_without_words_is_refused(tmp_path: Path, text: Path) -> None:
    blank = write(tmp_path / "blank.txt", "\n \n")
    assert "holds no words" in refused(3, "pretrain", "lstm", blank, "--out", tmp_path / "encoder", *TINY)
    said = refused(3, "pretrain", "lstm", text, "--valid", blank, "--out", tmp_path / "encoder", *TINY)
    assert f"{blank} holds no words" in said


@pytest.mark.parametrize(
    ("family", "more", "words"),
    [
        ("ngram", (), "there is no encoder of family 'ngram'; choose rnn, lstm, gru or transformer"),
        ("lstm", ("--set", "heads=2"), "heads is not a setting of family 'lstm'"),
        ("lstm", ("--set", "directions=joined"), "neither may see the other"),
        ("lstm", ("--mask", 0.2), "mask is not a setting of family 'lstm'"),
        ("transformer", ("--recipe", "wikitext2-bilm"), "'wikitext2-bilm' is for family 'lstm', not 'transformer'"),
        ("lstm", ("--recipe", "small-lstm"), "recipe 'small-lstm' is for chainrule train lstm"),
    ],
)
def test_a_wrong_choice_is_answered_before_any_work(
    tmp_path: Path, text: Path, family: str, more: tuple[object, ...], words: str
) -> None:
    assert words in refused(2, "pretrain", family, text, "--out", tmp_path / "encoder", *more)
    assert not (tmp_path / "encoder").exists()


def test_a_recipe_is_followed(tmp_path: Path, text: Path) -> None:
    small = (*TINY, "--precision", "fp32", "--set", "embedding=6")
    done("pretrain", "lstm", text, "--out", tmp_path / "encoder", "--recipe", "wikitext2-bilm", *small)
    config = api.load(tmp_path / "encoder", kind="pretrain", device="cpu").config
    assert (config.dropout, config.hidden, config.embedding) == (0.4, 8, 6)


def test_help_shows_what_it_is_for() -> None:
    said = " ".join(done("pretrain", "--help").out.split())
    assert "chainrule tag train lstm train.conll --valid dev.conll --pretrained runs/encoder" in said
