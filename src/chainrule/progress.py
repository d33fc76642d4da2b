"""Progress callbacks of long-running functions; the command line renders them as a bar."""

import sys
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

LINE_SECONDS: Final = 30.0
"""Seconds between two printed lines of progress."""


class Progress(Protocol):
    """Callback that receives the progress of a task."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report that `done` of `total` units of the task `what` are done; None if the total is unknown."""
        ...


def silent(what: str, done: int, total: int | None) -> None:
    """Ignore progress."""


class ProgressLines:
    """Print a line of progress every `LINE_SECONDS`, to stderr by default.

    >>> seconds = iter([0.0, 12.0, 45.0])
    >>> show = ProgressLines(sys.stdout, clock=lambda: next(seconds))
    >>> show("training", 1, 4)
    >>> show("training", 3, 4)
    training: 75 %, 0:45 elapsed
    """

    def __init__(self, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._start = self._last = clock()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Print a line if `LINE_SECONDS` have passed since the last one."""
        now = self._clock()
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        share = f"{min(100, 100 * done // total)} %, " if total else ""
        minutes, seconds = divmod(int(now - self._start), 60)
        print(f"{what}: {share}{minutes}:{seconds:02} elapsed", file=self._file or sys.stderr, flush=True)


def as_progress(progress: Progress | bool) -> Progress:
    """Convert a `progress=` argument to a callback: True prints lines to stderr, False prints nothing."""
    if isinstance(progress, bool):
        return ProgressLines() if progress else silent
    return progress
