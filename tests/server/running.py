"""A real server on a free port in a thread of its own, and what a client on a bare socket says to it."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from fastapi import FastAPI

from chainrule.server import serving
from chainrule.server.limits import Limits

PATIENCE: Final = 60  # seconds after which a server that should answer is held to be stuck


@dataclass(frozen=True, slots=True)
class Running:
    """Where a server listens."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, request: bytes) -> "Heard":
        """Send bytes, hear the answer to its end."""
        with self.connect() as connection:
            connection.sendall(request)
            return hear(connection)

    def is_healthy(self) -> bool:
        """Whether `/health` is answered."""
        return self.ask(get("/health")).status == 200


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer as it came over the wire."""

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


def hear(connection: socket.socket) -> Heard:
    """The one answer of a connection, read until the server closes it."""
    whole = b""
    while part := connection.recv(1 << 16):
        whole += part
    head, _, body = whole.partition(b"\r\n\r\n")
    return response_of(head, body)


def read_response(connection: socket.socket) -> Heard:
    """The next answer of a connection that stays open; it must have a length."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, f"the connection was closed after {head!r}"
        head += byte
    response = response_of(head.removesuffix(b"\r\n\r\n"), b"")
    body = b""
    while len(body) < int(response.headers["content-length"]):
        body += connection.recv(int(response.headers["content-length"]) - len(body))
    return replace(response, body=body)


def response_of(head: bytes, body: bytes) -> Heard:
    """An answer from its head, without the blank line, and its body."""
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Heard(int(first.split()[1]), headers, body)


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again until it holds; fail if the server seems to be stuck."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to hold"


@contextmanager
def running(app: FastAPI, limits: Limits | None = None) -> Iterator[Running]:
    """The app on a free port of this machine."""
    listener = serving.bind("127.0.0.1", 0)
    server = serving.Server(app, limits or Limits())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    port = listener.getsockname()[1]
    thread.start()
    try:
        yield Running(port)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"
