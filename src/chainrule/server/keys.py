"""Who may ask: the key, and the names under which this server is asked for.

Not here: where the server listens (serving.py).
"""

import hmac
import stat
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from chainrule.errors import ChainruleWarning, InputError, NotFoundError
from chainrule.server.errors import ApiError

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
OPEN: Final = ("/health", "/", "/favicon.ico")
OPEN_FOLDER: Final = "/page/"  # the page itself is no secret; what it asks for is


class AccessRules:
    """The rules by which a request is accepted: it names this server and carries its API key."""

    def __init__(self, key: str | None, hosts: Collection[str] | None) -> None:
        self.key = None if key is None else key.encode()
        self.hosts = hosts

    def check(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise ApiError for a request that is not accepted; names of headers are in lower case."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if not is_open(method, path):
            self._check_key(headers.get(b"authorization", b""))

    def _check_host(self, host: str) -> None:
        """Refuse a name that is not ours: a page elsewhere may have pointed its own name at this machine."""
        name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
        if self.hosts is not None and name not in self.hosts:
            known = ", ".join(sorted(self.hosts))
            raise ApiError(400, f"this server answers to {known} alone; ask for it by one of these", param="Host")

    def _check_key(self, authorization: bytes) -> None:
        if self.key is None:
            return
        scheme, _, given = authorization.partition(b" ")
        is_right = hmac.compare_digest(given.strip(), self.key)  # takes as long for a near miss as for a far one
        if not is_right or scheme.lower() != b"bearer":
            raise ApiError(
                401,
                "the API key is missing or wrong; send the header Authorization: Bearer KEY",
                headers={"WWW-Authenticate": "Bearer"},
            )


class AccessMiddleware:
    """Passes on the requests that the access rules accept."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self.app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            self.rules.check(scope["method"], scope["path"], dict(scope["headers"]))
        await self.app(scope, receive, send)


def is_open(method: str, path: str) -> bool:
    """Whether a path is answered without a key."""
    return method in ("GET", "HEAD") and (path in OPEN or path.startswith(OPEN_FOLDER))


def read_key(path: Path) -> str:
    """The key of a file that holds it in one line."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}; write the API key into it, in one line") from None
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"{path} holds no API key: write one line of ASCII letters, digits and signs, no blanks")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.warn(f"{path} can be read by others; chmod 600 {path}", ChainruleWarning, stacklevel=2)
    return key
