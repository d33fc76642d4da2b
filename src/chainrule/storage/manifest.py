"""`manifest.json`: facts about a folder and the checksums of its files, in a canonical form with its own digest."""

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeAlias

from chainrule.errors import ModelFileError
from chainrule.storage import strict_json

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

NAME = "manifest.json"
FORMAT_VERSION = 1
LARGEST = 16 * 2**20  # bytes; a manifest is a few kilobytes
REMEDY = "copy the model folder again from its source, or train it anew"


@dataclass(frozen=True, slots=True)
class Entry:
    """Manifest entry of one file."""

    sha256: str
    size: int  # bytes
    content_id: str | None = None  # identifies the content of a self-verifying file


@dataclass(frozen=True, slots=True)
class Manifest:
    """Facts about the folder, and its files by relative POSIX path."""

    facts: dict[str, JSON]
    files: dict[str, Entry]


def serialize(manifest: Manifest) -> bytes:
    """Serialize a manifest in canonical form; `digest` is the SHA-256 of the text without that field.

    >>> parse(serialize(Manifest({"seed": 1}, {})), Path("manifest.json"))
    Manifest(facts={'seed': 1}, files={})
    """
    reserved = {"format_version": FORMAT_VERSION, "files": {n: _entry_json(e) for n, e in manifest.files.items()}}
    assert not manifest.facts.keys() & {*reserved, "digest"}, "a fact has the name of a manifest field"
    content = {**manifest.facts, **reserved}
    return _canonical({**content, "digest": _digest(content)})


def _entry_json(entry: Entry) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"sha256": entry.sha256, "size": entry.size}
    return fields if entry.content_id is None else {**fields, "mark": entry.content_id}


def parse(raw: bytes, source: Path) -> Manifest:
    """Parse the output of `serialize`; raise ModelFileError if a single bit differs."""
    try:
        content = _decode(raw)
        _check_version(content.get("format_version"), source)
        digest = content.pop("digest", None)
        is_intact = digest == _digest(content) and raw == _canonical({**content, "digest": digest})
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{source} is not a manifest ({error})", REMEDY) from error
    if not is_intact:
        raise ModelFileError(f"{source} is damaged or was edited: its digest does not match", REMEDY)
    files = _entries(content.pop("files", None), source)
    del content["format_version"]
    return Manifest(content, files)


def locate(folder: Path, name: str) -> Path:
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


def check(path: Path, entry: Entry, content: bytes | None = None) -> None:
    """Raise ModelFileError if the file at `path`, or the `content` read from it, does not match its entry."""
    check_size(path, entry, content)
    with translate_io_errors(path):
        digest = sha256(path) if content is None else hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise ModelFileError(f"{path} is damaged or was changed: its sha256 does not match", REMEDY)


def sha256(path: Path) -> str:
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
                entries[name] = Entry(digest, size, content_id)
            case {"sha256": str(digest), "size": int(size)}:
                entries[name] = Entry(digest, size)
            case _:
                raise ModelFileError(f"{source} gives no sha256 and size for {name!r}", REMEDY)
    return entries


def _check_version(version: object, source: Path) -> None:
    if type(version) is int and 1 <= version <= FORMAT_VERSION:
        return
    is_newer = type(version) is int and version > FORMAT_VERSION
    advice = "made by a newer chainrule: upgrade with pip install --upgrade chainrule" if is_newer else REMEDY
    raise ModelFileError(f"{source} has format version {version!r}, this chainrule reads {FORMAT_VERSION}", advice)


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _decode(raw: bytes) -> dict[str, Any]:
    content = strict_json.parse(raw)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content
