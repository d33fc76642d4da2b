"""A sealed folder: files and a `manifest.json`, written whole or not at all, verified before it is used.

Lives here: sealing a folder and reading it back; what a run in progress may keep in it until then.
It knows nothing of models.
Not here: the text of the manifest (manifest.py), putting a folder in place of another (replacement.py).
"""

import builtins
import fcntl
import hashlib
import json
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chainrule import manifest
from chainrule.errors import ModelFileError, NotFoundError, UsageError, printable
from chainrule.manifest import FORMAT_VERSION, JSON, Entry, Manifest
from chainrule.replacement import cannot_write, flush, link_identical, replacing, resolve

__all__ = [
    "CHECKPOINT",
    "FORMAT_VERSION",
    "JSON",
    "LOG",
    "Content",
    "Sealed",
    "Written",
    "as_json",
    "check_replace",
    "check_target",
    "command_words",
    "content_sha256",
    "hold",
    "put",
    "read",
    "read_json",
    "recorded",
    "refuse_finished",
    "share_files",
    "text_sha256",
    "write",
    "writing",
]

CHECKPOINT = "checkpoint"  # where a run keeps what it needs to go on: a sealed folder itself
LOG = "train_log.part.jsonl"  # what a run writes down while it learns; the finished model holds train_log.jsonl
GO_ON = "go on with the same command with --resume"
LEFTOVER = re.compile(rf"\.({CHECKPOINT}|{re.escape(LOG)})\.\d{{1,9}}\.[0-9a-f]+\.(partial|aside)")
REPLACE = "to replace it give --force (in Python force=True), or choose another --out"
UNCOMPARED = {"--force", "--resume", "--json", "--debug"}  # options that do not change what a command writes
DESCRIPTIONS = {"README.md", "metrics.json", "train_log.jsonl"}  # they tell of one run, with its times
PICKLES = {".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib"}


@dataclass(frozen=True, slots=True)
class Sealed:
    """A folder all of whose listed files were found to be what its manifest says, or will be as they are read."""

    path: Path
    facts: dict[str, JSON]
    files: Mapping[str, Entry]

    def open(self, name: str) -> Path:
        """The path of a listed file."""
        if name not in self.files:
            raise ModelFileError(f"{self.path / name} is not in the manifest; {manifest.REMEDY}")
        return manifest.locate(self.path, name)

    def subfolder(self, prefix: str) -> "Sealed":
        """The files under `prefix` as a folder of their own; the facts stay those of the whole."""
        start = f"{prefix.rstrip('/')}/"
        files = {name.removeprefix(start): e for name, e in self.files.items() if name.startswith(start)}
        if not files:
            raise ModelFileError(f"{self.path / prefix} is not in the manifest; {manifest.REMEDY}")
        return Sealed(self.path / prefix, self.facts, files)

    def bytes(self, name: str) -> builtins.bytes:
        """The content of a listed file; the very bytes returned are the ones verified."""
        path = self.open(name)
        with manifest.refusing(path), path.open("rb") as file:
            content = file.read(self.files[name].size + 1)
        manifest.check(path, self.files[name], content)
        return content


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is written by whoever has its content, and that verifies itself when it is read."""

    size: int  # bytes
    write: Callable[[Path], None]  # to a path where nothing is
    mark: str  # which file it is, for the manifest

    def __len__(self) -> int:
        return self.size


Inputs = Mapping[str, str | None]
"""SHA-256 of what a command reads besides the training text, by path; None where it is unknown."""

Content = builtins.bytes | Written
"""What a file of a folder holds."""


def put(path: Path, content: Content) -> None:
    """Write one file, and the folders it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Written):
        content.write(path)
    else:
        path.write_bytes(content)


def read(path: Path, *, verify: bool = False) -> Sealed:
    """Verify every listed file of the folder at `path`; refuse it by name at the first that differs.

    A file with a mark verifies itself where it is read, so it is only measured here unless `verify` says otherwise.
    """
    _check_folder(path)
    found = _read_manifest(path)
    for name, entry in found.files.items():
        check = manifest.check if verify or entry.mark is None else manifest.check_size
        check(manifest.locate(path, name), entry)
    return Sealed(path, found.facts, found.files)


def write(
    path: Path,
    fill: Callable[[Path], None],
    facts: Mapping[str, JSON],
    marks: Mapping[str, str] = MappingProxyType({}),
    *,
    force: bool = False,
    run: Path | None = None,
) -> None:
    """Let `fill` write files into a new folder, seal it with `facts`, and put it at `path` in one step.

    `marks` are those of the files that verify themselves, by name.

    What `path` holds is replaced as `check_replace` allows, and also if it is the same model already. After any
    failure it is as it was.
    """
    target = resolve(path)
    inputs = _held.get(_holder(path))
    facts = facts if inputs is None else {**facts, "inputs": inputs}
    refusal = None
    try:
        try:
            check_replace(path, facts, force=force, run=run)
        except FinishedModelError as error:
            refusal = error
        with replacing(target) as temporary:
            fill(temporary)
            sealed = _seal(temporary, facts, marks)
            if refusal is not None and _content(sealed) != _content(_read_manifest(target)):
                raise refusal
            check_target(target)  # once more: filling may take hours
    except OSError as error:
        raise cannot_write(path, error) from error


def share_files(path: Path, others: Iterable[Path]) -> None:
    """Replace files of the sealed folder at `path` by hard links to identical files of the sealed folders `others`.

    The folder stays complete in itself. A file system without hard links keeps the copies. Files of sealed folders
    are replaced and never written in place, so that no folder changes with another.
    """
    target = resolve(path)
    sources: dict[tuple[str, int], list[Path]] = {}
    for other in others:
        with suppress(ModelFileError):  # a damaged folder has nothing to share
            for name, entry in _read_manifest(other).files.items():
                sources.setdefault((entry.sha256, entry.size), []).append(other / name)
    with hold(path):
        for name, entry in _read_manifest(target).files.items():
            for source in sources.get((entry.sha256, entry.size), ()):
                if link_identical(target / name, source, beside=target):
                    break


class FinishedModelError(UsageError):
    """A folder holds a finished model that the command may not replace."""


def check_replace(path: Path, facts: Mapping[str, JSON], *, force: bool = False, run: Path | None = None) -> None:
    """Refuse to replace an unfinished run or a finished model, unless `force` is given.

    A finished model may be replaced by the same command line on the same text and the same other inputs: `facts`
    are those of the new model as far as they are known, its inputs are those that `path` is held with. A run may be
    replaced by its own model: `run` is the folder of the run that trained it. Ask while holding the folder,
    or the run may still be going on.
    """
    check_target(path)
    if force:
        return
    if os.path.lexists(path / CHECKPOINT):
        if run is None or resolve(run) != resolve(path):
            raise UsageError(
                f"{path} holds an unfinished run; {GO_ON}, or discard it with --force (in Python force=True)"
            )
    elif os.path.lexists(path / manifest.NAME):
        with _reading_target(path):
            old = _read_manifest(path).facts
        command = command_words(old.get("command"))
        if command is None or command != command_words(facts.get("command")):
            maker = f" (made by: {old['command']})" if old.get("command") else ""
            raise FinishedModelError(f"{path} holds a finished model{maker}; {REPLACE}")
        if "training_text" in facts and text_sha256(old) != text_sha256(facts):
            raise FinishedModelError(
                f"{path} holds a finished model of the same command and another text; {REPLACE}"
            )
        _check_inputs(path, old.get("inputs"))


def _check_inputs(path: Path, old: JSON) -> None:
    """Refuse to replace a finished model whose inputs differ from those of this command, or are unknown."""
    inputs = _held.get(_holder(path)) or {}
    recorded_inputs = old if isinstance(old, Mapping) else {}
    for name in sorted({*inputs, *recorded_inputs}):
        if inputs.get(name) is None or inputs[name] != recorded_inputs.get(name):
            reason = "has changed since" if inputs.get(name) and name in recorded_inputs else "may have changed"
            raise FinishedModelError(
                f"{path} holds a finished model of the same command, and its input {name} {reason}; {REPLACE}"
            )


def recorded(path: Path) -> dict[str, JSON] | None:
    """The facts of the manifest at `path`, its files not verified; None without an intact manifest."""
    try:
        return _read_manifest(path).facts
    except ModelFileError:
        return None


def command_words(command: JSON) -> list[str] | None:
    """The words of a recorded command line that matter; None if it is none, as with models made in Python."""
    try:
        words = shlex.split(str(command or ""))
    except ValueError:
        return None
    return [word for word in words if word not in UNCOMPARED] if words[:1] == ["chainrule"] else None


def content_sha256(path: Path) -> str:
    """The digest of the files that the model at `path` consists of, by its manifest; equal for equal models."""
    names = json.dumps(_content(_read_manifest(path)), sort_keys=True)
    return hashlib.sha256(names.encode()).hexdigest()


def text_sha256(facts: Mapping[str, JSON]) -> JSON:
    """The digest of the training text that these facts name."""
    text = facts.get("training_text")
    return text.get("sha256") if isinstance(text, Mapping) else None


def _content(sealed: Manifest) -> dict[str, str]:
    """The digests of the files a model consists of."""
    return {name: entry.sha256 for name, entry in sealed.files.items() if name not in DESCRIPTIONS}


def check_target(path: Path) -> None:
    """Refuse a place with anything but an empty or sealed folder, or a run: what `write` never replaces.

    A run is what training keeps, alone or in a sealed folder: a checkpoint, a log, leftovers of writing these.
    """
    _refuse_current_directory(path)
    if not os.path.lexists(path):
        return
    with _reading_target(path):
        try:
            names = {entry.name for entry in path.iterdir()}
            listed = {} if all(map(_is_of_run, names)) else _read_manifest(path).files
        except (ModelFileError, NotADirectoryError) as error:
            if isinstance(error.__cause__, OSError):
                raise
            raise UsageError(f"{path} exists and is not a model folder; choose another --out") from error
        if CHECKPOINT in names:
            _check_checkpoint(path / CHECKPOINT)
        for name in _names(path):
            if name not in listed and name not in (manifest.NAME, LOG):
                raise UsageError(
                    f"{path} holds {name}, which is no part of the model; move it, or choose another --out"
                )


def _refuse_current_directory(path: Path) -> None:
    """Refuse a folder that cannot be replaced without removing the current working directory."""
    try:
        current = Path.cwd()
    except OSError:  # it was removed
        return
    if current.is_relative_to(resolve(path)):
        raise UsageError(
            f"'{path}' is the current directory or one above it, and a model folder is replaced as a whole; "
            "choose another --out"
        )


@contextmanager
def _reading_target(path: Path) -> Iterator[None]:
    """Report an I/O error met while looking at the folder to replace as a failure to write, not as a bad model."""
    try:
        yield
    except ModelFileError as error:
        if isinstance(error.__cause__, OSError):
            raise cannot_write(path, error.__cause__) from error
        raise
    except OSError as error:
        raise cannot_write(path, error) from error


def refuse_finished(path: Path) -> None:
    """Refuse to go on where there is nothing to go on with: a sealed folder, and no checkpoint in it."""
    if os.path.lexists(path / manifest.NAME) and not os.path.lexists(path / CHECKPOINT):
        raise UsageError(f"{path} holds a finished model; remove --resume to train anew, or choose another --out")


_held: dict[tuple[int, int, Path], Inputs | None] = {}
"""The lock files held, by process, thread and path; with each the inputs of the command that holds it."""


@contextmanager
def hold(path: Path, inputs: Inputs | None = None) -> Iterator[None]:
    """Lock `path` for this thread while the block runs; another thread or process is refused at once.

    Links are followed, so that every name of a folder has the same lock. Holding it twice in one thread is allowed.
    `inputs` are recorded in the manifest of what `write` puts at `path` in the block.
    """
    holder = _holder(path)
    lock = holder[2]
    if holder in _held:
        yield
        return
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(lock)
    except BlockingIOError as error:
        raise UsageError(f"{path} is being written by another run; wait for it, or choose another --out") from error
    except OSError as error:
        raise cannot_write(path, error) from error
    _held[holder] = inputs
    try:
        yield
    finally:
        del _held[holder]
        with suppress(OSError):
            lock.unlink(missing_ok=True)  # while it is locked: see _lock
        os.close(descriptor)


def _holder(path: Path) -> tuple[int, int, Path]:
    """The process, the thread and the lock file by which this thread holds `path`."""
    target = resolve(path)
    return os.getpid(), threading.get_ident(), target.with_name(f".{target.name}.lock")


def _lock(lock: Path) -> int:
    """Create and lock the file; return its descriptor.

    The holder removes the file before it lets go. Whoever opened it before that and locked it after that has a file
    without a name, which keeps out nobody: so look whether the name still leads to the file, or try again.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def writing(
    path: Path, command: str, *, force: bool = False, resume: bool = False, inputs: Inputs | None = None
) -> Iterator[None]:
    """Hold `path` while a command writes to it; refuse at once what `write` would refuse at the end."""
    check_target(path)
    with hold(path, inputs):
        if resume:
            refuse_finished(path)
        else:
            check_replace(path, {"command": command}, force=force)
        yield


def _check_folder(path: Path) -> None:
    with manifest.refusing(path):
        if not path.exists():
            raise NotFoundError(f"{printable(str(path))} does not exist; give the folder of a model")
        if path.is_dir():
            return
    if path.suffix.lower() in PICKLES:
        raise ModelFileError(f"{path} looks like a pickle, and chainrule never unpickles: give a model folder")
    if ".arpa" in path.suffixes:
        raise ModelFileError(f"{path} is an ARPA file: chainrule convert {path} --out DIR makes a model of it")
    raise ModelFileError(f"{path} is a file, and a model is a folder: give the folder with its {manifest.NAME}")


def _read_manifest(path: Path) -> Manifest:
    if path.is_dir() and not os.path.lexists(path / manifest.NAME):
        if os.path.lexists(path / CHECKPOINT):
            raise ModelFileError(f"{path} holds an unfinished run; {GO_ON}")
        raise ModelFileError(
            f"{path} has no {manifest.NAME}, so it is not a model folder or an incomplete copy of one: "
            "give the folder that was written with --out"
        )
    source = manifest.locate(path, manifest.NAME)
    with manifest.refusing(source):
        if source.stat().st_size > manifest.LARGEST:
            raise ModelFileError(f"{source} is larger than {manifest.LARGEST} bytes; {manifest.REMEDY}")
        return manifest.parse(source.read_bytes(), source)


def _check_checkpoint(path: Path) -> None:
    if os.path.lexists(path / manifest.NAME):
        _read_manifest(path)  # a damaged one is refused by name, as where it is read
    check_target(path)


def _is_of_run(name: str) -> bool:
    return name in (CHECKPOINT, LOG) or LEFTOVER.fullmatch(name) is not None


def _names(path: Path) -> Iterator[str]:
    """Every file of a folder by its relative name, but for a checkpoint and leftovers of a run."""
    for root, folders, names in os.walk(path):
        if Path(root) == path:
            folders[:] = [name for name in folders if name != CHECKPOINT and not LEFTOVER.fullmatch(name)]
            names = [name for name in names if not LEFTOVER.fullmatch(name)]
        for name in names:
            yield Path(root, name).relative_to(path).as_posix()


def _seal(folder: Path, facts: Mapping[str, JSON], marks: Mapping[str, str]) -> Manifest:
    """Record every file in the manifest, and have all of it on the disk before returning."""
    source = folder / manifest.NAME
    assert not source.exists(), "the manifest is written here"
    files = {}
    for root, _, names in os.walk(folder):
        for path in (Path(root, name) for name in names):
            name = path.relative_to(folder).as_posix()
            manifest.check_name(name, source)
            files[name] = Entry(manifest.sha256(path), path.stat().st_size, marks.get(name))
    sealed = Manifest(dict(facts), files)
    source.write_bytes(manifest.serialize(sealed))
    for root, _, names in os.walk(folder, topdown=False):
        for name in (*names, "."):
            flush(Path(root, name))
    return sealed


def as_json(value: Any) -> bytes:
    """A strict JSON document."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(sealed: Sealed, name: str) -> dict[str, Any]:
    """The JSON object of a sealed file."""
    try:
        value = manifest.parse_json(sealed.bytes(name))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{sealed.path / name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{sealed.path / name} is not a JSON object")
    return value
