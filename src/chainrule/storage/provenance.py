"""Files common to all model folders: config, metrics, model card and provenance."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from chainrule.errors import ConfigError, ModelFileError, printable
from chainrule.storage import strict_json, verified_dir
from chainrule.storage.verified_dir import Content, StreamedFile, VerifiedDir
from chainrule.system import versions
from chainrule.text.fingerprint import Fingerprint

CONFIG, TOKENIZER, METRICS, CARD = "config.json", "tokenizer.json", "metrics.json", "README.md"
SKETCH = "training_lines.sketch"
LONGEST_REASON = 400  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Provenance of a model."""

    text: str = ""  # names of the training files
    fingerprint: Fingerprint | None = None
    command: str = ""
    seed: int | None = None
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    run: Path | None = None  # folder of the training run of this process; not saved

    def __post_init__(self) -> None:
        for name in ("text", "command"):  # file names need not be UTF-8, stored JSON must be
            object.__setattr__(self, name, getattr(self, name).encode(errors="replace").decode())

    @classmethod
    def now(cls, *, text: str, command: str, **fields: Any) -> Self:
        """Return the origin of a model created now by this version of chainrule."""
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return cls(text=text, command=command, created=created, versions=versions(), **fields)

    @property
    def text_sha256(self) -> str | None:
        """SHA-256 of the training text; None if unknown."""
        return self.fingerprint.sha256 if self.fingerprint else None

    def manifest_facts(self, kind: str) -> dict[str, Any]:
        """Return the provenance as it is stored in the manifest of a folder of this kind."""
        return {
            "kind": kind,
            "created": self.created,
            "command": self.command,
            "seed": self.seed,
            "training_text": {"names": self.text, "sha256": self.text_sha256},
            "versions": self.versions,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Content of the model card that depends on the kind of model."""

    title: str
    facts: Sequence[str] = ()
    usage: Sequence[str]  # commands, without `chainrule`

    def markdown(self, origin: Origin, settings: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
        """Return the model card: provenance, settings, metrics and usage."""
        training_text = f"Training text: {origin.text}, sha256 {origin.text_sha256 or 'unknown'}"
        facts = "\n".join(f"- {fact}" for fact in (training_text, *self.facts))
        commands = "\n".join(f"    chainrule {command}" for command in self.usage)
        return f"""# {self.title}

Made by chainrule {origin.versions.get("chainrule", "")} on {origin.created}, with

    {origin.command}

{facts}

| setting | value |
|---|---|
{_rows(settings)}

| figure | value |
|---|---|
{_rows(metrics)}

Use it:

{commands}
"""


def _rows(values: Mapping[str, Any]) -> str:
    return "\n".join(f"| {key} | {value} |" for key, value in values.items()) or "| none | |"


def save(
    path: Path,
    kind: str,
    files: Mapping[str, Content],
    *,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    origin: Origin,
    card: Card,
    force: bool = False,
) -> None:
    """Save a model to a folder; `force` allows replacing another model or an unfinished run.

    `config["model"]` contains the settings listed in the model card.
    """
    described = {
        CONFIG: strict_json.dump(config),
        METRICS: strict_json.dump(metrics),
        CARD: card.markdown(origin, config["model"] or {}, metrics).encode(),
    }
    write(path, kind, {**files, **described}, origin, force=force)


def write(path: Path, kind: str, files: Mapping[str, Content], origin: Origin, *, force: bool = False) -> None:
    """Write these files and their manifest as one folder; `force` as in `save`."""

    def fill(temporary: Path) -> None:
        for name, content in files.items():
            verified_dir.write_file(temporary / name, content)

    content_ids = {
        name: content.content_id
        for name, content in files.items()
        if isinstance(content, StreamedFile) and content.content_id is not None
    }
    optional = [
        name for name, content in files.items() if isinstance(content, StreamedFile) and content.is_optional
    ]
    facts = origin.manifest_facts(kind)
    with verified_dir.lock(path):
        verified_dir.write(path, fill, facts, content_ids, optional=optional, force=force, run=origin.run)


def read_origin(folder: VerifiedDir) -> Origin:
    """Read the provenance of a model from the manifest of its folder."""
    facts: dict[str, Any] = dict(folder.facts)
    match facts:
        case {
            "training_text": {"names": str(text), "sha256": str() | None as sha256},
            "command": str(command),
            "seed": int() | None as seed,
            "created": str(created),
            "versions": dict(saved_versions),
        } if all(isinstance(version, str) for version in saved_versions.values()):
            pass
        case _:
            source = folder.path / verified_dir.MANIFEST
            raise ModelFileError(
                f"{source} has no provenance record (training text and command); {verified_dir.REMEDY}"
            )
    sketch = folder.bytes(SKETCH) if SKETCH in folder.files else b""
    if len(sketch) % 8:
        source = folder.path / SKETCH
        raise ModelFileError(f"{source} has {len(sketch)} bytes, not a multiple of 8; {verified_dir.REMEDY}")
    fingerprint = None if sha256 is None else Fingerprint(sha256, np.frombuffer(sketch, dtype="<u8"))
    return Origin(
        text=text, fingerprint=fingerprint, command=command, seed=seed, created=created, versions=saved_versions
    )


@contextmanager
def translate_config_errors(folder: VerifiedDir) -> Iterator[None]:
    """Convert errors raised while parsing a checksum-valid folder into `ModelFileError`."""
    try:
        yield
    except (
        ConfigError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        reason = str(error) if isinstance(error, ConfigError) else repr(error)
        reason = printable(reason)[:LONGEST_REASON]  # it may quote the file
        raise ModelFileError(
            f"{folder.path / CONFIG} is not a config of this version of chainrule: {reason}"
        ) from error


def usage_hint(task: str, path: str | Path) -> str:
    """Return the sentence that names the command for a model of this task."""
    if task == "pretrain":
        return f"it is a pretrained encoder: chainrule tag train … --pretrained {path}"
    if task == "vectors":
        return f"it contains word vectors: chainrule vectors neighbors {path} WORD"
    if task == "id shards":
        return f"it contains token ids: chainrule train ngram {path}"
    return f"use it with chainrule {printable(task)[:40]} predict {path}"
