"""`chainrule recipes`: the shelf as a table, one recipe as the file it is."""

import tomllib
from pathlib import Path

import pytest

from chainrule import recipes
from cli.command import done, refused


def test_the_list() -> None:
    outcome = done("recipes")
    header, *lines = outcome.out.splitlines()
    assert header.split() == ["name", "task", "family", "text", "expected", "time", "hardware"]
    begun = [line.split() for line in lines if not line.startswith(" ")]
    assert [words[0] for words in begun] == recipes.names()
    assert [words[2] for words in begun] == [recipes.read(words[0]).family for words in begun]
    assert max(map(len, lines)) <= 120
    assert "chainrule recipes NAME prints one" in outcome.err


def test_one_is_printed_as_it_is() -> None:
    shown = done("recipes", "ptb-lstm")
    assert shown.out == recipes.path("ptb-lstm").read_text(encoding="utf-8")
    assert shown.err == ""


def test_json() -> None:
    listed = done("recipes", "--json").json()
    assert [recipe["name"] for recipe in listed["recipes"]] == recipes.names()
    keys = {"name", "task", "family", "title", "text", "expected", "time", "hardware", "command"}
    assert all(recipe.keys() == keys for recipe in listed["recipes"])
    one = done("recipes", "ptb-lstm", "--json").json()
    tables = tomllib.loads(recipes.path("ptb-lstm").read_text(encoding="utf-8"))
    about = tables.pop("recipe")
    assert one == {"schema_version": 1, "name": "ptb-lstm", "task": "train"} | about | tables


def test_brackets_are_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = recipes.path("small-rnn").read_text(encoding="utf-8").replace("a text", "[red]a[/red] text")
    (tmp_path / "marked.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    assert "[red]a[/red] text" in done("recipes").out


def test_an_unknown_name() -> None:
    assert "did you mean 'small-rnn'?" in refused(2, "recipes", "smal-rnn")
