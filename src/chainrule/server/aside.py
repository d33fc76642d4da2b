"""Work that is done at once where it is small, and in a thread where the event loop would wait for it."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

from fastapi.responses import Response

P = ParamSpec("P")
R = TypeVar("R")

SMALL: Final = 1 << 14
"""Characters, tokens or numbers worked on in a fraction of a millisecond."""


async def aside(size: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """The result of the work; a thread costs more than little work does."""
    return work(*args, **options) if size <= SMALL else await asyncio.to_thread(work, *args, **options)


async def in_daemon_thread(work: Callable[[], R]) -> R:
    """Return the result of work that may take minutes; the process can end meanwhile.

    The end of an event loop waits for the threads of `asyncio.to_thread`.
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


def extent(given: object) -> int:
    """Characters of texts and ids of lists, however they lie in each other."""
    if isinstance(given, list):
        return sum(map(extent, given)) + 1
    return len(given) if isinstance(given, str) else 1


async def json_response(size: int, document: dict[str, Any]) -> Response:
    """Return `document` as an answer, encoded in a thread if it is large."""
    return Response(await aside(size, encode_json, document), media_type="application/json")


def encode_json(document: Any) -> bytes:
    """Return strict JSON in UTF-8.

    Lists are encoded in slices: one call of `json.dumps` holds the interpreter lock until it returns, so that in
    another thread, too, a document of megabytes would stop the event loop.
    """
    return "".join(_json_parts(document)).encode()


ITEMS_AT_ONCE: Final = 1024


def _json_parts(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values()):
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_dumps(name)}:"
            yield from _json_parts(item)
        yield "}"
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from _json_parts(item)
        yield "]"
    elif isinstance(value, list) and len(value) > ITEMS_AT_ONCE:
        for first in range(0, len(value), ITEMS_AT_ONCE):
            yield "," if first else "["
            yield _dumps(value[first : first + ITEMS_AT_ONCE])[1:-1]
        yield "]"
    else:
        yield _dumps(value)


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
