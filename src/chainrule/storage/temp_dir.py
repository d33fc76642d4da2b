"""Temporary folders that are removed with their process; those of killed processes are removed at the next start.

A folder is named `chainrule-PID-RANDOM` in the system's temporary directory. Its process holds an flock on it,
which the operating system releases however the process ends. Another process removes a folder only after acquiring
its lock; process ids are not used, since they are reused and shared between containers.
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
    """A new empty folder, locked by this process and removed by `remove` or with this object."""

    def __init__(self) -> None:
        self.path, descriptor = _make_locked()
        self._finalizer = weakref.finalize(self, _remove, self.path, descriptor, os.getpid())

    def remove(self) -> None:
        """Remove the folder and its content."""
        self._finalizer()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new empty folder and remove it after the block."""
    folder = ScratchFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def remove_orphans() -> list[Path]:
    """Remove this user's scratch folders that no process has locked; return their paths."""
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
    """Create and lock a folder; return it and the descriptor of its lock, −1 on file systems without locks."""
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=f"chainrule-{os.getpid()}-"))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # another process removed it as an orphan before it was locked
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is removing it
            os.close(descriptor)
            continue
        except OSError:  # no locks on this file system: other processes cannot remove it either
            os.close(descriptor)
            return path, -1
        if _is_at(path, descriptor):
            return path, descriptor
        os.close(descriptor)
    raise OSError(f"cannot create a temporary folder in {tempfile.gettempdir()}")


def _lock(path: Path) -> int | None:
    """Lock a folder of this user; return the descriptor, or None if another process holds the lock."""
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
    """Whether the path still names the folder that was opened."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and os.path.samestat(status, os.fstat(descriptor))


def _remove(path: Path, descriptor: int, owner: int) -> None:
    if os.getpid() != owner:  # in a forked child, leave the folder to the parent
        return
    shutil.rmtree(path, ignore_errors=True)
    if descriptor >= 0:
        os.close(descriptor)
