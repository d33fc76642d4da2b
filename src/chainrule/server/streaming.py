"""Server-sent events: encoding of documents and merging of several streams."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from chainrule.errors import ChainruleError
from chainrule.server.aside import encode_json, run_in_thread_if_large
from chainrule.server.errors import ApiError

T = TypeVar("T")
DONE: Final = b"data: [DONE]\n\n"
QUEUE_SIZE: Final = 64
"""Items buffered between the sources and the consumer."""


async def merge(sources: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """Interleave several generators in order of arrival; closing it or an error closes all of them."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(QUEUE_SIZE)
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
    """Marks the end of a source."""

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
    """Encode a document as a server-sent event."""
    return b"data: " + encode_json(document) + b"\n\n"


def _size(document: dict[str, Any]) -> int:
    """Estimate the number of characters and log-probabilities in a document."""
    size = 0
    for choice in document.get("choices", ()):
        logprobs = choice.get("logprobs") or {}
        alternatives = logprobs.get("top_logprobs") or [None]
        size += len(choice.get("text", "")) + len(logprobs.get("tokens", ())) * (8 + len(alternatives[-1] or ()))
    return size


async def events(documents: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    """Encode documents as events; an error after the start of the stream becomes the last event."""
    async with aclosing(documents):
        try:
            async for document in documents:
                yield await run_in_thread_if_large(_size(document), event, document)
        except ApiError as error:
            yield event(error.document)
            return
        except ChainruleError as error:
            yield event(ApiError(400, str(error)).document)
            return
    yield DONE
