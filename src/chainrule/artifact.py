"""The model folder: `config.json`, `tokenizer.json`, the tables or weights, speller, metrics, card, manifest.

Lives here: which files there are and what they mean. Not here: sealing and verifying a folder (folder.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule import config as settings
from chainrule import families, folder, manifest
from chainrule.card import model_card
from chainrule.errors import ConfigError, ModelFileError, VocabularyError, printable
from chainrule.folder import Content, Sealed, Written, as_json, read_json
from chainrule.lm import Context
from chainrule.model import Model, Origin
from chainrule.ngram.spelling import Speller
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers.config import TokenizerConfig, saved_settings
from chainrule.tokenizers.tokenizer import Tokenizer

CONFIG, TOKENIZER, METRICS, CARD = "config.json", "tokenizer.json", "metrics.json", "README.md"
LONGEST_REASON = 400
SPELLER, SKETCH = "speller.safetensors", "training_lines.sketch"


def save(model: Model, path: Path, *, force: bool = False) -> None:
    """Write a model folder at `path`; another model or an unfinished run there is replaced only with `force`."""
    family = families.get(model.family)
    files = {**family.files(model.lm), **_tokenizer_files(model.tokenizer)}
    config = {
        "family": model.family,
        "context": model.lm.context,
        "model": settings.to_json(model.config),
        "tokenizer": settings.to_json(model.tokenizer.config),
    }
    files[CONFIG] = as_json(config)
    files[METRICS] = as_json(model.metrics)
    files[CARD] = model_card(model).encode()
    if model.speller is not None:
        files[SPELLER] = model.speller.to_bytes()
    if model.origin.fingerprint is not None:
        files[SKETCH] = model.origin.fingerprint.to_bytes()
    write(path, files, "model", model.origin, force=force)


def load(path: str | Path, device: str = "auto", *, verify: bool = False) -> Model:
    """The model of a folder, verified before it is used; on a device where its family can use one.

    An n-gram's tables are verified as they are read, and all at once, with their sha256, if `verify` says so.
    """
    sealed = folder.read(Path(path), verify=verify)
    config = read_json(sealed, CONFIG)
    if "task" in config:
        raise ModelFileError(f"{path} is no language model: {use_of(str(config['task']), path)}")
    if "family" not in config:
        raise ModelFileError(f"{path} holds a tokenizer, not a model; give a model folder")
    if families.is_builtin(str(config["family"])):
        with refusing(sealed):
            return _load(sealed, config, str(path), device)
    with refusing(sealed):  # what goes wrong in the code of a plug-in is no fault of the config
        _read_model_config(sealed, config)
    return _load(sealed, config, str(path), device)


def _read_model_config(sealed: Sealed, config: dict[str, Any]) -> tuple[families.Family, Tokenizer, Any]:
    """The family, the tokenizer and the family's own config that `config.json` names."""
    family = families.get(str(config["family"]))
    tokenizer = _read_tokenizer(sealed, config)
    own = settings.make(family.Config, config["model"], "model", is_saved=True)
    if config["context"] not in get_args(Context):
        raise ConfigError(f"context is {config['context']!r}; it must be one of {', '.join(get_args(Context))}")
    return family, tokenizer, own


def _load(sealed: Sealed, config: dict[str, Any], name: str, device: str) -> Model:
    family, tokenizer, own = _read_model_config(sealed, config)
    lm = family.load(sealed, own, tokenizer.vocabulary, config["context"], device)
    if lm.vocabulary.size != tokenizer.vocab_size:
        raise VocabularyError(
            f"the model was built for {lm.vocabulary.size} ids but {TOKENIZER} makes {tokenizer.vocab_size}"
        )
    return Model(
        lm=lm,
        tokenizer=tokenizer,
        family=config["family"],
        config=own,
        speller=_read_speller(sealed, tokenizer) if SPELLER in sealed.files else None,
        origin=origin_of(sealed),
        metrics=read_json(sealed, METRICS),
        name=name,
    )


def _read_speller(sealed: Sealed, tokenizer: Tokenizer) -> Speller:
    name = str(sealed.path / SPELLER)
    speller = Speller.from_bytes(sealed.bytes(SPELLER), name)
    speller.check_outside(tokenizer.spellings_known(), name)
    return speller


def use_of(task: str, path: str | Path) -> str:
    """The command that uses the model of a task."""
    if task == "pretrain":
        return f"it is an encoder to begin a task from: chainrule tag train … --pretrained {path}"
    if task == "vectors":
        return f"it holds word vectors: chainrule vectors neighbors {path} WORD"
    return f"use it with chainrule {printable(task)[:40]} predict {path}"


def save_tokenizer(tokenizer: Tokenizer, path: Path, origin: Origin, *, force: bool = False) -> None:
    """Write a folder that holds a tokenizer alone; what it may replace is as with `save`."""
    files = _tokenizer_files(tokenizer)
    files[CONFIG] = as_json({"tokenizer": settings.to_json(tokenizer.config)})
    write(path, files, "tokenizer", origin, force=force)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a tokenizer folder or of a model folder."""
    sealed = folder.read(Path(path))
    with refusing(sealed):
        return _read_tokenizer(sealed, read_json(sealed, CONFIG))


@contextmanager
def refusing(sealed: Sealed) -> Iterator[None]:
    """Turn what shows a folder, whole by its digests, to be none of this chainrule's into a refusal of it."""
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
        raise ModelFileError(f"{sealed.path / CONFIG} is not a config of this chainrule: {reason}") from error


def _tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    return {TOKENIZER: tokenizer.to_json().encode()}


def _read_tokenizer(sealed: Sealed, config: dict[str, Any]) -> Tokenizer:
    settings_of = config["tokenizers"]["text"] if "tokenizers" in config else config.get("tokenizer", {})
    own = settings.make(TokenizerConfig, saved_settings(settings_of), "tokenizer", is_saved=True)
    return Tokenizer.from_json(sealed.bytes(TOKENIZER), own, str(sealed.path / TOKENIZER))


def write(path: Path, files: Mapping[str, Content], kind: str, origin: Origin, *, force: bool = False) -> None:
    """Write a sealed folder of these files; another model or an unfinished run is replaced only with `force`."""

    def fill(temporary: Path) -> None:
        for name, content in files.items():
            folder.put(temporary / name, content)

    marks = {name: content.mark for name, content in files.items() if isinstance(content, Written)}
    with folder.hold(path):
        folder.write(path, fill, facts(kind, origin), marks, force=force, run=origin.run)


def facts(kind: str, origin: Origin) -> dict[str, Any]:
    """What a manifest says of a folder of this kind."""
    sha256 = origin.fingerprint.sha256 if origin.fingerprint else None
    return {
        "kind": kind,
        "created": origin.created,
        "command": origin.command,
        "seed": origin.seed,
        "training_text": {"names": origin.text, "sha256": sha256},
        "versions": origin.versions,
    }


def origin_of(sealed: Sealed) -> Origin:
    """Where the model of a folder comes from."""
    facts: dict[str, Any] = dict(sealed.facts)
    _check_facts(facts, sealed.path / manifest.NAME)
    text = facts["training_text"]
    sketch = None
    if SKETCH in sealed.files:
        sketch = _sketch(sealed)
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
    """Refuse a manifest that does not say where the model comes from, in the types that `facts` writes."""
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


def _sketch(sealed: Sealed) -> NDArray[np.uint64]:
    """The hashes of training lines, sorted."""
    content = sealed.bytes(SKETCH)
    if len(content) % 8:
        raise ModelFileError(
            f"{sealed.path / SKETCH} has {len(content)} bytes, not a multiple of 8; {manifest.REMEDY}"
        )
    return np.frombuffer(content, dtype="<u8")
