"""`manifest.json`: what a sealed folder says of itself, in one canonical form that protects itself.

Lives here: the text of the manifest, to bytes and back; finding a file and checking it against its record.
Not here: the folder as a whole, its making and its reading (folder.py).
"""

import hashlib
import json
import math
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NoReturn, TypeAlias

from chainrule.errors import ModelFileError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

NAME = "manifest.json"
FORMAT_VERSION = 1
LARGEST = 16 * 2**20  # bytes; a manifest is a few kilobytes
REMEDY = "copy the model folder again from its source, or train it anew"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the manifest records of one file."""

    sha256: str
    size: int  # bytes
    mark: str | None = None  # of a file that verifies itself as it is read: which one it is


@dataclass(frozen=True, slots=True)
class Manifest:
    """Facts about the folder, and its files by their relative names with forward slashes."""

    facts: dict[str, JSON]
    files: dict[str, Entry]


def serialize(manifest: Manifest) -> bytes:
    """The one text of this manifest; `digest` is the sha256 of the same text without it.

    >>> parse(serialize(Manifest({"seed": 1}, {})), Path("manifest.json"))
    Manifest(facts={'seed': 1}, files={})
    """
    reserved = {"format_version": FORMAT_VERSION, "files": {n: _recorded(e) for n, e in manifest.files.items()}}
    assert not manifest.facts.keys() & {*reserved, "digest"}, "a fact has the name of a manifest field"
    content = {**manifest.facts, **reserved}
    return _canonical({**content, "digest": _digest(content)})


def _recorded(entry: Entry) -> dict[str, JSON]:
    return {name: value for name, value in asdict(entry).items() if value is not None}


def parse(raw: bytes, source: Path) -> Manifest:
    """Read back what `serialize` wrote; a text that differs by a single bit is refused, `source` named."""
    try:
        content = _decode(raw)
        _check_version(content.get("format_version"), source)
        digest = content.pop("digest", None)
        is_intact = digest == _digest(content) and raw == _canonical({**content, "digest": digest})
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{source} is not a manifest ({error}); {REMEDY}") from error
    if not is_intact:
        raise ModelFileError(f"{source} is damaged or was edited: its digest does not match; {REMEDY}")
    files = _entries(content.pop("files", None), source)
    del content["format_version"]
    return Manifest(content, files)


def locate(folder: Path, name: str) -> Path:
    """Where the regular file `name` of `folder` lies; a link or anything else is refused and never opened."""
    path = folder / name
    with refusing(path):
        if any(step.is_symlink() for step in (path, *path.parents[: name.count("/")])):
            raise ModelFileError(f"{path} is, or lies behind, a symbolic link; put the file itself in its place")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ModelFileError(f"{path} is not a regular file; {REMEDY}")
    return path


def check_size(path: Path, entry: Entry, content: bytes | None = None) -> None:
    """Refuse the file at `path`, or the `content` read from it, where it is longer or shorter than it was."""
    with refusing(path):
        size = path.lstat().st_size if content is None else len(content)
    if size != entry.size:
        raise ModelFileError(f"{path} has {size} bytes, the manifest says {entry.size}; {REMEDY}")


def check(path: Path, entry: Entry, content: bytes | None = None) -> None:
    """Refuse the file at `path`, or the `content` read from it, where it is not what the entry records."""
    check_size(path, entry, content)
    with refusing(path):
        digest = sha256(path) if content is None else hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise ModelFileError(f"{path} is damaged or was changed: its sha256 does not match; {REMEDY}")


def sha256(path: Path) -> str:
    """The digest of a file of any size, in bounded memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn what the system says while `path` is read into a refusal that names it."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFileError(f"{path} is missing; {REMEDY}") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def check_name(name: str, source: Path) -> None:
    """Refuse a name that could lead out of the folder on any system, or that has a second spelling."""
    is_plain = not PureWindowsPath(name).anchor and not {"\\", "\0"} & set(name)
    if not is_plain or ".." in name.split("/") or str(PurePosixPath(name)) != name or name == ".":
        raise ModelFileError(f"{source} lists {name!r}, which is not a file inside the folder; {REMEDY}")


def _entries(files: object, source: Path) -> dict[str, Entry]:
    if not isinstance(files, dict):
        raise ModelFileError(f"{source} lists no files; {REMEDY}")
    entries = {}
    for name, entry in files.items():
        check_name(name, source)
        match entry:
            case {"sha256": str(digest), "size": int(size), "mark": str(mark)}:
                entries[name] = Entry(digest, size, mark)
            case {"sha256": str(digest), "size": int(size)}:
                entries[name] = Entry(digest, size)
            case _:
                raise ModelFileError(f"{source} gives no sha256 and size for {name!r}; {REMEDY}")
    return entries


def _check_version(version: object, source: Path) -> None:
    if type(version) is int and 1 <= version <= FORMAT_VERSION:
        return
    is_newer = type(version) is int and version > FORMAT_VERSION
    advice = "made by a newer chainrule: upgrade with pip install --upgrade chainrule" if is_newer else REMEDY
    raise ModelFileError(
        f"{source} has format version {version!r}, this chainrule reads {FORMAT_VERSION}; {advice}"
    )


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def parse_json(raw: bytes) -> Any:
    """Parse strict JSON: ValueError for NaN, a number that overflows float64, and a key that stands twice."""
    return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is beyond the range of numbers")
    return number


def _decode(raw: bytes) -> dict[str, Any]:
    content = parse_json(raw)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key stands twice")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
