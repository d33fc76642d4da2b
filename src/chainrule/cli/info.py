"""`chainrule info`: what this model is."""

import dataclasses
from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit
from chainrule.errors import printable

Verify = Annotated[bool, typer.Option("--verify", help="Verify every byte first, by its sha256.")]
NARROWEST = 26  # characters for the names
FEW = 8  # labels or tags that are named where there is no room for all


def info(model: options.ModelFolder, verify: Verify = False, json: options.Json = False) -> None:
    """Describe a model: family, sizes, training run, figures, files.

    Labels or tags, the tokenizer, the training text and command, and the digest of each file are shown, too.

    Example: chainrule info runs/ngram5 --verify
    """
    from chainrule import artifact, folder, loading

    loaded = loading.load(model, verify=verify)
    sealed = folder.read(model)
    files, origin = sealed.files, artifact.origin_of(sealed)
    document: dict[str, Any] = {
        "model": str(model),
        **_kind(loaded),
        "parameters": loaded.parameters,
        "size_bytes": sum(entry.size for entry in files.values()),
        **{f"{role}vocab_size": tokenizer.vocab_size for role, tokenizer in _tokenizers(loaded).items()},
        "config": {} if loaded.config is None else dataclasses.asdict(loaded.config),
        **{f"{role}tokenizer": dataclasses.asdict(found.config) for role, found in _tokenizers(loaded).items()},
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
    _print(document)


def _print(document: dict[str, Any]) -> None:
    """A line for each fact, values below one another."""
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
    width = max(NARROWEST, *(len(name) + 2 for name, _ in rows))
    for name, shown in rows:
        print(printable(f"{name:<{width}}{shown}".rstrip()))


def _kind(loaded: Any) -> dict[str, Any]:
    """Family, and what only a model of its kind has."""
    if not hasattr(loaded, "task"):
        return {"family": loaded.family, "context": loaded.lm.context, "is_normalized": loaded.lm.is_normalized}
    if loaded.task == "vectors":
        shape = {"vocab_size": len(loaded), "dimensions": loaded.dimensions}
        return {"task": "vectors", "family": loaded.method, **shape}
    found = {"task": loaded.task, "family": loaded.config.family}
    if loaded.task == "classify":
        return found | {"labels": loaded.counts, "temperature": loaded.temperature}
    if loaded.task == "tag":
        tags = loaded.tags
        return found | {"tags": list(tags.names), "scheme": tags.scheme, "learnt_scheme": tags.learnt}
    return found


def _tokenizers(loaded: Any) -> dict[str, Any]:
    """By what stands before their names: nothing, unless source and target have one each."""
    if getattr(loaded, "task", "") == "vectors":
        return {}
    if not hasattr(loaded, "source"):
        return {"": loaded.tokenizer}
    is_joint = loaded.config.joint
    return {"": loaded.source} if is_joint else {"source_": loaded.source, "target_": loaded.target}


def _listed(names: dict[str, int] | list[str]) -> str:
    """How many, and the first of them, labels with the number of their training texts."""
    shown = [f"{name} ({names[name]:,})" if isinstance(names, dict) else name for name in names][:FEW]
    return f"{len(names):,}: {', '.join(shown)}" + (", …" if len(names) > FEW else "")
