"""`chainrule info`: describe a model folder."""

from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit
from chainrule.errors import printable

Verify = Annotated[bool, typer.Option("--verify", help="Verify the SHA-256 digest of every file.")]
MIN_NAME_WIDTH = 26  # columns
MAX_LISTED = 8  # labels or tags that are listed by name


def info(model: options.ModelFolder, verify: Verify = False, json: options.Json = False) -> None:
    """Describe a model: family, sizes, training run, metrics, files.

    Also prints labels or tags, the tokenizer, the training text and command, and the digest of each file.

    Example: chainrule info runs/ngram5 --verify
    """
    from chainrule import api
    from chainrule.config import flatten
    from chainrule.storage import verified_dir

    loaded = api.load(model, verify=verify)
    files, origin = verified_dir.open_dir(model).files, loaded.origin
    document: dict[str, Any] = {
        "model": str(model),
        **_kind(loaded),
        "parameters": loaded.parameters,
        "size_bytes": sum(entry.size for entry in files.values()),
        **{f"{role}vocab_size": tokenizer.vocab_size for role, tokenizer in _tokenizers(loaded).items()},
        "config": {} if loaded.config is None else flatten(loaded.config),
        **{f"{role}tokenizer": flatten(tokenizer.config) for role, tokenizer in _tokenizers(loaded).items()},
        "training_text": origin.text,
        "training_text_sha256": origin.text_sha256,
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
    _print(document)


def _print(document: dict[str, Any]) -> None:
    """Print one field per line, with aligned values."""
    rows: list[tuple[str, str]] = []
    for name, value in document.items():
        if name in ("labels", "tags"):
            rows.append((name, _listed(value)))
        elif isinstance(value, dict):
            rows.append((name, ""))
            for key, item in value.items():
                rows.append(
                    (f"  {key}", f"{item['size']:>12,}  {item['sha256']}" if name == "files" else str(item))
                )
        else:
            rows.append((name, f"{value:,}" if type(value) is int else str(value)))
    width = max(MIN_NAME_WIDTH, *(len(name) + 2 for name, _ in rows))
    for name, shown in rows:
        print(printable(f"{name:<{width}}{shown}".rstrip()))


def _kind(loaded: Any) -> dict[str, Any]:
    """Return the family and the fields specific to the kind of model."""
    if not hasattr(loaded, "task"):
        return {"family": loaded.family, "context": loaded.lm.context, "is_normalized": loaded.lm.is_normalized}
    if loaded.task == "vectors":
        shape = {"vocab_size": len(loaded), "dimensions": loaded.dimensions}
        return {"task": "vectors", "family": loaded.method, **shape}
    fields = {"task": loaded.task, "family": loaded.config.family}
    if loaded.task == "classify":
        return fields | {"labels": loaded.counts, "temperature": loaded.temperature}
    if loaded.task == "tag":
        tags = loaded.tags
        return fields | {"tags": list(tags.names), "scheme": tags.scheme, "learnt_scheme": tags.model_scheme}
    return fields


def _tokenizers(loaded: Any) -> dict[str, Any]:
    """Return the tokenizers by key prefix: empty, or `source_` and `target_` if they differ."""
    if getattr(loaded, "task", "") == "vectors":
        return {}
    if not hasattr(loaded, "source"):
        return {"": loaded.tokenizer}
    is_joint = loaded.config.joint
    return {"": loaded.source} if is_joint else {"source_": loaded.source, "target_": loaded.target}


def _listed(names: dict[str, int] | list[str]) -> str:
    """Format the number of names and the first few, with the training counts of labels."""
    shown = [f"{name} ({names[name]:,})" if isinstance(names, dict) else name for name in names][:MAX_LISTED]
    return f"{len(names):,}: {', '.join(shown)}" + (", …" if len(names) > MAX_LISTED else "")
