"""The log of a run: one strict JSON object a line for every report of a run, and TensorBoard where asked for.

Lives here: writing, and cutting back to where a checkpoint stood. Not here: what is reported (loop.py).
"""

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


class TrainLog:
    """Appends to `path`, each line handed to the system before the call returns; None: kept in memory.

    With `is_deferred` the lines stay in memory until `store` is called, and the file as it is.
    """

    def __init__(self, path: Path | None, tensorboard: Path | None = None, *, is_deferred: bool = False) -> None:
        self.path = path
        self._is_deferred = is_deferred and path is not None
        self._events = None if tensorboard is None else _Events(tensorboard)
        self._file: BinaryIO = io.BytesIO() if path is None or is_deferred else _open(path)

    @property
    def size(self) -> int:
        """Bytes written so far, those of earlier runs included; a checkpoint keeps it."""
        return self._file.seek(0, os.SEEK_END)

    def write(self, **fields: Any) -> None:
        """One line, null for a number that is not finite; TensorBoard takes the numbers of a line with a `step`."""
        line = json.dumps(_strict(fields), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._append(line)
        if self._events is not None:
            self._events.write(fields)

    def truncate(self, size: int) -> None:
        """Forget all after `size` bytes, and a line that was cut off: what a resumed run will write again."""
        kept = self.content()[:size]
        self._file.truncate(kept.rfind(b"\n") + 1)

    def content(self) -> bytes:
        """Every line so far."""
        self._file.seek(0)
        return self._file.read()

    def store(self) -> None:
        """Replace the file by the lines so far, and append to it from now on, if that was deferred."""
        if not self._is_deferred or self.path is None:
            return
        lines, file = self.content(), _open(self.path)
        try:
            file.truncate(0)
        except OSError as error:
            file.close()
            raise _cannot_write(self.path, error) from error
        self._file, self._is_deferred = file, False
        self._append(lines)

    def close(self) -> None:
        """Let go of the file; TensorBoard's events are written out."""
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
        """The whole line or none of it: a full disk may take a part."""
        before, rest = self.size, line
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)
            raise _cannot_write(self.path, error) from error


class _Events:
    """Scalars for TensorBoard; a resumed run hides what it is about to write again."""

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
    """Every number by its name, those of a field with fields of its own as `update_ratio/embedding`."""
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


def _strict(value: Any) -> Any:
    """The same value with null for NaN and the infinities, which JSON does not know."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _strict(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_strict(inner) for inner in value]
        case _:
            return value
