"""HTTP server on top of uvicorn: listening socket, connection limits, strict HTTP parsing, graceful shutdown."""

import asyncio
import errno
import http
import ipaddress
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from chainrule.errors import ChainruleError, NotFoundError
from chainrule.server.app import HEALTH
from chainrule.server.errors import CLOSE, ApiError, Limits
from chainrule.server.json_body import encode_json
from chainrule.server.logs import LOG
from chainrule.server.middleware import HEADERS, MAX_LOGGED_PATH, AccessRules, RunningRequests, is_public_path
from chainrule.server.models import ModelRegistry

BACKLOG: Final = 2048  # connections waiting to be accepted
RESERVED_DESCRIPTORS: Final = 64  # for models, logs and the event loop
MAX_HEAD_BYTES: Final = 32 << 10  # request line and headers
MAX_HEADERS: Final = 100
ABORT_SECONDS: Final = 1.0  # part of the grace period reserved for writing the errors of aborted requests
SWITCH_SECONDS: Final = 0.0005
"""Interval at which the threads of models hand the interpreter lock to the event loop.

The loop releases the lock at every system call, several times per connection. With Python's interval of 5 ms it
waited that long for each of them, which is seconds for a thousand connections.
"""


class CountedSocket(socket.socket):
    """A connection that removes itself from the set of open connections when it is closed."""

    __slots__ = ("_open_connections",)

    def __init__(self, descriptor: int, open_connections: "set[socket.socket]") -> None:
        super().__init__(fileno=descriptor)
        self._open_connections = open_connections

    def close(self) -> None:
        """Close the connection."""
        self._open_connections.discard(self)
        super().close()


class Listener(socket.socket):
    """A listening socket that rejects connections beyond a limit and never runs out of descriptors.

    asyncio logs every failed `accept` and tries it again for each connection of the backlog, which floods the log
    and keeps a core busy when the descriptor limit is reached. A rejected connection is accepted, answered with
    status 503 and closed, using a reserve descriptor if no other is left. Rejections are logged once, and again
    only after half of the connections have been closed.

    Attributes:
        limit: Maximum number of open connections.

    """

    __slots__ = ("_connections", "_refused_at", "_reserve", "limit")

    def __init__(self, family: int, kind: int, protocol: int, limit: int) -> None:
        super().__init__(family, kind, protocol)
        self.limit = limit
        self._connections: set[socket.socket] = set()
        self._refused_at: int | None = None  # connections that were open when refusals began
        self._reserve: socket.socket | None = socket.socket()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection; raise BlockingIOError if there is none or if it was refused."""
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._refuse_with_reserve()
            raise BlockingIOError from None
        if len(self._connections) >= self.limit:
            self._refuse(connection)
            raise BlockingIOError
        if self._refused_at is not None and 2 * len(self._connections) < self._refused_at:
            self._refused_at = None
        counted = CountedSocket(connection.detach(), self._connections)
        self._connections.add(counted)
        return counted, address

    def close(self) -> None:
        """Close the socket and its reserve."""
        if self._reserve is not None:
            self._reserve.close()
        super().close()

    def _refuse_with_reserve(self) -> None:
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None
        try:
            connection, _ = super().accept()
        except OSError:  # another thread took the descriptor, or the client has gone
            return
        self._refuse(connection)
        try:
            self._reserve = socket.socket()
        except OSError:
            self._reserve = None

    def _refuse(self, connection: socket.socket) -> None:
        if self._refused_at is None:
            self._refused_at = len(self._connections)
            LOG.warning(
                "refusing connections: %d are open and no more fit within the descriptor limit (ulimit -n)",
                self._refused_at,
            )
        with connection:
            connection.setblocking(False)
            try:
                connection.send(TOO_MANY_CONNECTIONS)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass


def connection_limit() -> int:
    """Return how many connections fit within the descriptor limit of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(soft - RESERVED_DESCRIPTORS, soft // 2)


def http_response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a JSON document as a raw HTTP response, for responses not sent by the application."""
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines += [f"{name}: {value}" for name, value in fields.items()]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in HEADERS]
    return "\r\n".join([*lines, "", ""]).encode() + body


def error_response(error: ApiError) -> bytes:
    """Return an error as a raw HTTP response that closes the connection."""
    return http_response(error.status, error.body, {**error.headers, **CLOSE})


TOO_MANY_CONNECTIONS: Final = error_response(ApiError(503, "too many connections are open; try again in a moment"))
HEALTH_BODY: Final = encode_json(HEALTH)


def bind(host: str, port: int) -> Listener:
    """Return a listening socket; port 0 chooses a free port."""
    family, kind, protocol, _, address = resolve(host, port)[0]
    listener = Listener(family, kind, protocol, connection_limit())
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"is not available: {error.strerror or error}"
        raise ChainruleError(
            f"port {port} of {host} {reason};\nchoose another with --port, or 0 for any that is free"
        ) from error
    return listener


def resolve(host: str, port: int) -> list[Any]:
    """Resolve a host name to socket addresses."""
    try:
        return socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotFoundError(
            f"there is no host {host}; give an address of this machine, such as 127.0.0.1"
        ) from error


def is_loopback(host: str) -> bool:
    """Whether a host resolves to loopback addresses only."""
    return all(ipaddress.ip_address(address[4][0].partition("%")[0]).is_loopback for address in resolve(host, 0))


def is_wildcard(host: str) -> bool:
    """Whether a host is a wildcard address such as 0.0.0.0 or ::."""
    return all(ipaddress.ip_address(address[4][0].partition("%")[0]).is_unspecified for address in resolve(host, 0))


def url(host: str, listener: socket.socket) -> str:
    """Return a URL at which this machine reaches the socket; a wildcard becomes the loopback address."""
    name = host.strip("[]")
    if is_wildcard(name):
        name = "::1" if listener.family == socket.AF_INET6 else "127.0.0.1"
    return f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}"


def run(app: FastAPI, listener: socket.socket, limits: Limits) -> None:
    """Serve until a signal arrives; running requests then get `limits.grace_seconds` to finish."""
    if threading.current_thread() is threading.main_thread():
        # Uvicorn re-raises the signal after shutdown; a background process of a shell would ignore SIGINT.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.setswitchinterval(SWITCH_SECONDS)
    Server(app, limits).run(sockets=[listener])


class Server(uvicorn.Server):
    """Uvicorn server that answers requests with an error if they do not finish within the grace period."""

    def __init__(self, app: FastAPI, limits: Limits) -> None:
        super().__init__(uvicorn_config(app, limits))
        self._requests: RunningRequests = app.state.requests
        self._registry: ModelRegistry = app.state.registry
        self._grace_seconds = limits.grace_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, wait for running requests, abort the rest, close the models.

        The requests are aborted before the grace period ends, so that their errors are written within it.
        """
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        abort_seconds = min(ABORT_SECONDS, self._grace_seconds / 2)
        if not await self._wait_for_requests(self._grace_seconds - abort_seconds):
            LOG.warning("requests that did not end within --grace and are aborted: %d", len(self._requests))
            self._registry.stop()  # the threads of models would compete for the interpreter lock
            self._requests.abort()
            await self._wait_for_requests(ABORT_SECONDS)
        for connection in list(self.server_state.connections):  # clients that do not read their response
            connection.transport.abort()
        await self._wait_for_requests(ABORT_SECONDS)
        await self.lifespan.shutdown()

    async def _wait_for_requests(self, seconds: float) -> bool:
        """Wait until every request has been answered and every connection closed; False if that takes longer."""
        try:
            async with asyncio.timeout(seconds):
                while self.server_state.tasks and not self.force_exit:
                    await asyncio.wait(self.server_state.tasks, timeout=0.1)
                while self.server_state.connections and not self.force_exit:
                    await asyncio.sleep(0.01)  # wait for buffered data
        except TimeoutError:
            return False
        return True


def uvicorn_config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """Return the uvicorn configuration."""

    class Connection(IdleTimeoutProtocol):
        idle_seconds = limits.idle_seconds
        requests = app.state.requests
        access_rules = app.state.access_rules

    return uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )


class StrictConnection(h11.Connection):
    """HTTP/1.1 parser that rejects ambiguous requests (request smuggling) and long headers.

    h11 alone ignores `Content-Length` beside `Transfer-Encoding`, joins equal lengths and folded lines, and ends
    lines at LF.
    """

    def next_event(self) -> Any:
        """Return the next event; the raw request head is checked before it is parsed."""
        if self.their_state is h11.IDLE:
            check_head(self.trailing_data[0])
        return super().next_event()


def check_head(received: bytes) -> None:
    """Raise RemoteProtocolError for an invalid request head; `received` may be incomplete or contain more."""
    end = received.find(b"\r\n\r\n")
    head = received if end < 0 else received[:end]
    if len(head) > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError(f"the headers are larger than {MAX_HEAD_BYTES:,} bytes", 431)
    if re.search(rb"(?<!\r)\n", head):
        raise h11.RemoteProtocolError("a line of the headers ends with LF alone; end it with CR LF")
    if re.search(rb"\r\n[ \t]", head):
        raise h11.RemoteProtocolError("a header is folded over several lines; write it in one")
    if end < 0:
        return
    request_line, *lines = head.split(b"\r\n")
    version = re.search(rb" HTTP/([0-9])\.[0-9]$", request_line)
    if version is not None and version[1] != b"1":
        raise h11.RemoteProtocolError("the version of HTTP is not supported; use HTTP/1.1", 505)
    if len(lines) > MAX_HEADERS:
        raise h11.RemoteProtocolError(f"there are more than {MAX_HEADERS} headers", 431)
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    lengths = [value for name, value in fields if name == b"content-length"]
    encodings = [value for name, value in fields if name == b"transfer-encoding"]
    if len(lengths) > 1 or b"," in b"".join(lengths):
        raise h11.RemoteProtocolError("Content-Length is given more than once")
    if encodings and (lengths or request_line.endswith(b"HTTP/1.0")):
        other = "HTTP/1.0" if not lengths else "Content-Length"
        raise h11.RemoteProtocolError(f"Transfer-Encoding is given together with {other}; send one of them")
    if encodings and [value.lower() for value in encodings] != [b"chunked"]:
        raise h11.RemoteProtocolError("Transfer-Encoding must be chunked, once, or left out")


BETWEEN_REQUESTS: Final = {h11.CLIENT: h11.IDLE, h11.SERVER: h11.IDLE}
WHOLE_HEAD: Final = re.compile(
    rb"([A-Z]+) (/[!-$&->@-~]*)(?:\?[!-~]*)? HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n)*)\r\n"
)
"""A request head without percent escapes in its path."""
ONLY_FOR_PARSER: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})


def read_whole_request(data: bytes) -> tuple[str, str, dict[bytes, bytes]] | None:
    """Return method, path and headers if `data` is exactly one simple request with its body; None otherwise."""
    head = WHOLE_HEAD.match(data)
    if head is None or head.end() > MAX_HEAD_BYTES:
        return None
    fields = [line.partition(b":") for line in head[3].split(b"\r\n")[:-1]]
    headers = {name.lower(): value.strip() for name, _, value in fields}
    length = headers.get(b"content-length", b"0")
    is_plain = (
        len(headers) == len(fields) <= MAX_HEADERS and b"host" in headers and not headers.keys() & ONLY_FOR_PARSER
    )
    if not is_plain or not length.isdigit() or len(length) > 9 or int(length) != len(data) - head.end():
        return None
    return head[1].decode(), head[2].decode(), headers


class IdleTimeoutProtocol(H11Protocol):
    """HTTP protocol that closes idle connections and sends parse errors in the API's format."""

    idle_seconds: float = 30.0
    requests: RunningRequests
    access_rules: AccessRules
    _idle_timer: asyncio.TimerHandle | None = None

    def __init__(self, *settings: Any, **named_settings: Any) -> None:
        super().__init__(*settings, **named_settings)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore the header Upgrade without logging it."""

    def connection_made(self, transport: Any) -> None:
        """Start the idle timer."""
        super().connection_made(transport)
        self._start_idle_timer()

    def data_received(self, data: bytes) -> None:
        """Answer a request directly if possible; otherwise pass the bytes to the parser."""
        is_between_requests = self.conn.states == BETWEEN_REQUESTS and not self.conn.trailing_data[0]
        answer = self._direct_answer(data) if is_between_requests else None
        if answer is None:
            super().data_received(data)
            return
        response, is_last = answer
        self.transport.write(response)
        if is_last:
            self.transport.close()
        self.on_response_complete()

    def _direct_answer(self, data: bytes) -> tuple[bytes, bool] | None:
        """Return the response to `GET /health`, or the error of a rejected request, without creating a task.

        The second value says whether to close the connection; None leaves the request to the application, which
        would give the same response but take several iterations of the event loop.
        """
        is_health = data.startswith(b"GET /health HTTP/1.1\r\n")
        if not is_health and self.requests.has_room:
            return None
        request = read_whole_request(data)
        if request is None:
            return None
        start = time.perf_counter()
        method, path, headers = request
        status, body, fields = 200, HEALTH_BODY, dict[str, str]()
        try:
            self.access_rules.check(method, path, headers)
            if is_public_path(method, path):
                if not is_health:
                    return None
            else:
                self.requests.check_room()
        except ApiError as error:
            status, body, fields = error.status, error.body, dict(error.headers)
        is_last = "Connection" in fields or headers.get(b"connection", b"").lower() == b"close"
        facts = {"method": method, "path": path[:MAX_LOGGED_PATH], "status": status}
        LOG.info(
            "request", extra={"facts": {**facts, "milliseconds": round(1000 * (time.perf_counter() - start), 1)}}
        )
        fields |= {name.decode(): value.decode() for name, value in self.server_state.default_headers}
        return http_response(status, body, {**fields, **CLOSE} if is_last else fields), is_last

    def on_response_complete(self) -> None:
        """Restart the idle timer."""
        super().on_response_complete()
        self._start_idle_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the idle timer."""
        super().connection_lost(exc)
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _start_idle_timer(self) -> None:
        # One timer per connection, because it keeps a reference to the previous request.
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(self.idle_seconds, self._close_if_idle, self.cycle)

    def _close_if_idle(self, cycle: Any) -> None:
        # A new cycle starts when the headers of a request are complete.
        if self.cycle is cycle and (cycle is None or cycle.response_complete):
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with the status and message of the parser error, then close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # a response has already started
            self.transport.close()
            return
        reason = sys.exception()
        status = getattr(reason, "error_status_hint", 400)
        # The parser appends the received bytes to its messages, possibly thousands.
        details = "" if reason is None else f": {str(reason).partition(': bytearray(')[0]}"
        error = ApiError(status, f"{msg.removesuffix('.')}{details}")
        LOG.info("request", extra={"facts": {"status": status}})
        self.transport.write(error_response(error))
        self.transport.close()
