"""How long a request may take, how many there may be, and what becomes of one whose client has gone.

Not here: what a request may ask for (limits.py, schema.py).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.server.body import ClientGone
from chainrule.server.errors import ApiError
from chainrule.server.keys import is_open
from chainrule.server.limits import Limits
from chainrule.server.logs import note

LAST_WORD: Final = 1.0  # seconds a client has to take the end of an answer that was cut short


class RunningRequests:
    """The requests that are being answered; `abort` ends them all, each with the error 503."""

    def __init__(self) -> None:
        self.is_aborted = False
        self._deadlines: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, deadline: asyncio.Timeout) -> None:
        """Add a request by its deadline, which must have been entered."""
        self._deadlines.add(deadline)
        if self.is_aborted:
            deadline.reschedule(asyncio.get_running_loop().time())

    def discard(self, deadline: asyncio.Timeout) -> None:
        """Remove a request that has ended."""
        self._deadlines.discard(deadline)

    def abort(self) -> None:
        """End all requests now, and those that still come as soon as they begin. Call it on the event loop."""
        self.is_aborted = True
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(now)


class Patience:
    """Ends the work for a request at its limit of time, or as soon as nobody waits for it any more."""

    def __init__(self, app: ASGIApp, limits: Limits, requests: RunningRequests) -> None:
        self.app = app
        self.limits = limits
        self.requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if len(self.requests) >= self.limits.waiting and not is_open(scope["method"], scope["path"]):
            raise ApiError(
                503,
                f"{len(self.requests)} requests are waiting; try again in a moment",
                headers={"Retry-After": "1"},
            )
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = Answer(send)
        deadline = asyncio.timeout(self.limits.seconds)
        mail = Mail(receive, deadline)
        try:
            async with deadline:
                self.requests.add(deadline)
                await self.app(scope, mail.receive, answer.send)
        except ClientGone:
            note(is_gone=True)
        except TimeoutError:
            if not deadline.expired():
                raise
            if mail.is_gone.is_set():
                note(is_gone=True)
            else:
                await answer.cut(shutting_down() if self.requests.is_aborted else self._too_late(mail.is_read))
        finally:
            self.requests.discard(deadline)
            mail.close()

    def _too_late(self, is_read: bool) -> ApiError:
        if not is_read:
            return ApiError(408, f"the body took more than {self.limits.seconds:g} s to arrive", headers=CLOSE)
        return ApiError(504, f"the answer took more than {self.limits.seconds:g} s; ask for less at once")


CLOSE: Final = {"Connection": "close"}


def shutting_down() -> ApiError:
    """Return the error of a request that was not finished when the server stopped."""
    return ApiError(
        503,
        "the server is shutting down; ask again when it is up",
        code="shutting_down",
        headers={**CLOSE, "Retry-After": "1"},
    )


class Mail:
    """What the client sends; once its body is read, a watch that ends the deadline when the client goes away."""

    def __init__(self, source: Receive, deadline: asyncio.Timeout) -> None:
        self.source = source
        self.deadline = deadline
        self.is_read = False
        self.is_gone = asyncio.Event()
        self.watch: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """The next message; after the body, only that the client has gone."""
        if self.is_read:
            await self.is_gone.wait()
            return {"type": "http.disconnect"}
        message = await self.source()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.is_read = True
            self.watch = asyncio.create_task(self._watch())
        return message

    async def _watch(self) -> None:
        while (await self.source())["type"] != "http.disconnect":
            pass
        self.is_gone.set()
        if not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Watch no longer."""
        if self.watch is not None:
            self.watch.cancel()


class Answer:
    """What is sent to the client, and how far it has come."""

    def __init__(self, target: Send) -> None:
        self.target = target
        self.is_begun = False
        self.is_ended = False
        self.is_stream = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.is_begun = True
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            self.is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
        elif message["type"] == "http.response.body":
            self.is_ended = not message.get("more_body", False)
        await self.target(message)
        if message.get("more_body", False):
            # Pieces may lie ready in numbers: others come in between, and a client that has gone is noticed.
            await asyncio.sleep(0)

    async def cut(self, error: ApiError) -> None:
        """End with an error: as the answer where none has begun, as the last event of a stream."""
        if not self.is_begun:
            raise error
        note(is_cut=True)
        if self.is_stream and not self.is_ended:
            event = b"data: " + error.body + b"\n\n"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD):
                    await self.target({"type": "http.response.body", "body": event, "more_body": False})


class Stream(StreamingResponse):
    """A streamed answer whose source is closed as soon as the answer ends, however it ends."""

    def __init__(self, source: AsyncGenerator[bytes], **settings: Any) -> None:
        super().__init__(source, **settings)
        self.source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all. Whether the client has gone is watched for elsewhere (Patience)."""
        async with contextlib.aclosing(self.source):
            await self.stream_response(send)
