"""Handle SIGINT and SIGTERM for the whole lifetime of the process: exit status 130 or 143 and no traceback.

This module imports almost nothing, so that the handlers are installed before the slow imports.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False  # typing takes milliseconds to import
if TYPE_CHECKING:
    from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Signal handlers: raise while a command runs, so that it can clean up; otherwise exit immediately.

    A signal that was ignored when the program started stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None  # the first signal received
        self.is_running = False  # a command that may need to clean up or save a checkpoint

    def install(self) -> None:
        """Install the signal handlers and the hook for exceptions that Python cannot raise."""
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, self._handle)
        sys.unraisablehook = self._unraisable

    def _handle(self, number: int, frame: object) -> None:
        self.received = self.received or number
        if not self.is_running:
            _say_stopped()
            os._exit(128 + number)  # nothing to clean up; an exception could be swallowed by an import
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        _say_stopped()
        raise SystemExit(128 + number)

    def _unraisable(self, unraisable: Any) -> None:
        """Send the signal again if its exception was lost in a finalizer or a callback."""
        if self.received is None or not isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
            sys.__unraisablehook__(unraisable)
            return
        from threading import Timer

        Timer(0.05, os.kill, (os.getpid(), self.received)).start()


def _say_stopped() -> None:
    with suppress(OSError):
        os.write(2, b"stopped\n")


def main() -> None:
    """Run the command line (console-script entry point)."""
    signals = Signals()
    signals.install()
    from chainrule.cli.main import run

    try:
        try:
            signals.is_running = True
            run()
        finally:
            signals.is_running = False
    except KeyboardInterrupt:
        _say_stopped()
        raise SystemExit(128 + signal.SIGINT) from None
    except BaseException:
        if signals.received is None:
            raise
        raise SystemExit(128 + signals.received) from None  # e.g. an import that failed because it was interrupted
