"""Base class of task models, and their folder: config, tokenizers, weights, metrics, model card and manifest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from chainrule import config as settings
from chainrule import model_folder
from chainrule.errors import ModelFileError
from chainrule.model import Origin
from chainrule.storage import verified_dir
from chainrule.storage.verified_dir import Content, VerifiedDir
from chainrule.tokenizers.config import TokenizerConfig, saved_settings
from chainrule.tokenizers.tokenizer import Tokenizer

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
        )
        save(path, parts, {**self.files(), **({LOG_FILE: self.log} if self.log else {})}, force=force)


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


def save(path: str | Path, parts: ModelParts, files: Mapping[str, Content], *, force: bool = False) -> None:
    """Write the model folder; `files` are the weights and the training log.

    An existing model or unfinished run at `path` is replaced only with `force`.
    """
    config = {
        "task": parts.task,
        "model": settings.to_json(parts.config),
        "tokenizers": {role: settings.to_json(t.config) for role, t in parts.tokenizers.items()},
        **parts.extra,
    }
    content = {
        **files,
        **{_tokenizer_file(role): t.to_json().encode() for role, t in parts.tokenizers.items()},
        model_folder.CONFIG: verified_dir.dump_json(config),
        model_folder.METRICS: verified_dir.dump_json(dict(parts.metrics)),
        model_folder.CARD: _card(parts).encode(),
    }
    model_folder.write(Path(path), content, parts.task, parts.origin, force=force)


def load(
    path: str | Path, task: str, kind: type[C], roles: Callable[[C], Collection[str]] = lambda _: ("text",)
) -> tuple[VerifiedDir, ModelParts]:
    """Verify and read a model folder; `kind` is its config class, `roles` maps a config to tokenizer roles."""
    sealed = verified_dir.read(Path(path))
    config = verified_dir.read_json(sealed, model_folder.CONFIG)
    if config.get("task") != task:
        reason = (
            model_folder.usage_hint(str(config["task"]), path) if "task" in config else "it is not a task model"
        )
        raise ModelFileError(f"{path} was not made by chainrule {task}: {reason}")
    with model_folder.translate_config_errors(sealed):
        model_config = settings.build_config(kind, config["model"], "model", is_saved=True)
        return sealed, ModelParts(
            task=task,
            config=model_config,
            tokenizers={role: _tokenizer(sealed, role, config["tokenizers"][role]) for role in roles(model_config)},
            extra={k: v for k, v in config.items() if k not in ("task", "model", "tokenizers")},
            origin=model_folder.read_origin(sealed),
            metrics=verified_dir.read_json(sealed, model_folder.METRICS),
        )


def saved_fields(files: VerifiedDir, parts: ModelParts) -> dict[str, Any]:
    """Fields of `TaskModel` as read from a model folder."""
    log = files.bytes(LOG_FILE) if LOG_FILE in files.files else b""
    return {"config": parts.config, "origin": parts.origin, "metrics": dict(parts.metrics), "log": log}


def _tokenizer_file(role: str) -> str:
    return model_folder.TOKENIZER if role == "text" else f"tokenizer.{role}.json"


def _tokenizer(sealed: VerifiedDir, role: str, tokenizer_settings: dict[str, Any]) -> Tokenizer:
    config = settings.build_config(TokenizerConfig, saved_settings(tokenizer_settings), "tokenizer", is_saved=True)
    return Tokenizer.from_json(
        sealed.bytes(_tokenizer_file(role)), config, str(sealed.path / _tokenizer_file(role))
    )


def _card(parts: ModelParts) -> str:
    origin = parts.origin
    chosen = "\n".join(f"| {key} | {value} |" for key, value in settings.to_json(parts.config).items())
    figures = "\n".join(f"| {key} | {value} |" for key, value in parts.metrics.items()) or "| none | |"
    return f"""# A model made by chainrule {parts.task}

Made by chainrule {origin.versions.get("chainrule", "")} on {origin.created}, with

    {origin.command}

- Training text: {origin.text}, sha256 {origin.fingerprint.sha256 if origin.fingerprint else "unknown"}

| setting | value |
|---|---|
{chosen}

| figure | value |
|---|---|
{figures}

Use it:

    chainrule{model_folder.usage_hint(parts.task, "THIS_FOLDER").partition("chainrule")[2]}
"""
