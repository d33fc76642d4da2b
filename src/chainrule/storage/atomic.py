"""Atomic replacement of folders and files: readers see either the old or the new content.

The new content is written under a temporary name in the same directory, flushed, and swapped with the target.
Modes and ownership are preserved. Temporary files of dead processes are removed by the next writer.
"""

import ctypes
import errno
import filecmp
import os
import re
import secrets
import shutil
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from chainrule.errors import ChainruleError, ChainruleWarning, UsageError, printable

AT_FDCWD = -100  # linux/fcntl.h
RENAME_EXCHANGE = 2  # linux/fs.h
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}

_in_use: set[Path] = set()
"""Temporary paths in use by this process; others with its process id were left by a dead process."""


class SwapError(OSError):
    """A swap failed and could not be undone; `state` describes what is on disk."""

    def __init__(self, cause: OSError, state: str) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause))
        self.state = state


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder; replace `target` with it if the block succeeds, remove it if the block fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    with _temporary(target) as temporary:
        # Private until `_copy_access_tree` sets the final mode: the old content may be private.
        temporary.mkdir(mode=0o700 if target.exists() else 0o777)
        yield temporary
        if target.exists():
            _copy_access_tree(target, temporary)
        _swap_and_flush(temporary, target)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file; replace `path` with it if the block succeeds, remove it if the block fails."""
    target = resolve(path)
    if target.exists() and not target.is_file():
        raise UsageError(f"{path} exists and is not a file; choose another --out")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target)
        with _temporary(target) as temporary:
            mode = 0o600 if target.exists() else 0o666
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                yield file
            if target.exists():
                _copy_access(target.stat(), temporary)
            flush(temporary)
            _swap_and_flush(temporary, target)
    except OSError as error:
        raise write_error(path, error) from error


def link_identical(path: Path, source: Path, folder: Path) -> bool:
    """Replace the file at `path` with a hard link to `source` if both have the same bytes, mode, owner and group.

    The temporary name is a sibling of `folder`. Return whether the two are now one file: False if they differ or
    if the file system does not support the link.
    """
    try:
        if os.path.samefile(path, source):
            return True
        with _temporary(folder) as temporary:
            os.link(source, temporary, follow_symlinks=False)
            # Compare the link, not `source`: another process may replace `source` in the meantime.
            access = [
                (status.st_mode, status.st_uid, status.st_gid) for status in (path.lstat(), temporary.lstat())
            ]
            if access[0] != access[1] or not filecmp.cmp(path, temporary, shallow=False):
                return False
            os.replace(temporary, path)
            return True
    except OSError:
        return False


def resolve(path: Path) -> Path:
    """Resolve links in `path`; raise UsageError for a path that cannot be replaced."""
    if "\0" in str(path):
        raise UsageError(f"{printable(str(path))} contains a NUL byte; choose another --out")
    try:
        target = Path(os.path.realpath(path))
    except OSError as error:  # the current directory was removed
        raise write_error(path, error) from error
    if not target.name:
        raise UsageError(f"{path} is the root of the file system; choose another --out")
    return target


def write_error(path: Path, error: OSError) -> ChainruleError:
    """Return the error for a failed write; its message describes what is on disk."""
    state = error.state if isinstance(error, SwapError) else "the existing content is unchanged"
    return ChainruleError(
        f"cannot write {path}: {error.strerror or error}; {state}: "
        "make room and check permissions, or choose another --out"
    )


def flush(path: Path) -> None:
    """Flush a file or folder to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """Yield a temporary sibling path of `target`; remove its content afterwards."""
    path = _sibling(target, "partial")
    _in_use.add(path)
    try:
        yield path
    finally:
        _remove(path)  # the old content after a swap, or the partial content after a failure
        _in_use.discard(path)


def _remove(path: Path) -> None:
    """Remove a file or folder; warn if something remains, which the next writer removes."""
    errors: list[BaseException] = []
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=lambda function, name, info: errors.append(info[1]))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        errors.append(error)
    if errors and os.path.lexists(path):
        reason = getattr(errors[0], "strerror", errors[0])
        warnings.warn(
            f"{path} contains replaced or unfinished files and cannot be removed: {reason}; "
            "remove it; the next command that writes here tries again",
            ChainruleWarning,
            stacklevel=2,
        )


def _copy_access_tree(old: Path, new: Path) -> None:
    """Copy mode and owner of each file and folder from `old` to `new`.

    New subfolders get those of the folder `old`; new files get the most common ones of the files in it.
    """
    files = [path.lstat() for path in old.rglob("*") if path.is_file() and not path.is_symlink()]
    by_mode = Counter(status.st_mode for status in files)
    usual = max(files, key=lambda status: by_mode[status.st_mode], default=None)
    for path in sorted(new.rglob("*"), reverse=True):  # files before their folder
        before = old / path.relative_to(new)
        if path.is_dir():
            _copy_access((before if before.is_dir() else old).stat(), path)
        elif before.is_file():
            _copy_access(before.stat(), path)
        elif usual is not None:
            _copy_access(usual, path)
    _copy_access(old.stat(), new)


def _copy_access(source: os.stat_result, path: Path) -> None:
    """Set the mode, and the owner and group if permitted."""
    mode, status = stat.S_IMODE(source.st_mode), path.stat()
    if status.st_uid != source.st_uid:
        with suppress(PermissionError):
            os.chown(path, source.st_uid, -1)
    if status.st_gid != source.st_gid:
        try:
            os.chown(path, -1, source.st_gid)
        except PermissionError:
            mode = mode & 0o7707 | (mode & 0o007) << 3  # another group: grant it no more than everyone
    if stat.S_IMODE(path.stat().st_mode) != mode:
        os.chmod(path, mode)


@dataclass(frozen=True, slots=True)
class _Swap:
    """A completed swap: its undo function, and the path of the old content if not the temporary path."""

    undo: Callable[[], None]
    aside: Path | None = None


def _swap_and_flush(temporary: Path, target: Path) -> None:
    """Swap `temporary` with `target` and flush; undo the swap if the flush fails."""
    swap = _swap(temporary, target)
    try:
        flush(target.parent)
    except BaseException as error:
        try:
            swap.undo()
        except SwapError:
            raise
        except OSError as second:
            cause = error if isinstance(error, OSError) else second
            raise SwapError(cause, "the new content is in place, but the disk did not confirm it") from error
        raise
    if swap.aside is not None:
        _remove(swap.aside)


def _swap(temporary: Path, target: Path) -> _Swap:
    """Move the new content to `target`, atomically if the operating system supports it."""
    if not target.exists():
        os.rename(temporary, target)
        return _Swap(lambda: os.rename(target, temporary))
    number = _exchange(temporary, target)
    if number in UNSUPPORTED and target.is_dir():
        return _swap_by_renames(temporary, target)
    if number in UNSUPPORTED:
        os.replace(temporary, target)
        return _Swap(lambda: _check(errno.ENOSYS, target))  # the old file is gone
    _check(number, target)
    return _Swap(lambda: _check(_exchange(temporary, target), target))


def _check(number: int, target: Path) -> None:
    if number:
        raise OSError(number, os.strerror(number), str(target))


def _exchange(temporary: Path, target: Path) -> int:
    """Call Linux's renameat2; return the error number, 0 for success."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return errno.ENOSYS
    has_failed = renameat2(AT_FDCWD, os.fsencode(temporary), AT_FDCWD, os.fsencode(target), RENAME_EXCHANGE)
    return ctypes.get_errno() if has_failed else 0


def _swap_by_renames(temporary: Path, target: Path) -> _Swap:
    """Swap two folders by two renames; `remove_leftovers` restores the old one if the process dies between them."""
    aside = _sibling(target, "aside")

    def put_back(cause: BaseException | None = None) -> None:
        try:
            os.rename(aside, target)
        except OSError as error:
            state = (
                f"the previous content was moved to {aside}; the next command that writes to this path restores it"
            )
            raise SwapError(cause if isinstance(cause, OSError) else error, state) from error

    def undo() -> None:
        os.rename(target, temporary)
        put_back()

    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException as error:
        put_back(error)
        raise
    return _Swap(undo, aside)


def _sibling(target: Path, role: str) -> Path:
    """Return a unique sibling path of `target` that contains the process id."""
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.{role}")


def remove_leftovers(target: Path) -> None:
    """Remove temporary files of dead processes next to `target`; restore a folder whose swap was interrupted."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d{{1,9}})\.[0-9a-f]+\.(partial|aside)")
    for path in list(target.parent.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None or _is_used(path, int(match[1])):
            continue
        if match[2] == "aside" and not target.exists():
            os.rename(path, target)
        else:
            _remove(path)


def _is_used(path: Path, pid: int) -> bool:
    """Whether a live process is using this temporary path; process ids are reused, so look up our own."""
    if pid == os.getpid():
        return path in _in_use
    try:
        with suppress(PermissionError):  # alive, owned by another user
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
