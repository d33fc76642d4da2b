"""API errors in the format of OpenAI's API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fastapi.responses import Response

from chainrule.errors import ConfigError

CODES: Final = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
    500: "internal_error",
    505: "http_version_not_supported",
    503: "overloaded",
    504: "timeout",
}
"""Default error code of each status."""


class ApiError(Exception):
    """An error that is sent to the client as the response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code or CODES.get(status)
        self.headers = dict(headers or {})

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document of the error."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def body(self) -> bytes:
        """The document as ASCII-only JSON."""
        return json.dumps(self.document, allow_nan=False).encode()

    def response(self) -> Response:
        """Return the HTTP response."""
        return Response(self.body, self.status, self.headers, media_type="application/json")


CLOSE: Final = {"Connection": "close"}
RETRY: Final = {"Retry-After": "1"}


def too_many_requests(running: int) -> ApiError:
    """Return the 503 error of a request that finds the queue full."""
    return ApiError(503, f"{running} requests are waiting; try again in a moment", headers=RETRY)


def shutting_down() -> ApiError:
    """Return the 503 error of a request that was not finished at shutdown."""
    message = "the server is shutting down; retry later"
    return ApiError(503, message, code="shutting_down", headers={**CLOSE, **RETRY})


def unexpected() -> ApiError:
    """Return the 500 error of an unexpected exception; it reveals no internals."""
    return ApiError(500, "the server failed on this request; its log says where")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the server; requests that exceed one are rejected before any work is done."""

    body_bytes: int = 2 << 20
    depth: int = 32  # maximum nesting of JSON lists and objects
    names: int = 1024  # maximum number of JSON keys in a body
    seconds: float = 60.0  # timeout of a request, from its first byte to the last of the response
    idle_seconds: float = 30.0  # until a connection without a complete request is closed
    tokens: int = 4096  # generated per sample
    prompt_tokens: int = 1 << 16
    prompts: int = 256
    samples: int = 64  # per prompt
    top: int = 100  # alternatives per token
    drawn: int = 1 << 20  # per response: prompts · samples · tokens · (1 + alternatives)
    waiting: int = 512  # concurrent requests; more are rejected with 503
    rows: int = 256  # maximum batch size of a decode step
    grace_seconds: float = 5.0  # for running requests to finish at shutdown; may be 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value >= 0 if field.name == "grace_seconds" else value > 0):
                raise ConfigError(f"limits.{field.name} is {value}; choose a positive number")
