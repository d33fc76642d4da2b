"""Checkpoints: everything needed to resume a run exactly, in one verified folder of safetensors and JSON."""

import copy
import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Self

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from chainrule.config import setting_names
from chainrule.errors import InputError, ModelFileError, UsageError
from chainrule.storage import atomic, strict_json, verified_dir
from chainrule.training.config import TrainingConfig

NAME, LOG = verified_dir.CHECKPOINT, verified_dir.LOG
REMEDY = "remove the checkpoint folder to start over"
SIDES = {"translate": 2, "classify": 2}  # parallel texts per task: source and target, text and label
ADDED = {
    "validations": 0,
    "stop_after": 0,
    "validation_tokens": 0,
    "accumulate": 1,
}  # settings missing in older checkpoints
TRAINING_SETTINGS = frozenset(setting_names(TrainingConfig))
UNKNOWN = {"tokens"}  # counts that runs resumed from older checkpoints have written as null
LARGEST_SHARE: Final = 0.02  # of the time of a run for writing checkpoints
EMPTY = hashlib.sha256().hexdigest()  # digest of an empty text


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Complete state of a run."""

    weights: dict[str, Tensor]  # parameters and buffers by name
    optimizer: dict[str, Tensor]  # flat vectors from optimizers.state_tensors
    state: dict[str, Tensor]  # RNG states, carried states, best weights, average
    position: dict[str, Any]  # every scalar: epoch, step, best, …
    identity: dict[str, Any]  # must match on resume: config, text, tokenizer, seed, context, family

    def copy(self) -> Self:
        """Copy all tensors to the memory of the CPU."""
        parts = {
            name: {key: _to_cpu(tensor) for key, tensor in getattr(self, name).items()}
            for name in ("weights", "optimizer", "state")
        }
        return replace(self, **parts, position=copy.deepcopy(self.position))

    def carried(self) -> list[Tensor]:
        """States that are carried from one batch to the next."""
        names = (f"carried.{i}" for i in range(len(self.state)))
        return [self.state[name] for name in takewhile(self.state.__contains__, names)]


class CheckpointWriter:
    """Writes checkpoints in a background thread from a copy of the state, so that training goes on meanwhile.

    The time between two checkpoints is at least `seconds`, and so long that copying and writing take at most
    `LARGEST_SHARE` of it. With `seconds` 0, every checkpoint that is due is written before training goes on.
    """

    def __init__(self, run_dir: Path, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.run_dir, self.seconds, self.clock = run_dir, seconds, clock
        self._started = clock()  # time of the last checkpoint
        self._cost = 0.0  # seconds that the last checkpoint took
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_due(self) -> bool:
        """Whether to write the next checkpoint; False while one is being written."""
        if self._thread is not None and self._thread.is_alive():
            return False
        pause = max(self.seconds, self._cost / LARGEST_SHARE) if self.seconds else 0.0
        return self.clock() - self._started > pause

    def save(self, checkpoint: Checkpoint, *, wait: bool) -> None:
        """Copy and write a checkpoint; without `wait` in the background, and a later call raises its errors."""
        self.finish()
        self._started = self.clock()
        if wait or not self.seconds:
            save(self.run_dir, checkpoint)
            self._cost = self.clock() - self._started
            return
        arguments = (checkpoint.copy(),)
        self._thread = threading.Thread(target=self._write, args=arguments, name="checkpoint")
        self._thread.start()

    def check(self) -> None:
        """Raise the error of a checkpoint that could not be written in the background."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finish(self) -> None:
        """Wait until the checkpoint is written; raise if it cannot be."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(self, checkpoint: Checkpoint) -> None:
        try:
            save(self.run_dir, checkpoint, is_copy=True)
        except BaseException as error:  # raised by `check` in the thread that trains
            self._error = error
        self._cost = self.clock() - self._started


def save(run_dir: Path, checkpoint: Checkpoint, *, is_copy: bool = False) -> None:
    """Write the checkpoint to `run_dir/checkpoint` atomically; on failure the previous one is kept.

    `is_copy` says that the tensors are contiguous on the CPU and share no memory.
    """

    def fill(root: Path) -> None:
        for name in ("weights", "optimizer", "state"):
            tensors: dict[str, Tensor] = getattr(checkpoint, name)
            if not is_copy:
                tensors = {key: _to_cpu(tensor) for key, tensor in tensors.items()}
            (root / f"{name}.safetensors").write_bytes(write_tensors(tensors))
        (root / "position.json").write_bytes(strict_json.dump(checkpoint.position))
        (root / "config.json").write_bytes(strict_json.dump(checkpoint.identity))

    verified_dir.write(run_dir / NAME, fill, {"kind": NAME}, force=True)


def holds_model_or_run(run_dir: Path) -> bool:
    """Whether `run_dir` contains a finished model or a checkpoint."""
    return os.path.lexists(run_dir / verified_dir.MANIFEST) or os.path.lexists(run_dir / NAME)


def load(run_dir: Path) -> Checkpoint | None:
    """Load and verify the checkpoint at `run_dir` on the CPU; None if the folder has no checkpoint.

    Partial files of a killed run are removed first.
    """
    target = Path(os.path.realpath(run_dir / NAME))
    if target.parent.is_dir():
        atomic.remove_leftovers(target)
    if not os.path.lexists(target):
        return None
    try:
        return _read(target)
    except ModelFileError as error:
        if error.remedy != verified_dir.REMEDY:
            raise
        raise ModelFileError(error.message, f"remove {target} to start over") from error


def _read(target: Path) -> Checkpoint:
    sealed = verified_dir.open_dir(target)
    if sealed.facts.get("kind") != NAME:
        raise ModelFileError(f"{target} is not a checkpoint; {REMEDY}")
    return Checkpoint(
        weights=load_tensors(sealed, "weights.safetensors"),
        optimizer=load_tensors(sealed, "optimizer.safetensors"),
        state=load_tensors(sealed, "state.safetensors"),
        position=_fields(sealed, "position.json"),
        identity=_fields(sealed, "config.json"),
    )


def check_identity(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise unless the checkpoint's run and the current run have the same data, config and seed."""
    then, now = _plain(saved), _plain(current)
    if isinstance(then.get("config"), dict):
        then["config"] = {name: value for name, value in ADDED.items() if name in now["config"]} | then["config"]
    changed = [name for name in now | then if now.get(name) != then.get(name)]
    if "text" in changed:
        raise InputError(f"{_what_changed(then, now)}, or {REMEDY}")
    if "begun" in changed:
        raise UsageError(
            "the pre-trained encoder or the word vectors changed since the checkpoint was written; "
            f"use the same ones as the original run, or {REMEDY}"
        )
    if "tokenizer" in changed:
        raise UsageError(
            f"the tokenizer changed since the checkpoint was written; give that of the first run, or {REMEDY}"
        )
    if changed:
        differences = "; ".join(
            line for name in changed for line in _differences(name, then.get(name), now.get(name))
        )
        raise UsageError(f"{differences}; use what the checkpoint was written with, or {REMEDY}")


def check_scalars(fields: Any, expected: Mapping[str, Any], source: str) -> None:
    """Raise ModelFileError for scalars with unexpected names or types, or non-finite numbers."""
    is_complete = isinstance(fields, dict) and ("plateau" in fields or "plateau" not in expected)
    if not is_complete or not fields.keys() <= expected.keys():
        raise ModelFileError(f"{source} has invalid progress fields; {REMEDY}")
    for name, value in fields.items():
        parts = value if isinstance(value, list) else [value]
        if name == "words":
            is_expected = isinstance(value, list) and all(isinstance(part, str) for part in parts)
        elif name == "plateau":
            is_expected = isinstance(value, dict)
        else:
            is_number = all(map(_is_number, parts)) and (type(expected[name]) is not int or type(value) is int)
            is_unknown = value is None and (expected[name] is None or name in UNKNOWN)
            is_expected = is_number or is_unknown
            is_expected = is_expected and isinstance(value, list) == isinstance(expected[name], list)
        if not is_expected:
            raise ModelFileError(f"{source} has the invalid value {value!r:.40} for {name}; {REMEDY}")


def _is_number(value: Any) -> bool:
    """Whether the value is a finite float or an integer from -1 to 2⁵³ − 1."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and -1 <= value < 1 << 53)


def _what_changed(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Describe which text differs, by the digests of training texts followed by validation texts."""
    then, now = saved.get("text"), current.get("text")
    if isinstance(then, list) and isinstance(now, list):
        first = SIDES.get(str(current.get("task")), 1)
        if then[:first] == now[:first]:
            before, after = (
                any(digest not in (None, EMPTY) for digest in digests[first:]) for digests in (then, now)
            )
            message = "the validation text is not that of the checkpoint"
            if before and not after:
                message = "the validation text was left out, but the checkpoint was written with one"
            elif after and not before:
                message = "a validation text was given, but the checkpoint was written without one"
            return f"{message}; use the same as in the original run"
    return "the text changed since the checkpoint was written; give the text it was trained on"


def _differences(name: str, then: Any, now: Any) -> list[str]:
    """One line per differing setting; settings of the config are prefixed with `model.` or `training.`."""
    if isinstance(then, dict) and isinstance(now, dict):
        lines = []
        for inner in [inner for inner in now | then if now.get(inner) != then.get(inner)]:
            section = name if name != "config" else "training" if inner in TRAINING_SETTINGS else "model"
            lines += _differences(f"{section}.{inner}", then.get(inner, "unset"), now.get(inner, "unset"))
        return lines
    return [f"{name} is {now} now and was {then} then"]


def _to_cpu(tensor: Tensor) -> Tensor:
    """Copy to the CPU without shared memory: safetensors rejects tied tensors."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def load_tensors(folder: verified_dir.VerifiedDir, name: str, remedy: str = REMEDY) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file in a verified folder."""
    try:
        tensors: dict[str, Tensor] = read_tensors(folder.bytes(name))
    except (SafetensorError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{folder.path / name} is not a safetensors file ({error}); {remedy}") from error
    return tensors


def _fields(sealed: verified_dir.VerifiedDir, name: str) -> dict[str, Any]:
    try:
        fields = strict_json.parse(sealed.bytes(name))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{sealed.path / name} is not JSON ({error}); {REMEDY}") from error
    if not isinstance(fields, dict):
        raise ModelFileError(f"{sealed.path / name} is not a JSON object; {REMEDY}")
    return fields


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Round-trip through JSON: tuples become lists, keys strings."""
    plain: dict[str, Any] = json.loads(strict_json.dump(fields))
    return plain
