"""The folder of a task's model: config, tokenizers, labels, weights, figures, card, manifest.

Lives here: what the folders of all tasks share. Not here: sealing and verifying (folder.py), language models
(artifact.py).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from chainrule import artifact, folder
from chainrule import config as settings
from chainrule.errors import ModelFileError
from chainrule.folder import Content, Sealed
from chainrule.model import Origin
from chainrule.tokenizers.config import TokenizerConfig, saved_settings
from chainrule.tokenizers.tokenizer import Tokenizer

LOG = "train_log.jsonl"
C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All that a task's model is, but for its weights."""

    task: str  # "translate", "tag", "classify", "pretrain": the command that uses it
    config: Any  # a frozen dataclass
    tokenizers: Mapping[str, Tokenizer]  # by role: "text", or "source" and "target"
    more: Mapping[str, Any]  # whatever else it needs, as JSON: labels, scheme
    origin: Origin
    metrics: Mapping[str, Any]


def save(path: str | Path, parts: Parts, files: Mapping[str, Content], *, force: bool = False) -> None:
    """Write the folder at `path`; `files` are the weights and the log.

    Another model or an unfinished run there is replaced only with `force`.
    """
    config = {
        "task": parts.task,
        "model": settings.to_json(parts.config),
        "tokenizers": {role: settings.to_json(t.config) for role, t in parts.tokenizers.items()},
        **parts.more,
    }
    content = {
        **files,
        **{_file(role): t.to_json().encode() for role, t in parts.tokenizers.items()},
        artifact.CONFIG: folder.as_json(config),
        artifact.METRICS: folder.as_json(dict(parts.metrics)),
        artifact.CARD: _card(parts).encode(),
    }
    artifact.write(Path(path), content, parts.task, parts.origin, force=force)


def load(
    path: str | Path, task: str, kind: type[C], roles: Callable[[C], Collection[str]] = lambda _: ("text",)
) -> tuple[Sealed, Parts]:
    """The verified folder and what it holds; `kind` is its config's class, `roles` the tokenizers it needs."""
    sealed = folder.read(Path(path))
    config = folder.read_json(sealed, artifact.CONFIG)
    if config.get("task") != task:
        what = artifact.use_of(str(config["task"]), path) if "task" in config else "it is no model of a task"
        raise ModelFileError(f"{path} was not made by chainrule {task}: {what}")
    with artifact.refusing(sealed):
        made = settings.make(kind, config["model"], "model", is_saved=True)
        return sealed, Parts(
            task=task,
            config=made,
            tokenizers={role: _tokenizer(sealed, role, config["tokenizers"][role]) for role in roles(made)},
            more={k: v for k, v in config.items() if k not in ("task", "model", "tokenizers")},
            origin=artifact.origin_of(sealed),
            metrics=folder.read_json(sealed, artifact.METRICS),
        )


def _file(role: str) -> str:
    return artifact.TOKENIZER if role == "text" else f"tokenizer.{role}.json"


def _tokenizer(sealed: Sealed, role: str, own: dict[str, Any]) -> Tokenizer:
    config = settings.make(TokenizerConfig, saved_settings(own), "tokenizer", is_saved=True)
    return Tokenizer.from_json(sealed.bytes(_file(role)), config, str(sealed.path / _file(role)))


def _card(parts: Parts) -> str:
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

    chainrule{artifact.use_of(parts.task, "THIS_FOLDER").partition("chainrule")[2]}
"""
