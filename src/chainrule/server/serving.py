"""Sockets and signals: where the server listens, how it starts and ends, and connections that bring nothing.

Not here: what is answered (app.py).
"""

import asyncio
import errno
import ipaddress
import signal
import socket
import threading
from typing import Any, Final

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from chainrule.errors import ChainruleError, NotFoundError
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits

GRACE: Final = 5  # seconds that requests have to end when the server is stopped


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one."""
    family, kind, protocol, _, address = addresses(host, port)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror or error}"
        raise ChainruleError(
            f"port {port} of {host} {reason};\nchoose another with --port, or 0 for any that is free"
        ) from error
    return listener


def addresses(host: str, port: int) -> list[Any]:
    """What a host's name stands for."""
    try:
        return socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotFoundError(f"there is no host {host}; give an address of this machine, as 127.0.0.1") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's name."""
    return all(ipaddress.ip_address(found[4][0].partition("%")[0]).is_loopback for found in addresses(host, 0))


def is_everywhere(host: str) -> bool:
    """Whether a host's name stands for all addresses of this machine, as 0.0.0.0 and :: do."""
    return all(ipaddress.ip_address(found[4][0].partition("%")[0]).is_unspecified for found in addresses(host, 0))


def url(host: str, listener: socket.socket) -> str:
    """Where this machine asks for a listening socket; no program can open the address that stands for all."""
    name = host.strip("[]")
    if is_everywhere(name):
        name = "::1" if listener.family == socket.AF_INET6 else "127.0.0.1"
    return f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}"


def run(app: FastAPI, listener: socket.socket, limits: Limits) -> None:
    """Serve until a signal comes; then running requests have a few seconds to end."""
    if threading.current_thread() is threading.main_thread():
        # Uvicorn hands a signal on when it has ended; a shell's background process would then ignore this one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    uvicorn.Server(configuration(app, limits)).run(sockets=[listener])


def configuration(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """The settings of uvicorn."""

    class Connection(PatientConnection):
        idle_seconds = limits.idle_seconds

    return uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )


class PatientConnection(H11Protocol):
    """A connection that is closed when no whole request comes, and whose errors have the shape of all others."""

    idle_seconds: float = 30.0
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nothing more to wait for."""
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()

    def _wait(self) -> None:
        # One timer a connection: it keeps the request before from being forgotten.
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(self.idle_seconds, self._give_up, self.cycle)

    def _give_up(self, cycle: Any) -> None:
        # A new cycle begins when the headers of a request are whole.
        if self.cycle is cycle and (cycle is None or cycle.response_complete):
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP gets an answer that is."""
        error = ApiError(400, msg, headers={"Content-Type": "application/json", "Connection": "close"})
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=error.body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
