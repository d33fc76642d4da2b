"""Every recipe has valid settings for its family, and its command names it."""

import shlex
from pathlib import Path

import pytest

from chainrule import families, recipes
from chainrule.config import TABLES, ConfigOverrides, RunConfig, build_config, flatten
from chainrule.errors import ConfigError
from chainrule.tokenizers.config import TokenizerConfig

ALL = recipes.names()


def test_recipe_names() -> None:
    families_of = {"ptb": {"feedforward", "rnn", "gru", "lstm", "transformer", "awd-lstm"}}
    families_of |= {
        "wikitext2": {"awd-lstm"},
        "shakespeare": {"transformer"},
        "small": {"rnn", "lstm", "transformer"},
    }
    models = [name for name in ALL if recipes.read(name).task == "train"]
    assert sorted(f"{text}-{kind}" for text, kinds in families_of.items() for kind in kinds) == models
    assert {recipes.read(name).task for name in ALL} <= {"train", *families.TASKS}
    assert all(recipes.path(name).is_relative_to(Path(recipes.__file__).parent) for name in ALL)


@pytest.mark.parametrize("name", ALL)
def test_recipe_has_valid_settings(name: str) -> None:
    chosen = recipes.read(name).choices
    family = recipes.read(name).family
    task = recipes.read(name).task
    kind = families.get(family).Config if task == "train" else families.get_task(task).Config
    own = chosen.model if task == "train" else {"family": family, **chosen.model}
    config = build_config(kind, own, "model", family)
    assert {setting: flatten(config)[setting] for setting in own} == own
    build_config(TokenizerConfig, chosen.tokenizer, "tokenizer")
    assert build_config(RunConfig, chosen.run, "run").context == ("stream" if task == "train" else "line")


@pytest.mark.parametrize("name", ALL)
def test_recipe_is_complete(name: str) -> None:
    recipe = recipes.read(name)
    assert list(recipe.tables) == ["tokenizer", "run", "model", "training"]
    assert set(recipe.tables) == set(TABLES)
    assert all((recipe.title, recipe.text, recipe.expected, recipe.time, recipe.hardware))
    words = shlex.split(recipe.command)
    command = [recipe.task] if recipe.task in ("train", "pretrain") else [recipe.task, "train"]
    assert words[: len(command) + 2] == ["chainrule", *command, recipe.family]
    assert words[words.index("--recipe") + 1] == name
    assert "--out" in words


def test_recipe_sizes() -> None:
    """The known sizes of the recipes."""
    known: dict[str, dict[str, object]] = {
        "ptb-lstm": {"layers": 2, "hidden": 650},
        "ptb-awd-lstm": {"embedding": 512, "hidden": 1024, "layers": 3, "precision": "fp16"},
        "shakespeare-transformer": {"layers": 6, "hidden": 384, "heads": 6, "window": 256, "precision": "bf16"},
    }
    for name, sizes in known.items():
        chosen = recipes.read(name).choices.model
        assert {setting: chosen[setting] for setting in sizes} == sizes


def test_recipe_choices_are_a_copy() -> None:
    recipe = recipes.read("ptb-lstm")
    recipe.choices.tokenizer.clear()
    recipe.choices.model.clear()
    assert recipe.choices.tokenizer == {"kind": "whitespace"}
    assert recipe.choices != ConfigOverrides()


def test_unknown_recipe_suggests_a_similar_name() -> None:
    with pytest.raises(ConfigError, match=r"there is no recipe 'ptb-lsmt'; did you mean 'ptb-lstm'\?"):
        recipes.read("ptb-lsmt")
    with pytest.raises(ConfigError, match=r"there is no recipe 'zzz'; choose one of .*, ptb-awd-lstm, "):
        recipes.read("zzz")
    with pytest.raises(ConfigError, match="there is no recipe"):
        recipes.path("../recipes/ptb-lstm")


def test_recipe_of_another_family_is_rejected() -> None:
    assert recipes.read("ptb-lstm", "lstm").family == "lstm"
    with pytest.raises(
        ConfigError, match="'ptb-lstm' is for family 'lstm', not 'gru'; write chainrule train lstm … "
    ):
        recipes.read("ptb-lstm", "gru")
    with pytest.raises(ConfigError, match="is for chainrule translate train gru … --recipe multi30k-none"):
        recipes.read("multi30k-none", "gru")
