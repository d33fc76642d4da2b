"""Completions as a stream of events, several side by side in one stream.

Lives here: joining several sources into one, and how an event is written. Not here: what it tells (choices.py).
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from chainrule.errors import ChainruleError
from chainrule.server.aside import aside, encode_json
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
    """Return one server-sent event."""
    return b"data: " + encode_json(document) + b"\n\n"


def _size(document: dict[str, Any]) -> int:
    """Return roughly how many characters and log-probabilities the choices of a document hold."""
    size = 0
    for choice in document.get("choices", ()):
        logprobs = choice.get("logprobs") or {}
        alternatives = logprobs.get("top_logprobs") or [None]
        size += len(choice.get("text", "")) + len(logprobs.get("tokens", ())) * (8 + len(alternatives[-1] or ()))
    return size


async def events(documents: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    """The documents as events; an error once the stream has begun is the last of them."""
    async with aclosing(documents):
        try:
            async for document in documents:
                yield await aside(_size(document), event, document)
        except ApiError as error:
            yield event(error.document)
            return
        except ChainruleError as error:
            yield event(ApiError(400, str(error)).document)
            return
    yield DONE
