"""Replace a folder or a file in one step: a reader sees the old content or the new one, never a mixture.

The new content is written under a temporary name beside the target, flushed, and swapped with the target. Modes and
ownership of what is replaced are kept. Temporary names of processes that died are removed by the next writer.
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
"""Temporary names this process is writing to; any other that carries its id was left by a process now dead."""


class SwapError(OSError):
    """A swap that failed and could not be undone; `state` says what is on the disk."""

    def __init__(self, cause: OSError, state: str) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause))
        self.state = state


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a new folder to fill; put it in place of `target` if the block succeeds, remove it if it fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    with _temporary(target) as temporary:
        # Nobody else reads a copy of what may be private; `_keep_access` sets the mode in the end.
        temporary.mkdir(mode=0o700 if target.exists() else 0o777)
        yield temporary
        if target.exists():
            _keep_access(target, temporary)
        _place(temporary, target)


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Give a new file to write; put it in place of `path` if the block succeeds, remove it if it fails."""
    target = resolve(path)
    if target.exists() and not target.is_file():
        raise UsageError(f"{path} is there and is not a file; choose another --out")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target)
        with _temporary(target) as temporary:
            mode = 0o600 if target.exists() else 0o666
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                yield file
            if target.exists():
                _copy_access(target.stat(), temporary)
            flush(temporary)
            _place(temporary, target)
    except OSError as error:
        raise cannot_write(path, error) from error


def link_identical(path: Path, source: Path, beside: Path) -> bool:
    """Replace the file at `path` by a hard link to `source` if both have the same bytes, mode, owner and group.

    The temporary name lies beside the folder `beside`. Return whether the two are now one file: False if they
    differ or if the file system refuses the link.
    """
    try:
        if os.path.samefile(path, source):
            return True
        with _temporary(beside) as temporary:
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
    """The place that `path` leads to, links followed; refuse a path that names nothing that can be replaced."""
    if "\0" in str(path):
        raise UsageError(f"{printable(str(path))} holds a NUL byte, which no path may; choose another --out")
    try:
        target = Path(os.path.realpath(path))
    except OSError as error:  # the current directory was removed
        raise cannot_write(path, error) from error
    if not target.name:
        raise UsageError(f"{path} is the root of the file system; choose another --out")
    return target


def cannot_write(path: Path, error: OSError) -> ChainruleError:
    """The error for a disk, permissions or a name that prevent writing; it says what is on the disk now."""
    state = error.state if isinstance(error, SwapError) else "what was there is unchanged"
    return ChainruleError(
        f"cannot write {path}: {error.strerror or error}; {state}: "
        "make room and check permissions, or choose another --out"
    )


def flush(path: Path) -> None:
    """Return once the file or folder is on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A name beside `target` for the new content; what is there afterwards is removed."""
    path = _sibling(target, "partial")
    _in_use.add(path)
    try:
        yield path
    finally:
        _remove(path)  # the old content after a swap, else the new content of a failed write
        _in_use.discard(path)


def _remove(path: Path) -> None:
    """Remove a file or folder as far as that is possible, and warn of what is left; the next writer tries again."""
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
            f"{path} holds replaced or unfinished files and cannot be removed: {reason}; "
            "remove it; the next command that writes here tries again",
            ChainruleWarning,
            stacklevel=2,
        )


def _keep_access(old: Path, new: Path) -> None:
    """Give each file and folder of `new` the mode and owner it has in `old`.

    What has no predecessor gets those of the folder `old`, or those most files in it have.
    """
    files = [path.lstat() for path in old.rglob("*") if path.is_file() and not path.is_symlink()]
    by_mode = Counter(status.st_mode for status in files)
    usual = max(files, key=lambda status: by_mode[status.st_mode], default=None)
    for path in sorted(new.rglob("*"), reverse=True):  # the content of a folder before the folder
        before = old / path.relative_to(new)
        if path.is_dir():
            _copy_access((before if before.is_dir() else old).stat(), path)
        elif before.is_file():
            _copy_access(before.stat(), path)
        elif usual is not None:
            _copy_access(usual, path)
    _copy_access(old.stat(), new)


def _copy_access(wanted: os.stat_result, path: Path) -> None:
    """Set the mode, and the owner and group where this user may."""
    mode, status = stat.S_IMODE(wanted.st_mode), path.stat()
    if status.st_uid != wanted.st_uid:
        with suppress(PermissionError):
            os.chown(path, wanted.st_uid, -1)
    if status.st_gid != wanted.st_gid:
        try:
            os.chown(path, -1, wanted.st_gid)
        except PermissionError:
            mode = mode & 0o7707 | (mode & 0o007) << 3  # its group is another one: no more than for anybody
    if stat.S_IMODE(path.stat().st_mode) != mode:
        os.chmod(path, mode)


@dataclass(frozen=True, slots=True)
class _Swap:
    """A swap that was made: how to reverse it, and where the old content lies if not under the temporary name."""

    undo: Callable[[], None]
    aside: Path | None = None


def _place(temporary: Path, target: Path) -> None:
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
    """Put the new content at `target`, with no moment in between where the system has such a swap."""
    if not target.exists():
        os.rename(temporary, target)
        return _Swap(lambda: os.rename(target, temporary))
    number = _exchange_at_once(temporary, target)
    if number in UNSUPPORTED and target.is_dir():
        return _swap_by_renames(temporary, target)
    if number in UNSUPPORTED:
        os.replace(temporary, target)
        return _Swap(lambda: _check(errno.ENOSYS, target))  # the old file is gone
    _check(number, target)
    return _Swap(lambda: _check(_exchange_at_once(temporary, target), target))


def _check(number: int, target: Path) -> None:
    if number:
        raise OSError(number, os.strerror(number), str(target))


def _exchange_at_once(temporary: Path, target: Path) -> int:
    """Call Linux's renameat2; return the error number, 0 for success."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return errno.ENOSYS
    has_failed = renameat2(AT_FDCWD, os.fsencode(temporary), AT_FDCWD, os.fsencode(target), RENAME_EXCHANGE)
    return ctypes.get_errno() if has_failed else 0


def _swap_by_renames(temporary: Path, target: Path) -> _Swap:
    """Swap two folders by two renames; `sweep` puts the old one back if the process dies between them."""
    aside = _sibling(target, "aside")

    def put_back(cause: BaseException | None = None) -> None:
        try:
            os.rename(aside, target)
        except OSError as error:
            state = f"what was there is now {aside}; the next command that writes here puts it back"
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
    """A new name beside `target` that tells the process it belongs to."""
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.{role}")


def sweep(target: Path) -> None:
    """Remove what dead processes left beside `target`; put back an old folder whose swap was cut short."""
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
    """Whether a living process writes to this temporary name; ids recur, so its own are looked up."""
    if pid == os.getpid():
        return path in _in_use
    try:
        with suppress(PermissionError):  # alive, and someone else's
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
