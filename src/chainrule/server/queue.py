"""Queues between the event loops and the worker thread of a model."""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from chainrule.server.errors import shutting_down

MAX_DELAY_SECONDS: Final = 0.005
"""Maximum delay of a response that is not the last of its request."""


@dataclass(slots=True, eq=False)
class ResponseChannel:
    """Response queue of one request; only its event loop touches the queue."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    is_closed: bool = False  # set by the event loop: the client no longer waits


class RequestQueue:
    """Thread-safe queue of requests.

    Attributes:
        is_closed: Whether `close` was called.

    """

    def __init__(self) -> None:
        self.is_closed = False
        self._requests: list[Any] = []
        self._changed = threading.Condition()

    def put(self, request: Any) -> None:
        """Add a request, from any thread; raise ApiError if the queue is closed."""
        with self._changed:
            if self.is_closed:
                raise shutting_down()
            self._requests.append(request)
            self._changed.notify()

    def close(self) -> None:
        """Accept no more requests."""
        with self._changed:
            self.is_closed = True
            self._changed.notify()

    def take_all(self, *, waits: bool) -> list[Any]:
        """Remove and return the requests; with `waits`, block until there is one or the queue is closed."""
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: self._requests or self.is_closed)
            requests, self._requests = self._requests, []
            return requests


class ResponseBatcher:
    """Delivers responses in batches: waking an event loop takes longer than a step of an n-gram model."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.AbstractEventLoop, list[tuple[ResponseChannel, Any]]] = {}
        self._last_flush = 0.0
        self._is_urgent = False

    def send(self, channel: ResponseChannel, response: Any, *, is_last: bool) -> None:
        """Queue a response; the last one of a request is delivered at the next `flush`."""
        self._pending.setdefault(channel.loop, []).append((channel, response))
        self._is_urgent = self._is_urgent or is_last

    def flush(self, *, is_due: bool = False) -> None:
        """Deliver the queued responses if `is_due`, one is urgent, or the maximum delay has passed."""
        now = time.monotonic()
        if not self._pending or not (is_due or self._is_urgent or now - self._last_flush >= MAX_DELAY_SECONDS):
            return
        for loop, responses in self._pending.items():
            try:
                loop.call_soon_threadsafe(_deliver, responses)
            except RuntimeError:  # the loop is closed
                for channel, _ in responses:
                    channel.is_closed = True
        self._pending, self._is_urgent, self._last_flush = {}, False, now


def _deliver(responses: list[tuple[ResponseChannel, Any]]) -> None:
    for channel, response in responses:
        channel.queue.put_nowait(response)
