"""The way between event loops and the one thread that owns a model.

Lives here: requests in, answers out. Not here: what they are (work.py), who works them off (worker.py).
"""

import asyncio
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from chainrule.server.errors import shutting_down

LATEST: Final = 0.005
"""Seconds an answer that is not the last of its request may wait for others, to be handed over with them."""


@dataclass(slots=True, eq=False)
class Outlet:
    """Where the answers to one request go: a queue that the loop which asked alone touches."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    is_closed: bool = False  # nobody waits any more; said there, heeded by the worker


class Inbox:
    """Requests that came in; once closed it takes no more, and what is in it is still handed out."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_open = True

    def put(self, request: Any) -> None:
        """Hand in, from any thread."""
        with self._lock:
            if not self._is_open:
                raise shutting_down()
            self._queue.put(request)

    def close(self) -> None:
        """Take no more; `None` comes out behind the last request."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._queue.put(None)

    def take(self, *, waits: bool) -> Any:
        """The next request; `queue.Empty` where there is none and none is waited for."""
        return self._queue.get(block=waits)


class Post:
    """Answers on their way, handed over together: to wake a loop takes longer than a step of an n-gram model."""

    def __init__(self) -> None:
        self._held: dict[asyncio.AbstractEventLoop, list[tuple[Outlet, Any]]] = {}
        self._handed_over = 0.0
        self._is_urgent = False

    def send(self, outlet: Outlet, answer: Any, *, is_last: bool) -> None:
        """Hold an answer; the last of a request is handed over with the next chance."""
        self._held.setdefault(outlet.loop, []).append((outlet, answer))
        self._is_urgent = self._is_urgent or is_last

    def hand_over(self, *, is_due: bool = False) -> None:
        """Give the loops what is held, if it is due or has waited long enough."""
        now = time.monotonic()
        if not self._held or not (is_due or self._is_urgent or now - self._handed_over >= LATEST):
            return
        for loop, answers in self._held.items():
            try:
                loop.call_soon_threadsafe(_deliver, answers)
            except RuntimeError:  # the loop has ended, and all who waited there with it
                for outlet, _ in answers:
                    outlet.is_closed = True
        self._held, self._is_urgent, self._handed_over = {}, False, now


def _deliver(answers: list[tuple[Outlet, Any]]) -> None:
    for outlet, answer in answers:
        outlet.queue.put_nowait(answer)
