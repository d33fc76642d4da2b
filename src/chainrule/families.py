"""Registries of model families and tasks.

Each entry names a module, or an object in it after a colon, which is imported on first use. A family implements
`Family`; the module of a task provides `load`, which reads a model from an open folder.
"""

import os
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any, Final, Protocol, cast

from chainrule.config import setting_names
from chainrule.data.training_data import TrainingData
from chainrule.errors import ConfigError, MissingExtra
from chainrule.lm import AnyModel, Context, Vocabulary
from chainrule.neural.cells import CELLS
from chainrule.storage.verified_dir import Content, VerifiedDir

FAMILIES: Final[Mapping[str, str]] = {
    "ngram": "chainrule.ngram.family",
    "feedforward": "chainrule.neural.feedforward:family",
    **{name: f"{cell.module}:family" for name, cell in CELLS.items()},
    "transformer": "chainrule.neural.transformer:family",
    "mixture": "chainrule.mixture",
    "sharded-ngram": "chainrule.ngram.sharded",
}

TASKS: Final[Mapping[str, str]] = {
    "translate": "chainrule.tasks.translate",
    "tag": "chainrule.tasks.tag",
    "classify": "chainrule.tasks.classify",
    "pretrain": "chainrule.tasks.pretrain",
    "vectors": "chainrule.embeddings.storage",
}


class Family(Protocol):
    """Interface of a model family."""

    Config: type[Any]
    """Frozen dataclass of the family's settings; its defaults give a good model."""

    def train(self, data: TrainingData, config: Any) -> AnyModel:
        """Train a model."""
        ...

    def files(self, lm: Any) -> Mapping[str, Content]:
        """Return the files of a saved model other than its config: file name -> content."""
        ...

    def load(
        self, files: VerifiedDir, config: Any, vocabulary: Vocabulary, context: Context, device: str = "auto"
    ) -> AnyModel:
        """Load a model from its files; `device` is used by neural families."""
        ...

    def parameters(self, lm: Any) -> int:
        """Return the number of estimated parameters."""
        ...

    def candidates(self) -> list[Any]:
        """Return the configs trained by `compare`."""
        ...

    def facets(self, config: Any) -> dict[str, str | int]:
        """Return the settings that distinguish candidates in a table, e.g. order, smoothing, width."""
        ...


def get(name: str) -> Family:
    """Return the family of this name."""
    if name not in FAMILIES:
        raise ConfigError(f"there is no family '{name}'; choose one of {', '.join(trainable())}")
    return cast(Family, _import(name, FAMILIES[name]))


def get_task(name: str) -> Any:
    """Return the module of a task."""
    if name not in TASKS:
        raise ConfigError(f"there is no task '{name}'; choose one of {', '.join(TASKS)}")
    return _import(name, TASKS[name])


def _import(name: str, target: str) -> Any:
    """Import a module, or an object of it after a colon."""
    module, _, attribute = target.partition(":")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning OpenMP threads of torch slow a shared machine
    try:
        imported = import_module(module)
        return getattr(imported, attribute) if attribute else imported
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"'{name}' needs torch: pip install 'chainrule[neural]'") from error


def is_builtin(name: str) -> bool:
    """Whether a family is part of chainrule rather than a plug-in."""
    return FAMILIES.get(name, "chainrule.").startswith("chainrule.")


def check_setting_names(family: str, names: Collection[str]) -> None:
    """Raise ConfigError for a setting that belongs only to other families, which the message names."""
    known = setting_names(get(family).Config)
    for name in names:
        owners = [] if name in known else [other for other in trainable() if name in _settings_of(other)]
        if owners:
            raise ConfigError(f"'{name}' is a setting of {', '.join(owners)}, not of {family}; leave it out")


def _settings_of(family: str) -> list[str]:
    try:
        return setting_names(get(family).Config)
    except MissingExtra:
        return []


def trainable() -> list[str]:
    """Return the families that are trained on text: all but `mixture` and `sharded-ngram`."""
    return [name for name in FAMILIES if name not in ("mixture", "sharded-ngram")]
