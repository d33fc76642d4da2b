"""A real server on a free port in a thread, and a client that uses raw sockets."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from fastapi import FastAPI

from chainrule.server import http
from chainrule.server.errors import Limits

TIMEOUT_SECONDS: Final = 60  # for a response, before the server is considered stuck


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Address of a running server."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_SECONDS)

    def ask(self, request: bytes) -> "Response":
        """Send bytes and read the response until the connection closes."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_until_closed(connection)

    def is_healthy(self) -> bool:
        """Whether `/health` responds with 200."""
        return self.ask(get("/health")).status == 200


@dataclass(frozen=True, slots=True)
class Response:
    """A raw HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        document = json.loads(self.body)
        assert list(document) == ["error"]
        assert list(document["error"]) == ["message", "type", "param", "code"]
        return dict(document["error"])


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def read_until_closed(connection: socket.socket) -> Response:
    """Read the only response of a connection until the server closes it."""
    whole = b""
    while part := connection.recv(1 << 16):
        whole += part
    head, _, body = whole.partition(b"\r\n\r\n")
    return parse_response(head, body)


def read_response(connection: socket.socket) -> Response:
    """Read the next response of a persistent connection; it must have a Content-Length."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, f"the connection was closed after {head!r}"
        head += byte
    response = parse_response(head.removesuffix(b"\r\n\r\n"), b"")
    body = b""
    while len(body) < int(response.headers["content-length"]):
        body += connection.recv(int(response.headers["content-length"]) - len(body))
    return replace(response, body=body)


def parse_response(head: bytes, body: bytes) -> Response:
    """Parse a response from its head, without the blank line, and its body."""
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Response(int(first.split()[1]), headers, body)


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; fail after the timeout."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, "the condition never held"


@contextmanager
def run_server(app: FastAPI, limits: Limits | None = None) -> Iterator[RunningServer]:
    """Run the app on a free local port."""
    listener = http.bind("127.0.0.1", 0)
    server = http.Server(app, limits or Limits())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    port = listener.getsockname()[1]
    thread.start()
    try:
        yield RunningServer(port)
    finally:
        server.should_exit = True
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive(), "the server did not stop"
