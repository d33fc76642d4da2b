"""Folders with a checksum manifest: atomic writing, locking, and verification before use.

`manifest.json` contains facts about a folder and the checksums of its files, in canonical form with a digest.

A training run in progress keeps a checkpoint and a log in the folder until the finished model replaces it.
"""

import builtins
import fcntl
import hashlib
import json
import os
import re
import shlex
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, TypeAlias

from chainrule.errors import ChainruleError, ModelFileError, NotFoundError, UsageError, printable
from chainrule.storage import strict_json
from chainrule.storage.atomic import atomic_folder, flush, link_identical, resolve, write_error
from chainrule.text.readers import expand

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
LARGEST_MANIFEST = 16 * 2**20  # bytes; a manifest is a few kilobytes
REMEDY = "copy the model folder again from its source, or retrain it"


@dataclass(frozen=True, slots=True)
class Entry:
    """Manifest entry of one file."""

    sha256: str
    size: int  # bytes
    content_id: str | None = None  # identifies the content of a self-verifying file
    is_optional: bool = False  # a copy of the folder may lack the file


@dataclass(frozen=True, slots=True)
class Manifest:
    """Facts about the folder, and its files by relative POSIX path."""

    facts: dict[str, JSON]
    files: dict[str, Entry]


def serialize_manifest(manifest: Manifest) -> bytes:
    """Serialize a manifest in canonical form; `digest` is the SHA-256 of the text without that field.

    >>> parse_manifest(serialize_manifest(Manifest({"seed": 1}, {})), Path("manifest.json"))
    Manifest(facts={'seed': 1}, files={})
    """
    reserved = {"format_version": FORMAT_VERSION, "files": {n: _entry_json(e) for n, e in manifest.files.items()}}
    assert not manifest.facts.keys() & {*reserved, "digest"}, "a fact has the name of a manifest field"
    content = {**manifest.facts, **reserved}
    return _canonical_json({**content, "digest": _manifest_digest(content)})


def _entry_json(entry: Entry) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"sha256": entry.sha256, "size": entry.size}
    if entry.content_id is not None:
        fields["mark"] = entry.content_id
    if entry.is_optional:
        fields["optional"] = True
    return fields


def parse_manifest(raw: bytes, source: Path) -> Manifest:
    """Parse the output of `serialize_manifest`; raise ModelFileError if a single bit differs."""
    try:
        content = strict_json.parse(raw)
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        _check_version(content.get("format_version"), source)
        digest = content.pop("digest", None)
        is_intact = digest == _manifest_digest(content) and raw == _canonical_json({**content, "digest": digest})
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{source} is not a manifest ({error})", REMEDY) from error
    if not is_intact:
        raise ModelFileError(f"{source} is damaged or was edited: its digest does not match", REMEDY)
    files = _entries(content.pop("files", None), source)
    del content["format_version"]
    return Manifest(content, files)


def locate_file(folder: Path, name: str) -> Path:
    """Return the path of the regular file `name` in `folder`; raise for symbolic links and other file types."""
    path = folder / name
    with translate_io_errors(path):
        if any(step.is_symlink() for step in (path, *path.parents[: name.count("/")])):
            raise ModelFileError(f"{path} is, or lies behind, a symbolic link; put the file itself in its place")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ModelFileError(f"{path} is not a regular file", REMEDY)
    return path


def check_size(path: Path, entry: Entry, content: bytes | None = None) -> None:
    """Raise ModelFileError if the file at `path`, or the `content` read from it, has the wrong size."""
    with translate_io_errors(path):
        size = path.lstat().st_size if content is None else len(content)
    if size != entry.size:
        raise ModelFileError(f"{path} has {size} bytes, the manifest says {entry.size}", REMEDY)


def check_file(path: Path, entry: Entry, content: bytes | None = None) -> None:
    """Raise ModelFileError if the file at `path`, or the `content` read from it, does not match its entry."""
    check_size(path, entry, content)
    with translate_io_errors(path):
        digest = file_sha256(path) if content is None else hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise ModelFileError(f"{path} is damaged or was changed: its sha256 does not match", REMEDY)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in bounded memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def translate_io_errors(path: Path) -> Iterator[None]:
    """Convert OSError raised while reading `path` into ModelFileError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFileError(f"{path} is missing", REMEDY) from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def check_name(name: str, source: Path) -> None:
    """Raise for a path that is not normalized or could leave the folder on any operating system."""
    is_plain = not PureWindowsPath(name).anchor and not {"\\", "\0"} & set(name)
    if not is_plain or ".." in name.split("/") or str(PurePosixPath(name)) != name or name == ".":
        raise ModelFileError(f"{source} lists {name!r}, which is not a file inside the folder", REMEDY)


def _entries(files: object, source: Path) -> dict[str, Entry]:
    if not isinstance(files, dict):
        raise ModelFileError(f"{source} lists no files", REMEDY)
    entries = {}
    for name, entry in files.items():
        check_name(name, source)
        match entry:
            case {"sha256": str(digest), "size": int(size), "mark": str(content_id)}:
                entries[name] = Entry(digest, size, content_id, entry.get("optional") is True)
            case {"sha256": str(digest), "size": int(size)}:
                entries[name] = Entry(digest, size, is_optional=entry.get("optional") is True)
            case _:
                raise ModelFileError(f"{source} gives no sha256 and size for {name!r}", REMEDY)
    return entries


def _check_version(version: object, source: Path) -> None:
    advice = REMEDY
    if type(version) is int and version > FORMAT_VERSION:
        advice = "it was written by a newer version of chainrule: upgrade with pip install --upgrade chainrule"
    elif type(version) is int and version >= 1:
        return
    raise ModelFileError(
        f"{source} has format version {version!r}, but this version of chainrule reads {FORMAT_VERSION}", advice
    )


def _canonical_json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _manifest_digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical_json(content)).hexdigest()


CHECKPOINT = "checkpoint"  # state of an unfinished run; itself a folder with a manifest
LOG = "train_log.part.jsonl"  # training log of an unfinished run; the finished model has train_log.jsonl
RESUME_HINT = "continue it by running the same command with --resume"
LEFTOVER = re.compile(rf"\.({CHECKPOINT}|{re.escape(LOG)})\.\d{{1,9}}\.[0-9a-f]+\.(partial|aside)")
REPLACE_HINT = "to replace it give --force (in Python force=True), or choose another --out"
IGNORED_OPTIONS = {"--force", "--resume", "--json", "--debug"}  # options that do not change what a command writes
DESCRIPTIONS = {"README.md", "metrics.json", "train_log.jsonl"}  # contain times, so they differ between equal runs
PICKLES = {".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib"}


@dataclass(frozen=True, slots=True)
class VerifiedDir:
    """A folder whose files are compared with its manifest, each once, before they are used.

    `open_dir` checks names, types and sizes; `verified_path` and `bytes` verify the SHA-256 of a file, and
    `verify_rest` that of all files not used so far. Files with a content id contain checksums and verify themselves
    when they are read.
    """

    path: Path
    facts: dict[str, JSON]
    files: Mapping[str, Entry]
    _verified: set[Path] = field(default_factory=set, repr=False, compare=False)

    def verified_path(self, name: str) -> Path:
        """Return the path of a listed file after verifying it."""
        path = self._locate(name)
        if path not in self._verified and self.files[name].content_id is None:
            check_file(path, self.files[name])
            self._verified.add(path)
        return path

    def bytes(self, name: str) -> builtins.bytes:
        """Read a listed file and verify exactly the bytes returned."""
        path = self._locate(name)
        with translate_io_errors(path), path.open("rb") as file:
            content = file.read(self.files[name].size + 1)
        check_file(path, self.files[name], content)
        self._verified.add(path)
        return content

    def is_present(self, name: str) -> bool:
        """Whether a listed file is in the folder; only optional files can be absent."""
        return not self.files[name].is_optional or os.path.lexists(self.path / name)

    def verify_rest(self) -> None:
        """Verify the files that were not read, except those that verify themselves."""
        for name in filter(self.is_present, self.files):
            self.verified_path(name)

    def subfolder(self, prefix: str) -> "VerifiedDir":
        """Return the files under `prefix` as a verified folder with the same facts."""
        start = f"{prefix.rstrip('/')}/"
        files = {name.removeprefix(start): e for name, e in self.files.items() if name.startswith(start)}
        if not files:
            raise ModelFileError(f"{self.path / prefix} is not in the manifest", REMEDY)
        return VerifiedDir(self.path / prefix, self.facts, files, self._verified)

    def _locate(self, name: str) -> Path:
        if name not in self.files:
            raise ModelFileError(f"{self.path / name} is not in the manifest", REMEDY)
        return locate_file(self.path, name)


@dataclass(frozen=True, slots=True)
class StreamedFile:
    """A file written by a callback."""

    size: int  # bytes
    write: Callable[[Path], None]  # creates the file at a new path
    content_id: str | None = None  # for the manifest, if the format contains checksums verified on reading
    is_optional: bool = False  # a copy of the folder may lack the file

    def __len__(self) -> int:
        return self.size


Inputs = Mapping[str, str | None]
"""SHA-256 of the inputs of a command other than the training text, by path; None if unknown."""

Content = builtins.bytes | StreamedFile
"""Content of a file to write."""


def write_file(path: Path, content: Content) -> None:
    """Write one file and create its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, StreamedFile):
        content.write(path)
    else:
        path.write_bytes(content)


def open_dir(path: Path, *, verify: bool = False) -> VerifiedDir:
    """Open the folder at `path` after checking its manifest and the type and size of every listed file.

    The content of each file is verified when it is read. With `verify`, files that verify themselves block by block
    are compared with their SHA-256 immediately.
    """
    _check_folder(path)
    listed = _read_manifest(path)
    opened = VerifiedDir(path, listed.facts, listed.files)
    for name in filter(opened.is_present, listed.files):
        entry = listed.files[name]
        check = check_file if verify and entry.content_id is not None else check_size
        check(locate_file(path, name), entry)
    return opened


def write(
    path: Path,
    fill: Callable[[Path], None],
    facts: Mapping[str, JSON],
    content_ids: Mapping[str, str] = MappingProxyType({}),
    *,
    optional: Collection[str] = (),
    force: bool = False,
    run: Path | None = None,
) -> None:
    """Let `fill` write files into a new folder, add the manifest with `facts`, and move it to `path` atomically.

    `content_ids` are those of the self-verifying files, by name; `optional` names the files that a copy of the
    folder may lack. Existing content of `path` is replaced if `check_replace` allows it or if it is the same model;
    after any failure it is unchanged.
    """
    target = resolve(path)
    inputs = _locks_held.get(_lock_key(target))
    facts = facts if inputs is None else {**facts, "inputs": inputs}
    refusal = None
    try:
        try:
            check_replace(path, facts, force=force, run=run)
        except FinishedModelError as error:
            refusal = error
        with atomic_folder(target) as temporary:
            fill(temporary)
            new_manifest = _write_manifest(temporary, facts, content_ids, optional)
            if refusal is not None and _content_digests(new_manifest) != _content_digests(_read_manifest(target)):
                raise refusal
            check_writable_target(target)  # check again: writing may take hours
    except OSError as error:
        raise write_error(path, error) from error


def share_files(path: Path, others: Iterable[Path]) -> None:
    """Replace files of the model folder at `path` with hard links to identical files of the folders `others`.

    The copies remain on file systems without hard links. Files of model folders are never written in place, so
    that changing one folder does not change another.
    """
    target = resolve(path)
    sources: dict[tuple[str, int], list[Path]] = {}
    for other in others:
        with suppress(ModelFileError):  # skip damaged folders
            for name, entry in _read_manifest(other).files.items():
                sources.setdefault((entry.sha256, entry.size), []).append(other / name)
    with lock(path):
        for name, entry in _read_manifest(target).files.items():
            for source in sources.get((entry.sha256, entry.size), ()):
                if link_identical(target / name, source, folder=target):
                    break


class FinishedModelError(UsageError):
    """A folder contains a finished model that the command may not replace."""


def check_replace(path: Path, facts: Mapping[str, JSON], *, force: bool = False, run: Path | None = None) -> None:
    """Raise UsageError if `path` contains an unfinished run or a finished model, unless `force` is True.

    A finished model may be replaced by the same command line on the same text and inputs: `facts` are the known
    facts of the new model, and its inputs are those passed when `path` was locked. A run may be replaced by its own
    model: `run` is the folder of the run that trained it. Call this while holding the lock.
    """
    check_writable_target(path)
    if force:
        return
    if os.path.lexists(path / CHECKPOINT):
        if run is None or resolve(run) != resolve(path):
            raise UsageError(
                f"{path} contains an unfinished run; {RESUME_HINT}, "
                "or discard it with --force (in Python force=True)"
            )
    elif os.path.lexists(path / MANIFEST):
        with _translate_read_errors(path):
            old = _read_manifest(path).facts
        command = command_words(old.get("command"))
        if command is None or command != command_words(facts.get("command")):
            maker = f" (made by: {old['command']})" if old.get("command") else ""
            raise FinishedModelError(f"{path} contains a finished model{maker}; {REPLACE_HINT}")
        if "training_text" in facts and text_sha256(old) != text_sha256(facts):
            raise FinishedModelError(
                f"{path} contains a finished model of the same command and another text; {REPLACE_HINT}"
            )
        _check_inputs(path, old.get("inputs"))


def _check_inputs(path: Path, old: JSON) -> None:
    """Raise unless the inputs of the finished model are known and equal to those of this command."""
    inputs = _locks_held.get(_lock_key(resolve(path))) or {}
    recorded_inputs = old if isinstance(old, Mapping) else {}
    for name in sorted({*inputs, *recorded_inputs}):
        if inputs.get(name) is None or inputs[name] != recorded_inputs.get(name):
            reason = "has changed since" if inputs.get(name) and name in recorded_inputs else "may have changed"
            raise FinishedModelError(
                f"{path} contains a finished model of the same command, but its input {name} {reason}; "
                f"{REPLACE_HINT}"
            )


def read_facts(path: Path) -> dict[str, JSON] | None:
    """Read the facts of the manifest at `path` without verifying files; None without an intact manifest."""
    try:
        return _read_manifest(path).facts
    except ModelFileError:
        return None


def command_words(command: JSON) -> list[str] | None:
    """Return the words of a recorded command line that affect its output; None for models trained from Python."""
    try:
        words = shlex.split(str(command or ""))
    except ValueError:
        return None
    return [word for word in words if word not in IGNORED_OPTIONS] if words[:1] == ["chainrule"] else None


def content_sha256(path: Path) -> str:
    """Return a digest of the model files listed in the manifest at `path`; equal for equal models."""
    names = json.dumps(_content_digests(_read_manifest(path)), sort_keys=True)
    return hashlib.sha256(names.encode()).hexdigest()


def text_sha256(facts: Mapping[str, JSON]) -> JSON:
    """Return the SHA-256 of the training text from the facts of a manifest."""
    text = facts.get("training_text")
    return text.get("sha256") if isinstance(text, Mapping) else None


def _content_digests(listed: Manifest) -> dict[str, str]:
    """Return the SHA-256 of every model file by name, without logs and descriptions."""
    return {name: entry.sha256 for name, entry in listed.files.items() if name not in DESCRIPTIONS}


def check_writable_target(path: Path) -> None:
    """Raise unless `path` is absent, empty, a model folder or an unfinished run: `write` replaces nothing else.

    The files of a run are its checkpoint, its log, and temporary files left over from writing these.
    """
    _refuse_current_directory(path)
    if not os.path.lexists(path):
        return
    with _translate_read_errors(path):
        try:
            names = {entry.name for entry in path.iterdir()}
            listed = {} if all(map(_is_run_file, names)) else _read_manifest(path).files
        except (ModelFileError, NotADirectoryError) as error:
            if isinstance(error.__cause__, OSError):
                raise
            raise UsageError(f"{path} exists and is not a model folder; choose another --out") from error
        if CHECKPOINT in names:
            _check_checkpoint(path / CHECKPOINT)
        for name in _file_names(path):
            if name not in listed and name not in (MANIFEST, LOG):
                raise UsageError(
                    f"{path} contains {name}, which is not part of the model; move it, or choose another --out"
                )


def _refuse_current_directory(path: Path) -> None:
    """Raise if `path` is the current working directory or one of its parents."""
    try:
        current = Path.cwd()
    except OSError:  # it no longer exists
        return
    if current.is_relative_to(resolve(path)):
        raise UsageError(
            f"'{path}' is the current directory or one above it, but a model folder is replaced as a whole; "
            "choose another --out"
        )


@contextmanager
def _translate_read_errors(path: Path) -> Iterator[None]:
    """Convert I/O errors raised while inspecting the folder to replace into write errors."""
    try:
        yield
    except ModelFileError as error:
        if isinstance(error.__cause__, OSError):
            raise write_error(path, error.__cause__) from error
        raise
    except OSError as error:
        raise write_error(path, error) from error


def require_not_finished(path: Path) -> None:
    """Raise if there is nothing to resume: a finished model without a checkpoint."""
    if os.path.lexists(path / MANIFEST) and not os.path.lexists(path / CHECKPOINT):
        raise UsageError(
            f"{path} contains a finished model; remove --resume to retrain it, or choose another --out"
        )


_locks_held: dict[tuple[int, int, Path], Inputs | None] = {}
"""Locks held, by process, thread and lock file, with the inputs of the command that holds each."""


@contextmanager
def lock(path: Path, inputs: Inputs | None = None) -> Iterator[None]:
    """Lock `path` for this thread; raise UsageError if another thread or process holds the lock.

    Links are followed, so that every name of a folder has the same lock. The lock is re-entrant. `inputs` are
    recorded in the manifest of the folder that `write` creates at `path` in the block.
    """
    holder = _lock_key(resolve(path))
    lock_file = holder[2]
    if holder in _locks_held:
        yield
        return
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(lock_file)
    except BlockingIOError as error:
        raise UsageError(f"{path} is being written by another run; wait for it, or choose another --out") from error
    except OSError as error:
        raise write_error(path, error) from error
    _locks_held[holder] = inputs
    try:
        yield
    finally:
        del _locks_held[holder]
        with suppress(OSError):
            lock_file.unlink(missing_ok=True)  # before releasing the lock: see _lock
        os.close(descriptor)


def _lock_key(target: Path) -> tuple[int, int, Path]:
    """Return the process id, the thread id and the lock file of a resolved path."""
    return os.getpid(), threading.get_ident(), target.with_name(f".{target.name}.lock")


def _lock(lock_file: Path) -> int:
    """Create and lock the file; return its descriptor.

    The holder unlinks the file before it releases the lock. A process that opened the file before and locked it
    afterwards holds a lock on an unlinked file: compare the descriptor with the path, and retry if they differ.
    """
    while True:
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(lock_file)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def lock_for_writing(
    path: Path, command: str, *, force: bool = False, resume: bool = False, inputs: Inputs | None = None
) -> Iterator[None]:
    """Lock `path` while a command writes to it, and raise early the errors that `write` would raise at the end."""
    check_writable_target(path)
    with lock(path, inputs):
        if resume:
            require_not_finished(path)
        else:
            check_replace(path, {"command": command}, force=force)
        yield


def _check_folder(path: Path) -> None:
    with translate_io_errors(path):
        if not path.exists():
            raise NotFoundError(f"{printable(str(path))} does not exist; give the folder of a model")
        if path.is_dir():
            return
    if path.suffix.lower() in PICKLES:
        raise ModelFileError(f"{path} looks like a pickle, but chainrule never unpickles: give a model folder")
    if ".arpa" in path.suffixes:
        raise ModelFileError(f"{path} is an ARPA file: chainrule convert {path} --out DIR makes a model of it")
    raise ModelFileError(f"{path} is a file, but a model is a folder: give the folder with its {MANIFEST}")


def _read_manifest(path: Path) -> Manifest:
    if path.is_dir() and not os.path.lexists(path / MANIFEST):
        if os.path.lexists(path / CHECKPOINT):
            raise ModelFileError(f"{path} contains an unfinished run; {RESUME_HINT}")
        raise ModelFileError(
            f"{path} has no {MANIFEST}, so it is either not a model folder or an incomplete copy of one: "
            "give the folder that was written with --out"
        )
    source = locate_file(path, MANIFEST)
    with translate_io_errors(source):
        if source.stat().st_size > LARGEST_MANIFEST:
            raise ModelFileError(f"{source} is larger than {LARGEST_MANIFEST} bytes", REMEDY)
        return parse_manifest(source.read_bytes(), source)


def _check_checkpoint(path: Path) -> None:
    if os.path.lexists(path / MANIFEST):
        _read_manifest(path)  # raises for a damaged manifest
    check_writable_target(path)


def _is_run_file(name: str) -> bool:
    return name in (CHECKPOINT, LOG) or LEFTOVER.fullmatch(name) is not None


def _file_names(path: Path) -> Iterator[str]:
    """Yield the relative names of all files, without the checkpoint and temporary files of a run."""
    for root, folders, names in os.walk(path):
        if Path(root) == path:
            folders[:] = [name for name in folders if name != CHECKPOINT and not LEFTOVER.fullmatch(name)]
            names = [name for name in names if not LEFTOVER.fullmatch(name)]
        for name in names:
            yield Path(root, name).relative_to(path).as_posix()


def _write_manifest(
    folder: Path, facts: Mapping[str, JSON], content_ids: Mapping[str, str], optional: Collection[str]
) -> Manifest:
    """Write the manifest of a new folder and flush all its files to disk."""
    source = folder / MANIFEST
    assert not source.exists(), "the manifest is written here"
    files = {}
    for root, _, names in os.walk(folder):
        for path in (Path(root, name) for name in names):
            name = path.relative_to(folder).as_posix()
            check_name(name, source)
            files[name] = Entry(file_sha256(path), path.stat().st_size, content_ids.get(name), name in optional)
    new_manifest = Manifest(dict(facts), files)
    source.write_bytes(serialize_manifest(new_manifest))
    for root, _, names in os.walk(folder, topdown=False):
        for name in (*names, "."):
            flush(Path(root, name))
    return new_manifest


def read_json(verified: VerifiedDir, name: str) -> dict[str, Any]:
    """Read the JSON object in a listed file."""
    try:
        value = strict_json.parse(verified.bytes(name))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{verified.path / name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{verified.path / name} is not a JSON object")
    return value


def input_digests(sources: Iterable[str | Path | None]) -> dict[str, str | None]:
    """Return the SHA-256 of every source that exists, by its path.

    The digest of a source that can be read only once is None. Strings that do not name a file (a tokenizer kind)
    and unreadable files are omitted: the code that reads them raises the error.
    """
    by_name: dict[str, str | None] = {}
    for name in sorted({str(source) for source in sources if source is not None}):
        key = name.encode(errors="backslashreplace").decode()
        if name == "-":
            by_name[key] = None
            continue
        try:
            if os.path.exists(os.path.join(name, MANIFEST)):
                by_name[key] = content_sha256(Path(name))
            elif paths := [path for path in expand(name) if os.path.exists(path)]:
                by_name[key] = _digest(paths)
        except (OSError, ValueError, ChainruleError):
            continue
    return by_name


def _digest(paths: list[str]) -> str | None:
    """Return the digest of one file, or of the digests of several; None for pipes and devices."""
    if not all(map(os.path.isfile, paths)):
        return None
    file_digests = [file_sha256(Path(path)) for path in paths]
    return file_digests[0] if len(paths) == 1 else hashlib.sha256("\n".join(file_digests).encode()).hexdigest()
