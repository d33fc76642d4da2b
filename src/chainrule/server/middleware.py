"""Middleware: access log, access control, timeout and disconnect, from the outermost inwards.

`json_body.JsonBodyMiddleware` follows as the innermost; `app.create_app` assembles them.
"""

import asyncio
import contextlib
import hmac
import stat
import time
import traceback
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.errors import ChainruleWarning, InputError, NotFoundError
from chainrule.server.errors import CLOSE, ApiError, Limits, shutting_down, too_many_requests, unexpected
from chainrule.server.json_body import ClientDisconnected
from chainrule.server.logs import LOG, add_log_fields, start_log_record

HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
CLIENT_CLOSED_REQUEST: Final = 499  # nginx status, in the log only: the client disconnected before the response
MAX_LOGGED_PATH: Final = 200


class RequestLogMiddleware:
    """Log every request, add the security headers, and convert exceptions to error responses."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        facts = start_log_record(method=scope["method"], path=scope["path"][:MAX_LOGGED_PATH])
        start = time.perf_counter()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            error = await self._error(scope, receive, answer)
            if error is not None and not status:
                await error.response()(scope, receive, answer)
        finally:
            add_log_fields(
                status=status or CLIENT_CLOSED_REQUEST, milliseconds=round(1000 * (time.perf_counter() - start), 1)
            )
            LOG.info("request", extra={"facts": facts})

    async def _error(self, scope: Scope, receive: Receive, send: Send) -> ApiError | None:
        """Run the application; return the error to send if it raised."""
        try:
            await self.app(scope, receive, send)
        except ApiError as error:
            return error
        except Exception as error:
            # Log the location only: the message may contain client data.
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename}:{last.lineno} in {last.name}"
            add_log_fields(error=type(error).__name__)
            LOG.error("%s at %s", type(error).__name__, place)
            return unexpected()
        return None


LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
PUBLIC_PATHS: Final = ("/health", "/", "/favicon.ico")
PUBLIC_FOLDER: Final = "/page/"  # files of the page; its API requests need the key


class AccessRules:
    """Checks the Host header and the API key of requests."""

    def __init__(self, key: str | None, hosts: Collection[str] | None) -> None:
        self.key = None if key is None else key.encode()
        self.hosts = hosts

    def check(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise ApiError if the request is not allowed; header names are in lower case."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if not is_public_path(method, path):
            self._check_key(headers.get(b"authorization", b""))

    def _check_host(self, host: str) -> None:
        """Reject unknown Host headers (protects against DNS rebinding)."""
        name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
        if self.hosts is not None and name not in self.hosts:
            known = ", ".join(sorted(self.hosts))
            raise ApiError(
                400, f"this server accepts only requests to {known}; use one of these names", param="Host"
            )

    def _check_key(self, authorization: bytes) -> None:
        if self.key is None:
            return
        scheme, _, key = authorization.partition(b" ")
        is_equal = hmac.compare_digest(key.strip(), self.key)  # constant-time comparison
        if not is_equal or scheme.lower() != b"bearer":
            raise ApiError(
                401,
                "the API key is missing or wrong; send the header Authorization: Bearer KEY",
                headers={"WWW-Authenticate": "Bearer"},
            )


class AccessMiddleware:
    """Reject requests that violate the access rules."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self.app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            self.rules.check(scope["method"], scope["path"], dict(scope["headers"]))
        await self.app(scope, receive, send)


def is_public_path(method: str, path: str) -> bool:
    """Whether a request needs no API key."""
    return method in ("GET", "HEAD") and (path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDER))


def read_key(path: Path) -> str:
    """Read the API key from a one-line file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}; write the API key into it, in one line") from None
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            f"{path} contains no valid API key: write one line of printable ASCII characters without blanks"
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.warn(f"{path} can be read by others; chmod 600 {path}", ChainruleWarning, stacklevel=2)
    return key


STARTS_PER_TURN: Final = 16  # requests; each takes about a millisecond to parse and validate
FINAL_EVENT_SECONDS: Final = 1.0  # for sending the error event that ends an aborted stream


class RunningRequests:
    """The running requests; `abort` ends them all with a 503 error.

    Attributes:
        limit: Maximum number of concurrent requests.
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
        """Add a request, identified by its deadline; the deadline must have been entered as a context manager."""
        self._deadlines.add(deadline)
        if self.is_aborted:
            deadline.reschedule(asyncio.get_running_loop().time())

    def discard(self, deadline: asyncio.Timeout) -> None:
        """Remove a request that has ended."""
        self._deadlines.discard(deadline)

    def abort(self) -> None:
        """End all current and future requests. Call it on the event loop."""
        self.is_aborted = True
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(now)


class StartLimiter:
    """Starts at most `per_turn` requests per iteration of the event loop.

    A thousand requests that arrive at once would otherwise be parsed and validated in a single iteration, during
    which no other connection is served.
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
            if not waiting.done():  # done if the request was cancelled
                waiting.set_result(None)
                self._free -= 1
        self._is_scheduled = self._free < self._per_turn
        if self._is_scheduled:
            loop.call_soon(self._start_turn, loop)


class TimeoutMiddleware:
    """Cancel a request at its timeout or when its client disconnects."""

    def __init__(self, app: ASGIApp, limits: Limits, requests: RunningRequests) -> None:
        self.app = app
        self.limits = limits
        self.requests = requests
        self.start_limiter = StartLimiter(STARTS_PER_TURN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not is_public_path(scope["method"], scope["path"]):
            self.requests.check_room()
        await self._run(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = ResponseSender(send)
        deadline = asyncio.timeout(self.limits.seconds)
        watcher = DisconnectWatcher(receive, deadline)
        try:
            async with deadline:
                self.requests.add(deadline)
                await self.start_limiter.enter()
                await self.app(scope, watcher.receive, sender.send)
        except ClientDisconnected:
            add_log_fields(is_gone=True)
        except TimeoutError:
            if not deadline.expired():
                raise
            if watcher.is_disconnected.is_set():
                add_log_fields(is_gone=True)
            else:
                await sender.abort(
                    shutting_down() if self.requests.is_aborted else self._timeout_error(watcher.is_read)
                )
        finally:
            self.requests.discard(deadline)
            watcher.close()

    def _timeout_error(self, is_read: bool) -> ApiError:
        if not is_read:
            return ApiError(408, f"the body took more than {self.limits.seconds:g} s to arrive", headers=CLOSE)
        return ApiError(504, f"the response took more than {self.limits.seconds:g} s; request less at once")


class DisconnectWatcher:
    """Cancels the request when its client disconnects; wraps `receive` and watches it once the body is read.

    It moves the deadline of `TimeoutMiddleware` to now, which cancels the task of the request. What the request was
    doing then ends: `worker.Scheduler` closes its response channel, and its slots leave the batch at the next step;
    `threads.run_cancellable` stops a beam search or an explanation; `ClosingStreamingResponse` closes the generator
    of a stream. Before the body is complete, `json_body.read_body` raises `ClientDisconnected` instead.
    """

    def __init__(self, source: Receive, deadline: asyncio.Timeout) -> None:
        self.source = source
        self.deadline = deadline
        self.is_read = False
        self.is_disconnected = asyncio.Event()
        self.watch: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """Return the next message; after the body, wait for the disconnect."""
        if self.is_read:
            await self.is_disconnected.wait()
            return {"type": "http.disconnect"}
        message = await self.source()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.is_read = True
            self.watch = asyncio.create_task(self._watch())
        return message

    async def _watch(self) -> None:
        while (await self.source())["type"] != "http.disconnect":
            pass
        self.is_disconnected.set()
        if not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Stop watching."""
        if self.watch is not None:
            self.watch.cancel()


class ResponseSender:
    """Wraps `send` and tracks the state of the response."""

    def __init__(self, target: Send) -> None:
        self.target = target
        self.is_begun = False
        self.is_ended = False
        self.is_stream = False

    async def send(self, message: Message) -> None:
        """Forward a message."""
        if message["type"] == "http.response.start":
            self.is_begun = True
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            self.is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
        elif message["type"] == "http.response.body":
            self.is_ended = not message.get("more_body", False)
        await self.target(message)
        if message.get("more_body", False):
            # Many chunks may be ready: let other requests run, and notice a disconnect.
            await asyncio.sleep(0)

    async def abort(self, error: ApiError) -> None:
        """End with an error: as the response if none has started, otherwise as the last event of a stream."""
        if not self.is_begun:
            raise error
        add_log_fields(is_cut=True)
        if self.is_stream and not self.is_ended:
            event = b"data: " + error.body + b"\n\n"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINAL_EVENT_SECONDS):
                    await self.target({"type": "http.response.body", "body": event, "more_body": False})


class ClosingStreamingResponse(StreamingResponse):
    """A StreamingResponse that closes its source when the response ends for any reason."""

    def __init__(self, source: AsyncGenerator[bytes], **settings: Any) -> None:
        super().__init__(source, **settings)
        self.source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; disconnects are handled by `TimeoutMiddleware`."""
        async with contextlib.aclosing(self.source):
            await self.stream_response(send)
