"""Run small work inline and large work in a thread, so that the event loop is never blocked."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

INLINE_SIZE: Final = 1 << 14
"""Characters, tokens or numbers that are processed in a fraction of a millisecond."""


async def run_in_thread_if_large(size: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Call `work`, in a thread if `size` is large; small work costs less than a thread."""
    return work(*args, **options) if size <= INLINE_SIZE else await asyncio.to_thread(work, *args, **options)


async def run_in_daemon_thread(work: Callable[[], R]) -> R:
    """Run work that may take minutes in a thread that does not keep the process alive.

    The shutdown of an event loop waits for the threads of `asyncio.to_thread`.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def finish(result: R | None, error: Exception | None) -> None:
        if future.done():  # it was cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, daemon=True).start()
    return await future


class _Cancelled(Exception):
    """Raised in the worker thread when the request was cancelled."""


async def run_cancellable(work: Callable[[Callable[[], None]], R]) -> R:
    """Run `work(check)` in a thread; `check` raises once the request is cancelled, so `work` must call it often."""
    is_cancelled = threading.Event()

    def check() -> None:
        if is_cancelled.is_set():
            raise _Cancelled

    try:
        return await asyncio.to_thread(work, check)
    except asyncio.CancelledError:
        is_cancelled.set()
        raise


def input_size(value: object) -> int:
    """Count the characters and ids in a text or nested list."""
    if isinstance(value, list):
        return sum(map(input_size, value)) + 1
    return len(value) if isinstance(value, str) else 1
