"""Completions as a stream of events, several side by side in one stream.

Lives here: joining several sources into one, and how an event is written. Not here: what it tells (choices.py).
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from chainrule.errors import ChainruleError
from chainrule.server.errors import ApiError

T = TypeVar("T")
DONE: Final = b"data: [DONE]\n\n"
AHEAD: Final = 64
"""Items a source may be ahead of who reads them."""


async def merged(sources: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """What several sources give, in the order it comes; closing it closes them all, a failure ends them all."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(AHEAD)
    tasks = [asyncio.create_task(_drain(source, queue)) for source in sources]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _End:
    """The end of one source."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def _drain(source: AsyncGenerator[T], queue: "asyncio.Queue[T | _End]") -> None:
    end = _End()
    try:
        async with aclosing(source):
            async for item in source:
                await queue.put(item)
    except Exception as error:
        end = _End(error)
    await queue.put(end)


def event(document: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(document, allow_nan=False, ensure_ascii=False).encode() + b"\n\n"


async def events(documents: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    """The documents as events; an error once the stream has begun is the last of them."""
    async with aclosing(documents):
        try:
            async for document in documents:
                yield event(document)
        except ApiError as error:
            yield event(error.document)
            return
        except ChainruleError as error:
            yield event(ApiError(400, str(error)).document)
            return
    yield DONE
