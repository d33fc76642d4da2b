"""Progress of long work: the library reports it, the command line or a printer of lines shows it."""

import sys
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

LINE_SECONDS: Final = 30.0
"""Seconds between two lines of progress where there is no bar."""


class Progress(Protocol):
    """Anything that can be told how far work has come."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """What is being done, how much of it is done, and of how much; None where that is unknown."""
        ...


def silent(what: str, done: int, total: int | None) -> None:
    """The progress nobody sees."""


class ProgressLines:
    """Prints a line of progress every `LINE_SECONDS`, the first after that time; to stderr by default.

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
        """Print a line if the last is old enough."""
        now = self._clock()
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        share = f"{min(100, 100 * done // total)} %, " if total else ""
        minutes, seconds = divmod(int(now - self._start), 60)
        print(f"{what}: {share}{minutes}:{seconds:02} elapsed", file=self._file or sys.stderr, flush=True)


def as_progress(progress: Progress | bool) -> Progress:
    """Return the progress that an argument `progress=` means: True prints lines to stderr, False prints nothing."""
    if isinstance(progress, bool):
        return ProgressLines() if progress else silent
    return progress
