"""Access control: API key and Host header."""

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
