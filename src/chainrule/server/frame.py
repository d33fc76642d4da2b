"""Outermost middleware: access log, security headers, and a 500 response for unexpected exceptions."""

import time
import traceback
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.server.errors import ApiError, unexpected
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
