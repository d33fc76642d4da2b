"""SIGINT and SIGTERM from the first line of the program to its last: status 130 or 143, and no traceback.

`import chainrule.cli.signals` loads next to nothing, so that it is in force while the rest is being imported.
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
    """What the two signals do: end the process at once, or raise while a command runs, so that it can clean up.

    A signal that was ignored when the program started stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None  # the first that came
        self.is_running = False  # a command may have files to remove and a run to save

    def install(self) -> None:
        """Take both signals, and exceptions that Python cannot raise where a signal interrupted it."""
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, self._handle)
        sys.unraisablehook = self._unraisable

    def _handle(self, number: int, frame: object) -> None:
        self.received = self.received or number
        if not self.is_running:
            _say_stopped()
            os._exit(128 + number)  # nothing to clean up yet, or all is cleaned up: no import can swallow this
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        _say_stopped()
        raise SystemExit(128 + number)

    def _unraisable(self, unraisable: Any) -> None:
        """Deliver the signal once more where its exception got lost: in a finalizer or a callback."""
        if self.received is None or not isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
            sys.__unraisablehook__(unraisable)
            return
        from threading import Timer

        Timer(0.05, os.kill, (os.getpid(), self.received)).start()


def _say_stopped() -> None:
    with suppress(OSError):
        os.write(2, b"stopped\n")


def main() -> None:
    """Run the command line; the entry point of the program."""
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
        raise SystemExit(128 + signals.received) from None  # an interrupted import may fail in its own way
