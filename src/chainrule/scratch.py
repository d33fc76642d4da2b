"""Temporary folders that go with their process; those that a killed process left are removed at the next start.

A folder is `chainrule-PID-RANDOM` in the directory for temporary files. Its process holds a lock (flock) on it for
as long as it lives, and the system gives the lock up however the process ends. A folder is removed by others only
by someone who has got its lock: a process number that is used again, or that belongs to another container or
machine sharing the directory, decides nothing.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"chainrule-\d+-[a-z0-9_]{8}")
_TRIES: Final = 100


class ScratchFolder:
    """A new empty folder, locked by this process; it is removed with `remove`, or with this object."""

    def __init__(self) -> None:
        self.path, descriptor = _make_locked()
        self._finalizer = weakref.finalize(self, _remove, self.path, descriptor, os.getpid())

    def remove(self) -> None:
        """Remove the folder and all it holds."""
        self._finalizer()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new empty folder for the length of a block."""
    folder = ScratchFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def remove_orphans() -> list[Path]:
    """Remove this user's scratch folders that no process holds; their paths."""
    removed = []
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            names = [entry.path for entry in entries if _NAME.fullmatch(entry.name)]
    except OSError:
        return []
    for name in names:
        descriptor = _lock(Path(name))
        if descriptor is not None:
            shutil.rmtree(name, ignore_errors=True)
            os.close(descriptor)
            removed.append(Path(name))
    return removed


def _make_locked() -> tuple[Path, int]:
    """A folder and the descriptor that holds its lock; −1 where the file system has no locks."""
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=f"chainrule-{os.getpid()}-"))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # another process took it for an orphan before it was locked
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # likewise: it is being removed
            os.close(descriptor)
            continue
        except OSError:  # no locks: nobody can take it for an orphan either
            os.close(descriptor)
            return path, -1
        if _is_at(path, descriptor):
            return path, descriptor
        os.close(descriptor)
    raise OSError(f"no folder for temporary files can be kept in {tempfile.gettempdir()}")


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a folder of this user; None where another process holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the folder that was opened."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and os.path.samestat(status, os.fstat(descriptor))


def _remove(path: Path, descriptor: int, owner: int) -> None:
    if os.getpid() != owner:  # a forked child goes on without it
        return
    shutil.rmtree(path, ignore_errors=True)
    if descriptor >= 0:
        os.close(descriptor)
