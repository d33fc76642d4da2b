"""`chainrule info`: what this model is."""

import dataclasses
from typing import Any

from chainrule.cli import options
from chainrule.cli.console import emit


def info(model: options.ModelFolder, json: options.Json = False) -> None:
    """Tell family, sizes, tokenizer, training text and command, figures, files and their digests.

    Example: chainrule info runs/ngram5
    """
    from chainrule import folder, loading

    loaded = loading.load(model)
    files = folder.read(model).files
    origin, is_task = loaded.origin, hasattr(loaded, "task")
    document: dict[str, Any] = {
        "model": str(model),
        **_kind(loaded),
        "parameters": loaded.parameters,
        "size_bytes": sum(entry.size for entry in files.values()),
        **({} if is_task else {"vocab_size": loaded.tokenizer.vocab_size}),
        "config": dataclasses.asdict(loaded.config),
        **({} if is_task else {"tokenizer": dataclasses.asdict(loaded.tokenizer.config)}),
        "training_text": origin.text,
        "training_text_sha256": origin.fingerprint.sha256 if origin.fingerprint else None,
        "command": origin.command,
        "seed": origin.seed,
        "created": origin.created,
        "versions": origin.versions,
        "metrics": loaded.metrics,
        "files": {name: {"sha256": entry.sha256, "size": entry.size} for name, entry in files.items()},
    }
    if json:
        emit(document)
        return
    for name, value in document.items():
        if isinstance(value, dict):
            print(name)
            for key, item in value.items():
                shown = f"{item['size']:>12,}  {item['sha256']}" if name == "files" else item
                print(f"  {key:<24}{shown}")
        else:
            print(f"{name:<26}{f'{value:,}' if type(value) is int else value}")


def _kind(loaded: Any) -> dict[str, Any]:
    if hasattr(loaded, "task"):
        return {"task": loaded.task, "family": loaded.config.family}
    return {"family": loaded.family, "context": loaded.lm.context, "is_normalized": loaded.lm.is_normalized}
