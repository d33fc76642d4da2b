"""The table of families: the one place to add one.

Each module named here, or the object of it after a colon, offers what `Family` lists; it is imported when it is
first asked for.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, Final, Protocol, cast

from chainrule.data.training import TrainingData
from chainrule.errors import ConfigError, MissingExtra
from chainrule.folder import Content, Sealed
from chainrule.lm import AnyModel, Context, Vocabulary

FAMILIES: Final[Mapping[str, str]] = {
    "ngram": "chainrule.ngram.family",
    "feedforward": "chainrule.neural.feedforward:family",
    "rnn": "chainrule.neural.rnn:family",
    "lstm": "chainrule.neural.lstm:family",
    "gru": "chainrule.neural.gru:family",
    "transformer": "chainrule.neural.transformer:family",
    "mixture": "chainrule.mixture",
}


class Family(Protocol):
    """What a family's module, or the object named in it, offers."""

    Config: type[Any]
    """A frozen dataclass: what can be chosen; its defaults make a good model."""

    def train(self, data: TrainingData, config: Any) -> AnyModel:
        """Learn."""
        ...

    def files(self, lm: Any) -> Mapping[str, Content]:
        """What a saved model holds beside its config: file name -> content."""
        ...

    def load(
        self, files: Sealed, config: Any, vocabulary: Vocabulary, context: Context, device: str = "auto"
    ) -> AnyModel:
        """The model of saved files, on a device where the family can use one."""
        ...

    def parameters(self, lm: Any) -> int:
        """How many numbers were estimated."""
        ...

    def candidates(self) -> list[Any]:
        """The configs that `compare` trains: the family at its most instructive."""
        ...

    def facets(self, config: Any) -> dict[str, str | int]:
        """What to tell candidates apart by: order, smoothing, width."""
        ...


def get(name: str) -> Family:
    """A family by name."""
    if name not in FAMILIES:
        raise ConfigError(f"there is no family '{name}'; choose one of {', '.join(trainable())}")
    module, _, attribute = FAMILIES[name].partition(":")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch's threads else spin, and slow a shared machine
    try:
        found = import_module(module)
        return cast(Family, getattr(found, attribute) if attribute else found)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"'{name}' needs torch: pip install 'chainrule[neural]'") from error


def is_builtin(name: str) -> bool:
    """Whether a family is part of chainrule; False for those that others add."""
    return FAMILIES.get(name, "chainrule.").startswith("chainrule.")


def check_settings(family: str, names: Collection[str]) -> None:
    """Refuse a setting that another family has and this one does not, saying whose it is."""
    own = {field.name for field in fields(get(family).Config)}
    for name in names:
        owners = [] if name in own else [other for other in trainable() if name in _settings_of(other)]
        if owners:
            raise ConfigError(f"'{name}' is a setting of {', '.join(owners)}, not of {family}; leave it out")


def _settings_of(family: str) -> set[str]:
    try:
        return {field.name for field in fields(get(family).Config)}
    except MissingExtra:
        return set()


def trainable() -> list[str]:
    """The families that learn from text; a mixture is made of models instead."""
    return [name for name in FAMILIES if name != "mixture"]
