"""Training log in JSON Lines, and optionally TensorBoard events."""

import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from chainrule.errors import ChainruleError, MissingExtra
from chainrule.storage.strict_json import replace_nonfinite


class TrainLog:
    """Append-only log file, unbuffered; with `path` None the lines are kept in memory.

    With `is_deferred` the lines stay in memory and the file is unchanged until `store` is called.
    """

    def __init__(self, path: Path | None, tensorboard: Path | None = None, *, is_deferred: bool = False) -> None:
        self.path = path
        self.is_deferred = is_deferred and path is not None
        self._events = None if tensorboard is None else _Events(tensorboard)
        self._file: BinaryIO = io.BytesIO() if path is None or is_deferred else _open(path)

    @property
    def size(self) -> int:
        """Bytes written so far, including earlier runs; saved in checkpoints."""
        return self._file.seek(0, os.SEEK_END)

    def write(self, **fields: Any) -> None:
        """Write one line, null for non-finite numbers; lines with a `step` also go to TensorBoard."""
        line = json.dumps(replace_nonfinite(fields), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._append(line)
        if self._events is not None:
            self._events.write(fields)

    def truncate(self, size: int) -> None:
        """Discard everything after `size` bytes and any partial line; a resumed run writes it again."""
        lines = self.content()[:size]
        self._file.truncate(lines.rfind(b"\n") + 1)

    def content(self) -> bytes:
        """All lines so far."""
        self._file.seek(0)
        return self._file.read()

    def store(self) -> None:
        """If deferred, replace the file with the lines so far and append to it from now on."""
        if not self.is_deferred or self.path is None:
            return
        lines, file = self.content(), _open(self.path)
        try:
            file.truncate(0)
        except OSError as error:
            file.close()
            raise _cannot_write(self.path, error) from error
        self._file, self.is_deferred = file, False
        self._append(lines)

    def close(self) -> None:
        """Close the file and flush TensorBoard events."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        """Write the whole line or nothing, e.g. when the disk is full."""
        before, rest = self.size, line
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)
            raise _cannot_write(self.path, error) from error


class _Events:
    """TensorBoard scalars; a resumed run purges later steps."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra(
                "a log for TensorBoard needs tensorboard: pip install 'chainrule[tensorboard]'"
            ) from error
        self._open: Callable[..., Any] = partial(SummaryWriter, str(folder))
        self._writer: Any = None

    def write(self, fields: dict[str, Any]) -> None:
        step = fields.get("step")
        if step is None:
            return
        self._writer = self._writer or self._open(purge_step=step)
        for name, value in _numbers(fields):
            if name != "step" and math.isfinite(value):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _numbers(fields: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, float]]:
    """Flatten numeric fields, nested ones as `update_ratio/embedding`."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{start}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{start}{name}", value


def _open(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab+", buffering=0)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path | None, error: OSError) -> ChainruleError:
    return ChainruleError(
        f"cannot write {path}: {error.strerror or error}; make room and check permissions, or choose another --out"
    )
