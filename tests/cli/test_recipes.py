"""`chainrule recipes`: the list as a table, one recipe as its file."""

import tomllib
from pathlib import Path

import pytest

from chainrule import recipes
from cli.command import run_error, run_ok


def test_recipes_table() -> None:
    outcome = run_ok("recipes")
    header, *lines = outcome.out.splitlines()
    assert header.split() == ["name", "task", "family", "text", "expected", "time", "hardware"]
    begun = [line.split() for line in lines if not line.startswith(" ")]
    assert [words[0] for words in begun] == recipes.names()
    assert [words[2] for words in begun] == [recipes.read(words[0]).family for words in begun]
    assert max(map(len, lines)) <= 120
    assert "chainrule recipes NAME prints a recipe" in outcome.err


def test_recipes_prints_one_file() -> None:
    output = run_ok("recipes", "ptb-lstm")
    assert output.out == recipes.path("ptb-lstm").read_text(encoding="utf-8")
    assert output.err == ""


def test_recipes_json() -> None:
    listed = run_ok("recipes", "--json").json()
    assert [recipe["name"] for recipe in listed["recipes"]] == recipes.names()
    keys = {"name", "task", "family", "title", "text", "expected", "time", "hardware", "command"}
    assert all(recipe.keys() == keys for recipe in listed["recipes"])
    one = run_ok("recipes", "ptb-lstm", "--json").json()
    tables = tomllib.loads(recipes.path("ptb-lstm").read_text(encoding="utf-8"))
    about = tables.pop("recipe")
    assert one == {"schema_version": 1, "name": "ptb-lstm", "task": "train"} | about | tables


def test_recipes_table_does_not_interpret_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = recipes.path("small-rnn").read_text(encoding="utf-8").replace("a text", "[red]a[/red] text")
    (tmp_path / "marked.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    assert "[red]a[/red] text" in run_ok("recipes").out


def test_recipes_unknown_name() -> None:
    assert "did you mean 'small-rnn'?" in run_error(2, "recipes", "smal-rnn")
