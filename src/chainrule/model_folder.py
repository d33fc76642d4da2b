"""Save and load the folders of language models and tokenizers.

Files: `config.json`, `tokenizer.json`, n-gram tables or network weights, speller, metrics, model card, manifest.
"""

from pathlib import Path
from typing import Any, get_args

from chainrule import config as settings
from chainrule import families
from chainrule.errors import ConfigError, ModelFileError, VocabularyError
from chainrule.lm import Context
from chainrule.model import Model
from chainrule.ngram.oov_speller import Speller
from chainrule.storage import provenance, strict_json, verified_dir
from chainrule.storage.provenance import CONFIG, METRICS, SKETCH, TOKENIZER, Card, Origin, translate_config_errors
from chainrule.storage.verified_dir import VerifiedDir, read_json
from chainrule.tokenizers.config import TokenizerConfig, saved_settings
from chainrule.tokenizers.tokenizer import Tokenizer

SPELLER = "speller.safetensors"


def save(model: Model, path: Path, *, force: bool = False) -> None:
    """Save a model to a folder; `force` allows replacing another model or an unfinished run."""
    files = {
        **families.get(model.family).files(model.lm),
        TOKENIZER: model.tokenizer.to_json().encode(),
    }
    if model.speller is not None:
        files[SPELLER] = model.speller.to_bytes()
    if model.origin.fingerprint is not None:
        files[SKETCH] = model.origin.fingerprint.to_bytes()
    config = {
        "family": model.family,
        "context": model.lm.context,
        "model": settings.to_json(model.config),
        "tokenizer": settings.to_json(model.tokenizer.config),
    }
    facts = [
        f"Tokenizer: {model.tokenizer.config.kind}, {model.tokenizer.vocab_size} ids",
        f"Context: {model.lm.context}",
        f"Parameters: {model.parameters}",
        *(() if model.lm.is_normalized else ("Gives scores, not probabilities.",)),
    ]
    usage = ("generate THIS_FOLDER", "evaluate THIS_FOLDER text.txt")
    card = Card(title=f"{model.family} language model", facts=facts, usage=usage)
    provenance.save(
        path, "model", files, config=config, metrics=model.metrics, origin=model.origin, card=card, force=force
    )


def load(folder: VerifiedDir, device: str = "auto") -> Model:
    """Load a language model from an open folder."""
    config = read_config(folder)
    if families.is_builtin(str(config["family"])):
        with translate_config_errors(folder):
            return _load(folder, config, device)
    with translate_config_errors(folder):  # errors raised by the code of a plug-in are not errors of the config
        _read_model_config(folder, config)
    return _load(folder, config, device)


def read_config(folder: VerifiedDir) -> dict[str, Any]:
    """Read `config.json`; raise ModelFileError unless it is that of a language model."""
    config = read_json(folder, CONFIG)
    if "task" in config:
        hint = provenance.usage_hint(str(config["task"]), folder.path)
        raise ModelFileError(f"{folder.path} is not a language model: {hint}")
    if "family" not in config:
        raise ModelFileError(f"{folder.path} holds a tokenizer, not a model; give a model folder")
    return config


def _read_model_config(folder: VerifiedDir, config: dict[str, Any]) -> tuple[families.Family, Tokenizer, Any]:
    """Parse `config.json`: the family, the tokenizer and the config of the model."""
    family = families.get(str(config["family"]))
    tokenizer = read_tokenizer(folder, config.get("tokenizer", {}))
    model_config = settings.build_config(family.Config, config["model"], "model", is_saved=True)
    if config["context"] not in get_args(Context):
        raise ConfigError(f"context is {config['context']!r}; it must be one of {', '.join(get_args(Context))}")
    return family, tokenizer, model_config


def _load(folder: VerifiedDir, config: dict[str, Any], device: str) -> Model:
    family, tokenizer, model_config = _read_model_config(folder, config)
    lm = family.load(folder, model_config, tokenizer.vocabulary, config["context"], device)
    if lm.vocabulary.size != tokenizer.vocab_size:
        raise VocabularyError(
            f"the model was built for {lm.vocabulary.size} ids but {TOKENIZER} makes {tokenizer.vocab_size}"
        )
    return Model(
        lm=lm,
        tokenizer=tokenizer,
        family=config["family"],
        config=model_config,
        speller=_read_speller(folder, tokenizer) if SPELLER in folder.files else None,
        origin=provenance.read_origin(folder),
        metrics=read_json(folder, METRICS),
        name=str(folder.path),
    )


def _read_speller(folder: VerifiedDir, tokenizer: Tokenizer) -> Speller:
    return Speller.from_bytes(folder.bytes(SPELLER), str(folder.path / SPELLER), tokenizer.vocabulary_words)


def save_tokenizer(tokenizer: Tokenizer, path: Path, origin: Origin, *, force: bool = False) -> None:
    """Save a tokenizer to a folder; `force` as in `save`."""
    files = {
        TOKENIZER: tokenizer.to_json().encode(),
        CONFIG: strict_json.dump({"tokenizer": settings.to_json(tokenizer.config)}),
    }
    provenance.write(path, "tokenizer", files, origin, force=force)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a tokenizer folder or a model folder."""
    folder = verified_dir.read(Path(path))
    with translate_config_errors(folder):
        config = read_json(folder, CONFIG)
        saved = config["tokenizers"]["text"] if "tokenizers" in config else config.get("tokenizer", {})
        tokenizer = read_tokenizer(folder, saved)
    folder.verify_rest()
    return tokenizer


def read_tokenizer(folder: VerifiedDir, saved: dict[str, Any], role: str = "text") -> Tokenizer:
    """Read the tokenizer of a model folder; a translator with two has the roles `source` and `target`."""
    config = settings.build_config(TokenizerConfig, saved_settings(saved), "tokenizer", is_saved=True)
    name = tokenizer_file(role)
    return Tokenizer.from_json(folder.bytes(name), config, str(folder.path / name))


def tokenizer_file(role: str) -> str:
    """Return the name of the file of a tokenizer."""
    return TOKENIZER if role == "text" else f"tokenizer.{role}.json"
