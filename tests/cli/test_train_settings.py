"""`chainrule train`: sources of settings, their priority, and what each option sets."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from chainrule import api, families, recipes
from chainrule.cli.train import FAMILIES
from chainrule.config import RunConfig, flatten
from chainrule.errors import InputError
from chainrule.tokenizers.config import TokenizerConfig
from cli.command import QUIET, locked_by_another_thread, run_error, run_ok, trained, write

SMALL = ("--order", "3", *QUIET)


RECIPE = """
[recipe]
family = "ngram"
title = "t"
text = "t"
expected = "e"
time = "t"
hardware = "h"
command = "c"
[tokenizer]
kind = "char"
min_count = 2
[run]
context = "stream"
seed = 7
[model]
order = 2
[training]
smoothing = "laplace"
"""


@pytest.fixture
def quick_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe folder with one recipe that is quick to train."""
    monkeypatch.setattr(recipes, "FOLDER", tmp_path / "shelf")
    (tmp_path / "shelf").mkdir()
    write(tmp_path / "shelf" / "quick.toml", RECIPE)


def facts(model: Path) -> dict[str, object]:
    document = run_ok("info", model, "--json").json()
    config, tokenizer = document["config"], document["tokenizer"]
    return {
        "order": config["order"],
        "smoothing": config["smoothing"],
        "kind": tokenizer["kind"],
        "min_count": tokenizer["min_count"],
        "context": document["context"],
        "seed": json.loads((model / "manifest.json").read_bytes())["seed"],
    }


@pytest.mark.usefixtures("quick_recipe")
def test_settings_priority_recipe_file_set_options(tmp_path: Path, toy_text: Path) -> None:
    config = write(tmp_path / "c.toml", "[model]\norder = 3\n[tokenizer]\nkind = 'byte'\n[run]\nseed = 8\n")
    known: dict[str, object] = {
        "order": 2,
        "smoothing": "laplace",
        "kind": "char",
        "min_count": 2,
        "context": "stream",
        "seed": 7,
    }
    arguments: tuple[object, ...] = ("--recipe", "quick")
    for more, changed in (
        ((), {}),
        (("--config", config), {"order": 3, "kind": "byte", "seed": 8}),
        (("--set", "order=4", "--set", "kind=word"), {"order": 4, "kind": "word"}),
        (("--order", 5, "--tokenizer", "char", "--min-count", 1), {"order": 5, "kind": "char", "min_count": 1}),
        (("--context", "line", "--seed", 9, *QUIET), {"context": "line", "seed": 9, "smoothing": QUIET[1]}),
    ):
        arguments += more
        known |= changed
        assert facts(trained(tmp_path / "m", toy_text, *arguments, "--force")) == known, more


@pytest.mark.usefixtures("quick_recipe")
def test_saved_tokenizer_overrides_a_recipe(tmp_path: Path, toy_text: Path) -> None:
    first = trained(tmp_path / "first", toy_text, *SMALL)
    facts_ = facts(trained(tmp_path / "m", toy_text, "--recipe", "quick", "--tokenizer", first))
    assert (facts_["kind"], facts_["min_count"], facts_["order"]) == ("word", 1, 2)


@pytest.mark.parametrize(
    ("family", "name", "reason"),
    [
        ("ngram", "qick", "there is no recipe 'qick'; did you mean 'quick'?"),
        ("ngram", "../quick", "there is no recipe '../quick'"),
        ("lstm", "quick", "recipe 'quick' is for family 'ngram', not 'lstm'; write chainrule train ngram"),
    ],
)
@pytest.mark.usefixtures("quick_recipe")
def test_recipe_that_does_not_apply_is_rejected(
    tmp_path: Path, toy_text: Path, family: str, name: str, reason: str
) -> None:
    assert reason in run_error(2, "train", family, toy_text, "--out", tmp_path / "m", "--recipe", name)


@pytest.mark.parametrize(
    "options",
    [
        ("--hidden", "9"),
        ("--layers", "2"),
        ("--embedding", "9"),
        ("--dropout", "0.1"),
        ("--tie",),
        ("--no-tie",),
        ("--attention", "dot"),
        ("--bptt", "9"),
        ("--batch-size", "9"),
        ("--epochs", "9"),
        ("--max-seconds", "9"),
        ("--optimizer", "sgd"),
        ("--learning-rate", "0.1"),
        ("--clip", "1"),
        ("--init", "he"),
        ("--precision", "fp16"),
    ],
)
def test_ngram_rejects_settings_of_networks(tmp_path: Path, toy_text: Path, options: tuple[str, ...]) -> None:
    name = options[0].removeprefix("--").removeprefix("no-").replace("-", "_")
    message = run_error(2, "train", "ngram", toy_text, "--out", tmp_path / "m", *options)
    assert message.startswith(f"error: '{name}' is a setting of ")
    assert ", not of ngram; leave it out" in message


def test_every_network_option_reaches_its_config(
    tmp_path: Path, toy_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values of a network's options in its config."""
    received = api_call(monkeypatch, tmp_path, "lstm", toy_text, *NETWORK, "--no-tie", "--resume", "--tensorboard")
    expected = {
        "hidden": 8,
        "layers": 2,
        "embedding": 4,
        "dropout": 0.0,
        "tie": False,
        "attention": "dot",
        "bptt": 5,
    }
    expected |= {"batch_size": 3, "epochs": 1, "max_seconds": 2.5, "optimizer": "sgd", "learning_rate": 0.5}
    expected |= {"clip": 0.0, "init": "he", "precision": "bf16"}
    settings = received["settings"]
    assert {name: flatten(settings.model)[name] for name in expected} == settings.explicit == expected
    assert settings.run == RunConfig(context="line", seed=0)
    run = {"out": tmp_path / "m", "resume": True, "tensorboard": True}
    assert {name: received[name] for name in run} == run
    assert api_call(monkeypatch, tmp_path, "lstm", toy_text, "--tie")["settings"].explicit == {"tie": True}
    plain = api_call(monkeypatch, tmp_path, "lstm", toy_text)
    assert plain["settings"].explicit == {}
    assert plain["settings"].tokenizer == TokenizerConfig(kind="word")
    assert (plain["resume"], plain["tensorboard"]) == (False, False)


NETWORK = (
    *("--hidden", 8, "--layers", 2, "--embedding", 4, "--dropout", 0, "--attention", "dot", "--bptt", 5),
    *("--batch-size", 3, "--epochs", 1, "--max-seconds", 2.5, "--optimizer", "sgd", "--learning-rate", 0.5),
    *("--clip", 0, "--init", "he", "--precision", "bf16"),
)


def api_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: object) -> dict[str, Any]:
    """The arguments of `api.train`; nothing is trained."""
    received: dict[str, Any] = {}

    def stop(family: str, text: object, **given: Any) -> None:
        options = given.pop("options")
        received.update(
            {f.name: getattr(options, f.name) for f in dataclasses.fields(options)} | given, family=family
        )
        raise InputError("seen")

    monkeypatch.setattr(api, "train", stop)
    assert "seen" in run_error(3, "train", *arguments, "--out", tmp_path / "m")
    return received


def test_help_names_every_family() -> None:
    assert (
        FAMILIES.removeprefix("Model family: ").removesuffix(".").replace(" or ", ", ").split(", ")
        == families.trainable()
    )


def test_checkpoint_is_never_lost_without_force(
    tmp_path: Path, toy_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chainrule.storage import verified_dir

    out, checkpoint = tmp_path / "m", tmp_path / "m" / "checkpoint"

    def fill(root: Path) -> None:
        write(root / "weights", b"1")

    verified_dir.write(checkpoint, fill, {})
    message = run_error(2, "train", "ngram", toy_text, "--out", out, *SMALL)
    assert f"{out} contains an unfinished run" in message
    assert "--resume, or discard it with --force" in message
    assert verified_dir.open_dir(checkpoint).bytes("weights") == b"1"
    with locked_by_another_thread(out):  # by a running process, whose checkpoint must not be removed
        assert "being written by another run" in run_error(2, "train", "ngram", toy_text, "--out", out, *SMALL)
    assert api_call(monkeypatch, tmp_path, "ngram", toy_text, *SMALL, "--resume")["resume"] is True
    assert "continue it by running the same command with --resume" in run_error(3, "info", out)


@pytest.mark.parametrize("family", ["fivegram", "mixture"])
def test_untrainable_family_is_rejected_whatever_is_set(tmp_path: Path, toy_text: Path, family: str) -> None:
    message = run_error(2, "train", family, toy_text, "--out", tmp_path / "m", "--set", "seed=1")
    assert "there is no family" in message or "with chainrule mix" in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[run]\ncontext = 'page'\n", "run.context is 'page'; choose one of line, stream"),
        ("[run]\nseed = -1\n", "run.seed is -1; choose 0 or more"),
        ("[run]\nvalid = 'v.txt'\n", "[run] has no setting 'valid'"),
        ("[model]\nk = 1\n[training]\nk = 2\n", "'k' is 1 in [model] and 2 in [training]; keep one"),
        ("[model]\nkind = 'char'\n", "[model] has no setting 'kind' for family 'ngram'"),
    ],
)
def test_invalid_config_tables_are_rejected(tmp_path: Path, toy_text: Path, content: str, reason: str) -> None:
    config = write(tmp_path / "c.toml", content)
    assert reason in run_error(2, "train", "ngram", toy_text, "--out", tmp_path / "m", "--config", config)
