"""Base class of task models, and their folder: config, tokenizers, weights, metrics, model card and manifest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from chainrule import config as settings
from chainrule.errors import ModelFileError
from chainrule.storage import provenance
from chainrule.storage.provenance import Card, Origin
from chainrule.storage.verified_dir import Content, VerifiedDir, read_json
from chainrule.tokenizers.tokenizer import Tokenizer, read_tokenizer, tokenizer_file

LOG_FILE = "train_log.jsonl"
C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TaskModel(ABC):
    """A trained model with its settings, provenance, metrics and training log."""

    task: ClassVar[str]  # the command that trains it, also stored in the folder
    noun: ClassVar[str]  # "tagger", "translator", …
    config: Any  # a frozen dataclass with a field `family`
    origin: Origin = field(default_factory=Origin)
    metrics: dict[str, Any] = field(default_factory=dict)
    log: bytes = b""  # training log as JSON Lines

    def __repr__(self) -> str:
        return f"<{self.config.family} {self.noun} of {self.origin.text}: {self.summary}>"

    @property
    def summary(self) -> str:
        """Size of the model, for `repr`."""
        return f"{self.parameters:,} parameters"

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Number of estimated parameters; tied matrices count once."""

    @property
    @abstractmethod
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Tokenizers by role: "text", or "source" and "target"."""

    @abstractmethod
    def files(self) -> Mapping[str, Content]:
        """Weight files of the model folder."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """Task-specific JSON in the config file."""
        return {}

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; an existing model or unfinished run is replaced only with `force`."""
        config = {
            "task": self.task,
            "model": settings.to_json(self.config),
            "tokenizers": {role: settings.to_json(t.config) for role, t in self.tokenizers.items()},
            **self.extra,
        }
        tokenizers = {tokenizer_file(role): t.to_json().encode() for role, t in self.tokenizers.items()}
        log = {LOG_FILE: self.log} if self.log else {}
        usage = provenance.usage_hint(self.task, "THIS_FOLDER").partition("chainrule ")[2]
        provenance.save(
            Path(path),
            self.task,
            {**self.files(), **log, **tokenizers},
            config=config,
            metrics=self.metrics,
            origin=self.origin,
            card=Card(title=f"A model made by chainrule {self.task}", usage=[usage]),
            force=force,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NetworkModel(TaskModel):
    """A task model whose weights are one network."""

    network: Any  # an nn.Module

    @property
    def parameters(self) -> int:
        """Number of weights; tied matrices count once."""
        return sum(p.numel() for p in self.network.parameters())

    def files(self) -> Mapping[str, Content]:
        """Weights as safetensors."""
        from chainrule.neural import weights

        return {weights.FILE: weights.serialize(self.network)}


def read(
    folder: VerifiedDir, task: str, kind: type[C], roles: Callable[[C], Collection[str]] = lambda _: ("text",)
) -> tuple[dict[str, Any], dict[str, Tokenizer], dict[str, Any]]:
    """Read everything but the weights: the fields of `TaskModel`, the tokenizers by role, and `extra`.

    `kind` is the config class; `roles` maps a config to the roles of its tokenizers.
    """
    config = read_json(folder, provenance.CONFIG)
    if config.get("task") != task:
        hint = "it is not a task model"
        if "task" in config:
            hint = provenance.usage_hint(str(config["task"]), folder.path)
        raise ModelFileError(f"{folder.path} was not made by chainrule {task}: {hint}")
    with provenance.translate_config_errors(folder):
        model_config = settings.build_config(kind, config["model"], "model", is_saved=True)
        tokenizers = {
            role: read_tokenizer(folder, config["tokenizers"][role], role) for role in roles(model_config)
        }
        fields = {
            "config": model_config,
            "origin": provenance.read_origin(folder),
            "metrics": read_json(folder, provenance.METRICS),
            "log": folder.bytes(LOG_FILE) if LOG_FILE in folder.files else b"",
        }
        return fields, tokenizers, {k: v for k, v in config.items() if k not in ("task", "model", "tokenizers")}
