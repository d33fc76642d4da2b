"""What goes wrong in a request, in the shape OpenAI's clients read.

Lives here: the error, its document and its answer. Not here: which exception becomes which status (app.py).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from fastapi.responses import Response

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
"""What a program may tell apart, where the one who raises the error says nothing nearer."""


class ApiError(Exception):
    """A request that is answered with an error."""

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
        """The error as the client reads it."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def body(self) -> bytes:
        """The document in UTF-8; what no UTF-8 can hold is written as an escape."""
        return json.dumps(self.document, allow_nan=False).encode()

    def response(self) -> Response:
        """The whole answer."""
        return Response(self.body, self.status, self.headers, media_type="application/json")


CLOSE: Final = {"Connection": "close"}
RETRY: Final = {"Retry-After": "1"}


def too_many_requests(running: int) -> ApiError:
    """Return the error of a request that finds the queue full."""
    return ApiError(503, f"{running} requests are waiting; try again in a moment", headers=RETRY)


def shutting_down() -> ApiError:
    """Return the error of a request that was not finished when the server stopped."""
    message = "the server is shutting down; ask again when it is up"
    return ApiError(503, message, code="shutting_down", headers={**CLOSE, **RETRY})


def unexpected() -> ApiError:
    """What a client is told of a mistake of ours: that there was one, and nothing of its inside."""
    return ApiError(500, "the server failed on this request; its log says where")
