"""How long a request may take, how many there may be, and what becomes of one whose client has gone.

Not here: what a request may ask for (limits.py, schema.py).
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.server.body import ClientGone
from chainrule.server.errors import CLOSE, ApiError, shutting_down, too_many_requests
from chainrule.server.keys import is_open
from chainrule.server.limits import Limits
from chainrule.server.logs import note

STARTS_PER_TURN: Final = 16  # requests; each takes about a millisecond to parse and validate
LAST_WORD: Final = 1.0  # seconds a client has to take the end of an answer that was cut short


class RunningRequests:
    """The requests that are being answered; `abort` ends them all, each with the error 503.

    Attributes:
        limit: Requests that may run at a time.
        is_aborted: Whether `abort` was called.

    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_aborted = False
        self._deadlines: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def has_room(self) -> bool:
        """Whether one more request is accepted."""
        return not self.is_aborted and len(self) < self.limit

    def check_room(self) -> None:
        """Raise ApiError if no more requests are accepted."""
        if self.is_aborted:
            raise shutting_down()
        if len(self) >= self.limit:
            raise too_many_requests(len(self))

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


class Turnstile:
    """Lets at most `per_turn` requests start in one turn of the event loop; the others start in the turns after.

    A thousand requests that arrive at once would otherwise be parsed and validated in a single turn, during which
    no other connection is served.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._free = per_turn
        self._is_scheduled = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Return when the request may start."""
        loop = asyncio.get_running_loop()
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._start_turn, loop)
        if self._free and not self._waiting:
            self._free -= 1
            return
        waiting = loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _start_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._free = self._per_turn
        while self._waiting and self._free:
            waiting = self._waiting.popleft()
            if not waiting.done():  # it is done where the request was cancelled
                waiting.set_result(None)
                self._free -= 1
        self._is_scheduled = self._free < self._per_turn
        if self._is_scheduled:
            loop.call_soon(self._start_turn, loop)


class Patience:
    """Ends the work for a request at its limit of time, or as soon as nobody waits for it any more."""

    def __init__(self, app: ASGIApp, limits: Limits, requests: RunningRequests) -> None:
        self.app = app
        self.limits = limits
        self.requests = requests
        self.turnstile = Turnstile(STARTS_PER_TURN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not is_open(scope["method"], scope["path"]):
            self.requests.check_room()
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = Answer(send)
        deadline = asyncio.timeout(self.limits.seconds)
        mail = Mail(receive, deadline)
        try:
            async with deadline:
                self.requests.add(deadline)
                await self.turnstile.enter()
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
