"""Sources as a person names them -> the files that hold the text.

Lives here: paths, folders, globs, standard input, and the refusal of what is no readable file.
Not here: opening what was found (compression.py).
"""

import glob
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chainrule.errors import ChainruleError, InputError, NotFoundError, UsageError

Sources = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextFile:
    """A regular file that this user may read."""

    path: Path
    name: str  # what messages call it
    size: int  # bytes, as stored


def find_files(sources: Sources) -> tuple[TextFile, ...]:
    """The files behind these sources, in the order given; those of one folder or glob sorted by path.

    Hidden files and links to folders inside a folder are passed over; `-` is standard input.
    """
    if not isinstance(sources, str | Path | Sequence):
        raise UsageError(f"{sources!r} is no text; name a file, a folder, a glob, or - for standard input")
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    if not given:
        raise UsageError("no text was given; name a file, a folder, a glob, or - for standard input")
    found: list[TextFile] = []
    for source in map(str, given):
        found += [_spool()] if source == "-" else map(_check, _expand(source))
    return tuple(found)


def _expand(source: str) -> list[str]:
    if os.path.isdir(source):
        found, reason = _walk(source), f"the folder {source} holds no files (hidden ones are not read)"
    elif glob.has_magic(source) and not os.path.lexists(source):
        # A pattern such as ** matches a folder and also the files in it: each is wanted once.
        matches = glob.glob(source, recursive=True)
        found = [path for match in matches for path in (_walk(match) if os.path.isdir(match) else [match])]
        reason = f"no file matches {source} (looked in {os.getcwd()})"
    else:
        return [source]
    if not found:
        raise NotFoundError(f"{reason}; name at least one text file")
    return sorted(set(found), key=Path)


def _walk(folder: str) -> list[str]:
    found: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in names if not name.startswith(".")]
    return found


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {error.strerror}; check its permissions") from error


def _check(path: str) -> TextFile:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise NotFoundError(f"there is no file or folder {path!r} (looked in {os.getcwd()})") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check the path") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is a pipe, socket or device, not a file; pipe its text in and name - instead")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} may not be read by this user; check its permissions")
    return TextFile(Path(path), path, status.st_size)


def _spool() -> TextFile:
    """Copy standard input, so that it can be read again; the copy goes with the last corpus that reads it."""
    if sys.stdin is None:
        raise InputError("standard input is closed; pipe a text in, or name a file")
    handle, path = tempfile.mkstemp(prefix="chainrule-")
    try:
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
    except BaseException as error:
        os.unlink(path)
        if isinstance(error, OSError):
            raise ChainruleError(
                f"standard input cannot be copied to {path}: {error.strerror}; make room there, or name another "
                "folder with TMPDIR"
            ) from error
        raise
    file = TextFile(Path(path), "standard input", os.path.getsize(path))
    weakref.finalize(file, os.unlink, path)
    return file
