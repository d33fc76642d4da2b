"""Save and load the model folder of a task: config, tokenizers, weights, metrics, model card and manifest."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
