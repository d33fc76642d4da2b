"""`checkpoint/`: all that a run needs to go on as if it had never stopped, in one sealed folder.

Lives here: saving, loading, and refusing a checkpoint of another run. Not here: sealing and replacing a folder
(folder.py), what the loop puts in (loop.py). Plain formats: safetensors and JSON, never a pickle.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from chainrule import folder, manifest, replacement
from chainrule.errors import InputError, ModelFileError, UsageError

NAME, LOG = folder.CHECKPOINT, folder.LOG
REMEDY = "remove the checkpoint folder to start anew"
SIDES = {"translate": 2, "classify": 2}  # texts that go together in a task: source and target, text and label
ADDED = {"validations": 0, "stop_after": 0, "validation_tokens": 0}  # settings that earlier versions did not have
EMPTY = hashlib.sha256().hexdigest()  # the digest of no text


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run at one moment."""

    weights: dict[str, Tensor]  # parameters and buffers by name
    optimizer: dict[str, Tensor]  # flat, as optimizers.state_tensors gives them
    state: dict[str, Tensor]  # generators, carried states, best weights, average
    position: dict[str, Any]  # every scalar: epoch, step, best, …
    identity: dict[str, Any]  # what must not change: config, text, tokenizer, seed, context, family


def save(place: Path, checkpoint: Checkpoint) -> None:
    """Put the checkpoint at `place/checkpoint` in one step; after any failure the one before is still there."""

    def fill(root: Path) -> None:
        for name in ("weights", "optimizer", "state"):
            tensors: dict[str, Tensor] = getattr(checkpoint, name)
            (root / f"{name}.safetensors").write_bytes(write_tensors({n: _own(t) for n, t in tensors.items()}))
        (root / "position.json").write_text(_dump(checkpoint.position), encoding="utf-8")
        (root / "config.json").write_text(_dump(checkpoint.identity), encoding="utf-8")

    folder.write(place / NAME, fill, {"kind": NAME}, force=True)


def holds_model_or_run(place: Path) -> bool:
    """Whether a finished model or a checkpoint is at `place`, which must stay unchanged until it is replaced."""
    return os.path.lexists(place / manifest.NAME) or os.path.lexists(place / NAME)


def load(place: Path) -> Checkpoint | None:
    """The checkpoint at `place`, every byte verified, on the CPU; None where there is none.

    What a killed run left half written is removed first.
    """
    target = Path(os.path.realpath(place / NAME))
    if target.parent.is_dir():
        replacement.sweep(target)
    if not os.path.lexists(target):
        return None
    try:
        return _read(target)
    except ModelFileError as error:
        if not str(error).endswith(manifest.REMEDY):
            raise
        raise ModelFileError(f"{str(error).removesuffix(manifest.REMEDY)}remove {target} to start anew") from error


def _read(target: Path) -> Checkpoint:
    sealed = folder.read(target)
    if sealed.facts.get("kind") != NAME:
        raise ModelFileError(f"{target} is not a checkpoint; {REMEDY}")
    return Checkpoint(
        weights=_tensors(sealed, "weights.safetensors"),
        optimizer=_tensors(sealed, "optimizer.safetensors"),
        state=_tensors(sealed, "state.safetensors"),
        position=_fields(sealed, "position.json"),
        identity=_fields(sealed, "config.json"),
    )


def check_identity(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on where the run that wrote the checkpoint, `found`, is not the run asked for, `wanted`."""
    then, now = _plain(found), _plain(wanted)
    if isinstance(then.get("config"), dict):
        then["config"] = {name: value for name, value in ADDED.items() if name in now["config"]} | then["config"]
    changed = [name for name in now | then if now.get(name) != then.get(name)]
    if "text" in changed:
        raise InputError(f"{_what_changed(then, now)}, or {REMEDY}")
    if "begun" in changed:
        raise UsageError(
            "the pre-trained encoder or the word vectors changed since the checkpoint was written; "
            f"begin with what the first run began with, or {REMEDY}"
        )
    if "tokenizer" in changed:
        raise UsageError(
            f"the tokenizer changed since the checkpoint was written; give that of the first run, or {REMEDY}"
        )
    if changed:
        said = "; ".join(line for name in changed for line in _differences(name, then.get(name), now.get(name)))
        raise UsageError(f"{said}; use what the checkpoint was written with, or {REMEDY}")


def _what_changed(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Which text differs, by the digests of both runs: those of training first, those of validation behind them."""
    then, now = found.get("text"), wanted.get("text")
    if isinstance(then, list) and isinstance(now, list):
        first = SIDES.get(str(wanted.get("task")), 1)
        if then[:first] == now[:first]:
            before, after = (any(one not in (None, EMPTY) for one in each[first:]) for each in (then, now))
            told = "the validation text is not that of the checkpoint"
            if before and not after:
                told = "the validation text was left out, and the checkpoint was written with one"
            elif after and not before:
                told = "a validation text was given, and the checkpoint was written without one"
            return f"{told}; give the same as then"
    return "the text changed since the checkpoint was written; give the text it was trained on"


def _differences(name: str, then: Any, now: Any) -> list[str]:
    """One line for every setting that differs; those of the config are the model's, as in a config file."""
    if isinstance(then, dict) and isinstance(now, dict):
        start = "model" if name == "config" else name
        names = [inner for inner in now | then if now.get(inner) != then.get(inner)]
        return [
            line for n in names for line in _differences(f"{start}.{n}", then.get(n, "unset"), now.get(n, "unset"))
        ]
    return [f"{name} is {now} now and was {then} then"]


def _own(tensor: Tensor) -> Tensor:
    """A copy on the CPU that shares its memory with no other: tied weights are written once for each name."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def _tensors(sealed: folder.Sealed, name: str) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = read_tensors(sealed.bytes(name))
    except (SafetensorError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{sealed.path / name} is not a safetensors file ({error}); {REMEDY}") from error
    return tensors


def _fields(sealed: folder.Sealed, name: str) -> dict[str, Any]:
    try:
        fields = manifest.parse_json(sealed.bytes(name))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{sealed.path / name} is not JSON ({error}); {REMEDY}") from error
    if not isinstance(fields, dict):
        raise ModelFileError(f"{sealed.path / name} is not a JSON object; {REMEDY}")
    return fields


def _dump(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: lists for tuples, names as text."""
    plain: dict[str, Any] = json.loads(_dump(fields))
    return plain
