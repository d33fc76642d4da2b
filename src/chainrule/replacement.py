"""Putting a new folder or file where an old one stands, in one step: whoever looks sees one or the other.

Lives here: the temporary folder, the swap, the removal of what dead processes left behind.
Not here: what the folder holds (folder.py).
"""

import ctypes
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from chainrule.errors import ChainruleError, UsageError

AT_FDCWD = -100  # linux/fcntl.h
RENAME_EXCHANGE = 2  # linux/fs.h
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new folder to fill, put in place of `target` where the block succeeds and removed where it fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    temporary = _sibling(target, "partial")
    try:
        temporary.mkdir()
        yield temporary
        _place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # by now the old folder, or what a failure left


@contextmanager
def replacing_file(target: Path) -> Iterator[BinaryIO]:
    """A new file to write, put in place of `target` where the block succeeds and removed where it fails."""
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is there and is not a file; choose another --out")
    temporary = _sibling(target, "partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target)
        with temporary.open("wb") as file:
            yield file
        flush(temporary)
        os.replace(temporary, target)
        flush(target.parent)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> ChainruleError:
    """What to say when the disk, the permissions or the name are in the way."""
    return ChainruleError(
        f"cannot write {path}: {error.strerror or error}; what was there is unchanged: "
        "make room and check permissions, or choose another --out"
    )


def flush(path: Path) -> None:
    """Return once the file or folder is on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place(temporary: Path, target: Path) -> None:
    with ExitStack() as undo:
        if target.exists():
            _exchange(temporary, target)
            undo.callback(_exchange, temporary, target)
        else:
            os.rename(temporary, target)
            undo.callback(os.rename, target, temporary)
        flush(target.parent)
        undo.pop_all()


def _exchange(temporary: Path, target: Path) -> None:
    """Swap two folders with no moment in between; by three renames where the system knows no swap."""
    number = _exchange_at_once(temporary, target)
    if number in UNSUPPORTED:
        _exchange_by_renames(temporary, target)
    elif number:
        raise OSError(number, os.strerror(number), str(target))


def _exchange_at_once(temporary: Path, target: Path) -> int:
    """Linux's renameat2; the error number, 0 for success."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return errno.ENOSYS
    here, there = os.fsencode(temporary), os.fsencode(target)
    failed = renameat2(AT_FDCWD, here, AT_FDCWD, there, RENAME_EXCHANGE)
    return ctypes.get_errno() if failed else 0


def _exchange_by_renames(temporary: Path, target: Path) -> None:
    aside = _sibling(target, "aside")
    with ExitStack() as undo:
        for source, goal in ((target, aside), (temporary, target), (aside, temporary)):
            os.rename(source, goal)
            undo.callback(os.rename, goal, source)
        undo.pop_all()


def _sibling(target: Path, role: str) -> Path:
    """A new name beside `target` that tells the process it belongs to."""
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.{role}")


def sweep(target: Path) -> None:
    """Remove what dead processes left beside `target`; an old folder cut off in mid-exchange is put back."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d{{1,9}})\.[0-9a-f]+\.(partial|aside)")
    for path in list(target.parent.iterdir()):
        left = pattern.fullmatch(path.name)
        if left is None or _is_alive(int(left[1])):
            continue
        if left[2] == "aside" and not target.exists():
            os.rename(path, target)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        with suppress(PermissionError):  # alive, and someone else's
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
