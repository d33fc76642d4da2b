"""Recipes: settings that are known to work, a TOML file each, beside this module.

Lives here: finding and reading them. Not here: what a setting means (the configs of the families), and training.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chainrule.config import ABOUT, Choices, choices, make, read_toml
from chainrule.errors import ConfigError

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the [recipe] table tells a person, and the tables that make the model."""

    name: str
    family: str
    title: str
    text: str  # what to train on
    expected: str  # the figure it gives, in words
    time: str
    hardware: str  # on which it takes that time
    command: str
    tables: dict[str, dict[str, object]]
    task: str = "train"  # the command that follows it

    @property
    def choices(self) -> Choices:
        """Its settings, a new copy each time."""
        return choices(self.tables, f"recipe '{self.name}'")


def names() -> list[str]:
    """Every recipe there is, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def path(name: str) -> Path:
    """The file of a recipe.

    Raises:
        ConfigError: there is none of this name.

    """
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(f"there is no recipe '{name}'; {hint}")
    return FOLDER / f"{name}.toml"


def read(name: str, family: str | None = None, task: str = "train") -> Recipe:
    """A recipe by name; one for another task, or another family than `family`, is refused."""
    tables = read_toml(path(name))
    about = tables.pop(ABOUT)
    recipe = make(Recipe, {**about, "name": name, "tables": tables}, ABOUT)
    if family is not None and (family, task) != (recipe.family, recipe.task):
        command = recipe.task if recipe.task in ("train", "pretrain") else f"{recipe.task} train"
        raise ConfigError(
            f"recipe '{name}' is for family '{recipe.family}', not '{family}'; "
            f"write chainrule {command} {recipe.family} … --recipe {name}"
            if task == recipe.task
            else f"recipe '{name}' is followed by chainrule {command} {recipe.family} … --recipe {name}"
        )
    return recipe
