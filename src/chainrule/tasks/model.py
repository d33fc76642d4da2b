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
        parts = ModelParts(
            task=self.task,
            config=self.config,
            tokenizers=self.tokenizers,
            extra=self.extra,
            origin=self.origin,
            metrics=self.metrics,
            log=self.log,
        )
        save(path, parts, self.files(), force=force)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """Everything stored in a task's model folder except the weights."""

    task: str  # "translate", "tag", "classify", "pretrain": the command
    config: Any  # a frozen dataclass
    tokenizers: Mapping[str, Tokenizer]  # by role: "text", or "source" and "target"
    extra: Mapping[str, Any]  # task-specific JSON: labels, tags
    origin: Origin
    metrics: Mapping[str, Any]
    log: bytes = b""


def save(path: str | Path, parts: ModelParts, weights: Mapping[str, Content], *, force: bool = False) -> None:
    """Write the model folder; an existing model or unfinished run is replaced only with `force`."""
    config = {
        "task": parts.task,
        "model": settings.to_json(parts.config),
        "tokenizers": {role: settings.to_json(t.config) for role, t in parts.tokenizers.items()},
        **parts.extra,
    }
    tokenizers = {
        tokenizer_file(role): tokenizer.to_json().encode() for role, tokenizer in parts.tokenizers.items()
    }
    log = {LOG_FILE: parts.log} if parts.log else {}
    usage = provenance.usage_hint(parts.task, "THIS_FOLDER").partition("chainrule ")[2]
    provenance.save(
        Path(path),
        parts.task,
        {**weights, **log, **tokenizers},
        config=config,
        metrics=dict(parts.metrics),
        origin=parts.origin,
        card=Card(title=f"A model made by chainrule {parts.task}", usage=[usage]),
        force=force,
    )


def read(
    folder: VerifiedDir, task: str, kind: type[C], roles: Callable[[C], Collection[str]] = lambda _: ("text",)
) -> ModelParts:
    """Read everything but the weights; `kind` is the config class, `roles` maps a config to tokenizer roles."""
    config = read_json(folder, provenance.CONFIG)
    if config.get("task") != task:
        hint = "it is not a task model"
        if "task" in config:
            hint = provenance.usage_hint(str(config["task"]), folder.path)
        raise ModelFileError(f"{folder.path} was not made by chainrule {task}: {hint}")
    with provenance.translate_config_errors(folder):
        model_config = settings.build_config(kind, config["model"], "model", is_saved=True)
        return ModelParts(
            task=task,
            config=model_config,
            tokenizers={
                role: read_tokenizer(folder, config["tokenizers"][role], role) for role in roles(model_config)
            },
            extra={k: v for k, v in config.items() if k not in ("task", "model", "tokenizers")},
            origin=provenance.read_origin(folder),
            metrics=read_json(folder, provenance.METRICS),
            log=folder.bytes(LOG_FILE) if LOG_FILE in folder.files else b"",
        )


def saved_fields(parts: ModelParts) -> dict[str, Any]:
    """Return the fields of `TaskModel` as read from a model folder."""
    return {"config": parts.config, "origin": parts.origin, "metrics": dict(parts.metrics), "log": parts.log}
