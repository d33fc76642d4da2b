"""Resolve text sources (paths, folders, globs, standard input) to readable files."""

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
    """A regular file with read permission."""

    path: Path
    name: str  # for messages
    size: int  # bytes, as stored
    stream: "InputStream | None" = None  # standard input that can be read only once


class InputStream:
    """Streamed standard input: a read waits for the first byte and returns the available bytes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._unread = b""

    def read(self, size: int = -1) -> bytes:
        """Read between 1 and `size` bytes; b"" at the end."""
        if self._unread:
            data, self._unread = self._unread[:size], self._unread[size:]
            return data
        return self._raw.read1(size) if hasattr(self._raw, "read1") else self._raw.read(size)

    def unread(self, data: bytes) -> None:
        """Push back bytes, to be read again."""
        self._unread = data + self._unread

    def peek_line(self) -> bytes:
        """Return the bytes up to the end of the first line that is not blank, without consuming them."""
        head = b""
        while not head.strip() or b"\n" not in head.lstrip():
            if not (data := self.read(1 << 16)):
                break
            head += data
        self.unread(head)
        return head

    def is_ready(self) -> bool:
        """Whether a read would not block: bytes are available, or the end is reached."""
        if self._unread:
            return True
        try:
            return bool(select.select([self._raw.fileno()], [], [], 0)[0])
        except (OSError, ValueError):  # not backed by a file descriptor: all data is in memory
            return True


def find_files(sources: Sources, *, reads_once: bool = False) -> tuple[TextFile, ...]:
    """Return the files of the sources in order; those of one folder or glob are sorted by path.

    Hidden files and links to folders inside a folder are skipped. `-` is standard input, which is copied to a
    temporary file so that it can be read repeatedly, or streamed with `reads_once`.
    """
    if not isinstance(sources, str | Path | Sequence):
        raise UsageError(
            f"{sources!r} is not a text source; name a file, a folder, a glob, or - for standard input"
        )
    names = [sources] if isinstance(sources, str | Path) else list(sources)
    if not names:
        raise UsageError("no text was given; name a file, a folder, a glob, or - for standard input")
    files: list[TextFile] = []
    for source in map(str, names):
        if source == "-":
            files.append(_open_stdin() if reads_once else spool(InputStream(_stdin())))
        else:
            files += map(_check_file, expand(source))
    return tuple(files)


def expand(source: str) -> list[str]:
    """Return the files of a folder or glob, sorted by path; any other path is returned unchecked."""
    if os.path.isdir(source):
        paths, reason = _walk(source), f"the folder {source} holds no files (hidden ones are not read)"
    elif glob.has_magic(source) and not os.path.lexists(source):
        # A pattern such as ** matches a folder and the files in it: duplicates are removed below.
        matches = glob.glob(source, recursive=True)
        paths = [path for match in matches for path in (_walk(match) if os.path.isdir(match) else [match])]
        reason = f"no file matches {printable(source)} (looked in {_current_directory()})"
    else:
        return [source]
    if not paths:
        raise NotFoundError(f"{reason}; name at least one text file")
    return sorted(set(paths), key=Path)


def _current_directory() -> str:
    """Return the current directory for error messages."""
    try:
        return os.getcwd()
    except OSError:
        return "a current directory that no longer exists"


def _walk(folder: str) -> list[str]:
    paths: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.join(parent, name) for name in names if not name.startswith(".")]
    return paths


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {error.strerror}; check its permissions") from error


def _check_file(path: str) -> TextFile:
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
    """Copy standard input to a temporary file, which is removed with the returned object."""
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


def _cannot_copy(error: OSError, folder: Path, size: int) -> ChainruleError:
    """Return the error for a copy that failed after `size` bytes."""
    what = f"standard input cannot be copied to {folder}: {error.strerror} after {size / 1e6:,.1f} MB"
    if error.errno == errno.EISDIR:
        return InputError("standard input is a folder; pipe a text in, or name a file")
    return ChainruleError(f"{what}; this command reads its text more than once: name a file, or set TMPDIR")
