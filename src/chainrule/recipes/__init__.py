"""Recipes: tested settings in TOML files in this folder."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chainrule.config import RECIPE_TABLE, ConfigOverrides, build_config, overrides_from_tables, read_toml
from chainrule.errors import ConfigError

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Description of a recipe (the [recipe] table) and its settings."""

    name: str
    family: str
    title: str
    text: str  # training text
    expected: str  # expected result, in words
    time: str
    hardware: str  # machine on which the time was measured
    command: str
    tables: dict[str, dict[str, object]]
    task: str = "train"  # command that uses the recipe

    @property
    def choices(self) -> ConfigOverrides:
        """Settings of the recipe, as a new copy."""
        return overrides_from_tables(self.tables, f"recipe '{self.name}'")


def names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def path(name: str) -> Path:
    """Return the file of a recipe.

    Raises:
        ConfigError: there is no recipe of this name.

    """
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(f"there is no recipe '{name}'; {hint}")
    return FOLDER / f"{name}.toml"


def read(name: str, family: str | None = None, task: str = "train") -> Recipe:
    """Read a recipe by name; raise ConfigError if it is for another task or family."""
    tables = read_toml(path(name))
    about = tables.pop(RECIPE_TABLE)
    recipe = build_config(Recipe, {**about, "name": name, "tables": tables}, RECIPE_TABLE)
    if family is not None and (family, task) != (recipe.family, recipe.task):
        command = recipe.task if recipe.task in ("train", "pretrain") else f"{recipe.task} train"
        raise ConfigError(
            f"recipe '{name}' is for family '{recipe.family}', not '{family}'; "
            f"write chainrule {command} {recipe.family} … --recipe {name}"
            if task == recipe.task
            else f"recipe '{name}' is for chainrule {command} {recipe.family} … --recipe {name}"
        )
    return recipe
