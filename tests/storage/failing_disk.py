"""Fault injection for disk errors: the n-th system call of a write fails, or the file size is limited."""

import errno
import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from chainrule.storage import atomic

CALLS = ("mkdir", "open", "fsync", "rename", "replace", "chmod", "unlink", "rmdir")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Set the file size limit of the operating system (RLIMIT_FSIZE) in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class FailingDisk:
    """Make call number `n` in the block (counted from 0) fail; with `for_good`, all later calls fail too.

    Counts calls of `os` under `root`, files opened there and writes to them; fsync does nothing.
    """

    def __init__(self, root: Path, n: int | None = None, *, for_good: bool = False) -> None:
        self.root, self.n, self.for_good = str(root), n, for_good
        self.calls = 0

    def __enter__(self) -> Self:
        self._patch = pytest.MonkeyPatch()
        for name in CALLS:
            really = getattr(os, name) if name != "fsync" else lambda descriptor: None
            self._patch.setattr(os, name, self._counted(really))
        self._patch.setattr(io, "open", self._opened(io.open))
        self._patch.setattr("builtins.open", io.open)
        really_exchange = atomic._exchange

        def exchange(temporary: Path, target: Path) -> int:
            return errno.EIO if self._fails() else really_exchange(temporary, target)

        self._patch.setattr(atomic, "_exchange", exchange)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()

    def count(self) -> None:
        """Count one call; raise if it is the one that fails."""
        if self._fails():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _fails(self) -> bool:
        self.calls += 1
        return self.n is not None and (self.calls == self.n + 1 or (self.for_good and self.calls > self.n))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int) or "dir_fd" in kwargs or self._is_ours(path):
                self.count()
            return call(path, *args, **kwargs)

        return count_and_call

    def _opened(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def open_counted(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not isinstance(path, int):
                if not self._is_ours(path):
                    return call(path, mode, *args, **kwargs)
                self.count()
            file = call(path, mode, *args, **kwargs)
            return file if "r" in mode and "+" not in mode else _File(file, self)

        return open_counted

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root)


class _File:
    """A file whose writes are counted."""

    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, content: Any) -> Any:
        self._disk.count()
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
