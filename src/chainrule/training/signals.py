"""Stopping in good order: a signal asks, the loop finishes its step, saves and leaves.

Lives here: SIGINT and SIGTERM while a network learns. Not here: what is saved (checkpoint.py).
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """While the block runs, the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once.

    Signals that were ignored stay ignored. Outside the main thread, where Python takes no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the first that came
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):  # None: set by another library, and not to be restored
                    self._before[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def leave(self) -> None:
        """End as the noted signal would have: call it once all is saved. Nothing happens where none came."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt
