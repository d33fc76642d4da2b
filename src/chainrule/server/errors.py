"""API errors in the format of OpenAI's API."""

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
    message = "the server is shutting down; ask again when it is up"
    return ApiError(503, message, code="shutting_down", headers={**CLOSE, **RETRY})


def unexpected() -> ApiError:
    """Return the 500 error of an unexpected exception; it reveals no internals."""
    return ApiError(500, "the server failed on this request; its log says where")
