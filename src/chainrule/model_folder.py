"""Save and load model folders.

Files: `config.json`, `tokenizer.json`, n-gram tables or network weights, speller, metrics, model card, manifest.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule import config as settings
from chainrule import families
from chainrule.errors import ConfigError, ModelFileError, VocabularyError, printable
from chainrule.lm import Context
from chainrule.model import Model, Origin
from chainrule.ngram.oov_speller import Speller
from chainrule.storage import manifest, verified_dir
from chainrule.storage.verified_dir import Content, SelfVerifyingFile, VerifiedDir, dump_json, read_json
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers.config import TokenizerConfig, saved_settings
from chainrule.tokenizers.tokenizer import Tokenizer


def model_card(model: Model) -> str:
    """Return the model card as Markdown: provenance, settings, metrics and usage."""
    name = f"{model.family} language model"
    origin = model.origin
    settings_rows = "\n".join(f"| {key} | {value} |" for key, value in settings.to_json(model.config).items())
    metric_rows = "\n".join(f"| {key} | {value} |" for key, value in model.metrics.items()) or "| none | |"
    return f"""# {name}

Made by chainrule {origin.versions.get("chainrule", "")} on {origin.created}, with

    {origin.command}

- Training text: {origin.text}, sha256 {origin.fingerprint.sha256 if origin.fingerprint else "unknown"}
- Tokenizer: {model.tokenizer.config.kind}, {model.tokenizer.vocab_size} ids
- Context: {model.lm.context}
- Parameters: {model.parameters}
{"" if model.lm.is_normalized else "- Gives scores, not probabilities."}
| setting | value |
|---|---|
{settings_rows}

| figure | value |
|---|---|
{metric_rows}

Use it:

    chainrule generate THIS_FOLDER
    chainrule evaluate THIS_FOLDER text.txt
"""


CONFIG, TOKENIZER, METRICS, CARD = "config.json", "tokenizer.json", "metrics.json", "README.md"
LONGEST_REASON = 400
SPELLER, SKETCH = "speller.safetensors", "training_lines.sketch"


def save(model: Model, path: Path, *, force: bool = False) -> None:
    """Save a model to a folder; `force` allows replacing another model or an unfinished run."""
    family = families.get(model.family)
    files = {**family.files(model.lm), **_tokenizer_files(model.tokenizer)}
    config = {
        "family": model.family,
        "context": model.lm.context,
        "model": settings.to_json(model.config),
        "tokenizer": settings.to_json(model.tokenizer.config),
    }
    files[CONFIG] = dump_json(config)
    files[METRICS] = dump_json(model.metrics)
    files[CARD] = model_card(model).encode()
    if model.speller is not None:
        files[SPELLER] = model.speller.to_bytes()
    if model.origin.fingerprint is not None:
        files[SKETCH] = model.origin.fingerprint.to_bytes()
    write(path, files, "model", model.origin, force=force)


def load(path: str | Path, device: str = "auto", *, verify: bool = False) -> Model:
    """Load a language model from a folder after verifying its files.

    The tables of an n-gram model are verified block by block on first use, or completely (SHA-256) with `verify`.
    """
    verified = verified_dir.read(Path(path), verify=verify)
    config = read_json(verified, CONFIG)
    if "task" in config:
        raise ModelFileError(f"{path} is not a language model: {usage_hint(str(config['task']), path)}")
    if "family" not in config:
        raise ModelFileError(f"{path} holds a tokenizer, not a model; give a model folder")
    if families.is_builtin(str(config["family"])):
        with translate_config_errors(verified):
            return _load(verified, config, str(path), device)
    with translate_config_errors(verified):  # errors raised by the code of a plug-in are not errors of the config
        _read_model_config(verified, config)
    return _load(verified, config, str(path), device)


def _read_model_config(verified: VerifiedDir, config: dict[str, Any]) -> tuple[families.Family, Tokenizer, Any]:
    """Parse `config.json`: the family, the tokenizer and the config of the model."""
    family = families.get(str(config["family"]))
    tokenizer = _read_tokenizer(verified, config)
    model_config = settings.build_config(family.Config, config["model"], "model", is_saved=True)
    if config["context"] not in get_args(Context):
        raise ConfigError(f"context is {config['context']!r}; it must be one of {', '.join(get_args(Context))}")
    return family, tokenizer, model_config


def _load(verified: VerifiedDir, config: dict[str, Any], name: str, device: str) -> Model:
    family, tokenizer, model_config = _read_model_config(verified, config)
    lm = family.load(verified, model_config, tokenizer.vocabulary, config["context"], device)
    if lm.vocabulary.size != tokenizer.vocab_size:
        raise VocabularyError(
            f"the model was built for {lm.vocabulary.size} ids but {TOKENIZER} makes {tokenizer.vocab_size}"
        )
    return Model(
        lm=lm,
        tokenizer=tokenizer,
        family=config["family"],
        config=model_config,
        speller=_read_speller(verified, tokenizer) if SPELLER in verified.files else None,
        origin=read_origin(verified),
        metrics=read_json(verified, METRICS),
        name=name,
    )


def _read_speller(verified: VerifiedDir, tokenizer: Tokenizer) -> Speller:
    return Speller.from_bytes(verified.bytes(SPELLER), str(verified.path / SPELLER), tokenizer.vocabulary_words)


def usage_hint(task: str, path: str | Path) -> str:
    """Return the sentence that names the command for a model of this task."""
    if task == "pretrain":
        return f"it is an encoder to begin a task from: chainrule tag train … --pretrained {path}"
    if task == "vectors":
        return f"it holds word vectors: chainrule vectors neighbors {path} WORD"
    return f"use it with chainrule {printable(task)[:40]} predict {path}"


def save_tokenizer(tokenizer: Tokenizer, path: Path, origin: Origin, *, force: bool = False) -> None:
    """Save a tokenizer to a folder; `force` as in `save`."""
    files = _tokenizer_files(tokenizer)
    files[CONFIG] = dump_json({"tokenizer": settings.to_json(tokenizer.config)})
    write(path, files, "tokenizer", origin, force=force)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a tokenizer folder or a model folder."""
    verified = verified_dir.read(Path(path))
    with translate_config_errors(verified):
        return _read_tokenizer(verified, read_json(verified, CONFIG))


@contextmanager
def translate_config_errors(verified: VerifiedDir) -> Iterator[None]:
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
        raise ModelFileError(f"{verified.path / CONFIG} is not a config of this chainrule: {reason}") from error


def _tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    return {TOKENIZER: tokenizer.to_json().encode()}


def _read_tokenizer(verified: VerifiedDir, config: dict[str, Any]) -> Tokenizer:
    saved = config["tokenizers"]["text"] if "tokenizers" in config else config.get("tokenizer", {})
    tokenizer_config = settings.build_config(TokenizerConfig, saved_settings(saved), "tokenizer", is_saved=True)
    return Tokenizer.from_json(verified.bytes(TOKENIZER), tokenizer_config, str(verified.path / TOKENIZER))


def write(path: Path, files: Mapping[str, Content], kind: str, origin: Origin, *, force: bool = False) -> None:
    """Write these files and their manifest as one folder; `force` as in `save`."""

    def fill(temporary: Path) -> None:
        for name, content in files.items():
            verified_dir.write_file(temporary / name, content)

    content_ids = {
        name: content.content_id for name, content in files.items() if isinstance(content, SelfVerifyingFile)
    }
    with verified_dir.lock(path):
        verified_dir.write(path, fill, manifest_facts(kind, origin), content_ids, force=force, run=origin.run)


def manifest_facts(kind: str, origin: Origin) -> dict[str, Any]:
    """Return the provenance that is stored in the manifest of a folder of this kind."""
    sha256 = origin.fingerprint.sha256 if origin.fingerprint else None
    return {
        "kind": kind,
        "created": origin.created,
        "command": origin.command,
        "seed": origin.seed,
        "training_text": {"names": origin.text, "sha256": sha256},
        "versions": origin.versions,
    }


def read_origin(verified: VerifiedDir) -> Origin:
    """Read the provenance of a model from the manifest of its folder."""
    facts: dict[str, Any] = dict(verified.facts)
    _check_facts(facts, verified.path / manifest.NAME)
    text = facts["training_text"]
    sketch = None
    if SKETCH in verified.files:
        sketch = _read_sketch(verified)
    elif text["sha256"] is not None:
        sketch = np.empty(0, np.uint64)
    return Origin(
        text=text["names"],
        fingerprint=None if sketch is None else Fingerprint(text["sha256"], sketch),
        command=facts["command"],
        seed=facts["seed"],
        created=facts["created"],
        versions=facts["versions"],
    )


def _check_facts(facts: Mapping[str, Any], source: Path) -> None:
    """Raise ModelFileError unless the provenance is complete and has the types written by `manifest_facts`."""
    match facts:
        case {
            "training_text": {"names": str(), "sha256": str() | None},
            "command": str(),
            "seed": int() | None,
            "created": str(),
            "versions": dict(versions),
        } if all(isinstance(version, str) for version in versions.values()):
            return
    raise ModelFileError(f"{source} does not say where the model comes from; {manifest.REMEDY}")


def _read_sketch(verified: VerifiedDir) -> NDArray[np.uint64]:
    """Read the sorted hashes of the training lines."""
    content = verified.bytes(SKETCH)
    if len(content) % 8:
        raise ModelFileError(
            f"{verified.path / SKETCH} has {len(content)} bytes, not a multiple of 8; {manifest.REMEDY}"
        )
    return np.frombuffer(content, dtype="<u8")
