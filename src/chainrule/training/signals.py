"""Graceful stop on SIGINT and SIGTERM: finish the step, save, exit."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GracefulStop:
    """Context manager that records the first SIGINT or SIGTERM; a second SIGINT interrupts at once.

    Ignored signals stay ignored. Has no effect outside the main thread, where Python does not deliver signals.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # first signal received
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):  # None: installed outside Python, cannot be restored
                    self._before[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def exit_if_signalled(self) -> None:
        """Exit as the recorded signal would have; does nothing if there was none."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt
