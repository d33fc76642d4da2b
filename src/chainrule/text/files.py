"""Sources as a person names them -> the files that hold the text.

Lives here: paths, folders, globs, standard input, and the refusal of what is no readable file.
Not here: opening what was found (compression.py).
"""

import errno
import glob
import os
import select
import shutil
import stat
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from chainrule.errors import ChainruleError, InputError, NotFoundError, UsageError, printable
from chainrule.scratch import ScratchFolder

Sources = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextFile:
    """A regular file that this user may read."""

    path: Path
    name: str  # what messages call it
    size: int  # bytes, as stored
    stream: "InputStream | None" = None  # standard input that is not copied: it can be read once


class InputStream:
    """Standard input as it comes: a read waits for the first byte and takes what is there."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._unread = b""

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, at least one of them; b"" at the end."""
        if self._unread:
            data, self._unread = self._unread[:size], self._unread[size:]
            return data
        return self._raw.read1(size) if hasattr(self._raw, "read1") else self._raw.read(size)

    def unread(self, data: bytes) -> None:
        """Give back what was read too early."""
        self._unread = data + self._unread

    def peek_line(self) -> bytes:
        """The first bytes, up to the end of the first line that is not blank; nothing of it counts as read."""
        head = b""
        while not head.strip() or b"\n" not in head.lstrip():
            if not (data := self.read(1 << 16)):
                break
            head += data
        self.unread(head)
        return head

    def is_ready(self) -> bool:
        """Whether a read would not wait: there are bytes, or the end has come."""
        if self._unread:
            return True
        try:
            return bool(select.select([self._raw.fileno()], [], [], 0)[0])
        except (OSError, ValueError):  # not a stream of the system: it is all there
            return True


def find_files(sources: Sources, *, reads_once: bool = False) -> tuple[TextFile, ...]:
    """The files behind these sources, in the order given; those of one folder or glob sorted by path.

    Hidden files and links to folders inside a folder are passed over; `-` is standard input, which is copied to a
    temporary file so that it can be read again, or with `reads_once` read as it comes.
    """
    if not isinstance(sources, str | Path | Sequence):
        raise UsageError(f"{sources!r} is no text; name a file, a folder, a glob, or - for standard input")
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    if not given:
        raise UsageError("no text was given; name a file, a folder, a glob, or - for standard input")
    found: list[TextFile] = []
    for source in map(str, given):
        if source == "-":
            found.append(_open_stdin() if reads_once else spool(InputStream(_stdin())))
        else:
            found += map(_check, expand(source))
    return tuple(found)


def expand(source: str) -> list[str]:
    """The files of a folder or a glob, sorted by path; a path itself, whether or not it exists."""
    if os.path.isdir(source):
        found, reason = _walk(source), f"the folder {source} holds no files (hidden ones are not read)"
    elif glob.has_magic(source) and not os.path.lexists(source):
        # A pattern such as ** matches a folder and also the files in it: each is wanted once.
        matches = glob.glob(source, recursive=True)
        found = [path for match in matches for path in (_walk(match) if os.path.isdir(match) else [match])]
        reason = f"no file matches {printable(source)} (looked in {_current_directory()})"
    else:
        return [source]
    if not found:
        raise NotFoundError(f"{reason}; name at least one text file")
    return sorted(set(found), key=Path)


def _current_directory() -> str:
    """The current directory as an error message names it."""
    try:
        return os.getcwd()
    except OSError:
        return "a current directory that no longer exists"


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
        raise NotFoundError(f"there is no file or folder {path!r} (looked in {_current_directory()})") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check the path") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is a pipe, socket or device, not a file; pipe its text in and name - instead")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} may not be read by this user; check its permissions")
    return TextFile(Path(path), path, status.st_size)


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; pipe a text in, or name a file")
    return sys.stdin.buffer


def _open_stdin() -> TextFile:
    return TextFile(Path("-"), "standard input", 0, InputStream(_stdin()))


def spool(stream: InputStream) -> TextFile:
    """Copy standard input, so that it can be read again; the copy goes with the last corpus that reads it."""
    folder = ScratchFolder()
    path = folder.path / "standard-input"
    try:
        with path.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
    except BaseException as error:
        size = path.stat().st_size if path.exists() else 0
        folder.remove()
        if isinstance(error, OSError):
            raise _cannot_copy(error, folder.path.parent, size) from error
        raise
    file = TextFile(path, "standard input", path.stat().st_size)
    weakref.finalize(file, folder.remove)
    return file


def _cannot_copy(error: OSError, place: Path, size: int) -> ChainruleError:
    """The error of a copy that failed after so many bytes."""
    what = f"standard input cannot be copied to {place}: {error.strerror} after {size / 1e6:,.1f} MB"
    if error.errno == errno.EISDIR:
        return InputError("standard input is a folder; pipe a text in, or name a file")
    return ChainruleError(f"{what}; this command reads its text more than once: name a file, or set TMPDIR")
