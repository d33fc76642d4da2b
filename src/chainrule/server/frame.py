"""Around every request: its line in the log, the headers every answer has, and an answer whatever goes wrong."""

import time
import traceback
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.server.errors import ApiError, unexpected
from chainrule.server.logs import LOG, begin, note

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
GONE: Final = 499  # in the log: the client went away before it was answered
LONGEST_PATH: Final = 200


class Frame:
    """The outermost part: what comes out of it is always an answer, and always logged."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        facts = begin(method=scope["method"], path=scope["path"][:LONGEST_PATH])
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
            note(status=status or GONE, milliseconds=round(1000 * (time.perf_counter() - start), 1))
            LOG.info("request", extra={"facts": facts})

    async def _error(self, scope: Scope, receive: Receive, send: Send) -> ApiError | None:
        """Let the request be answered; what is still to be told where it was not."""
        try:
            await self.app(scope, receive, send)
        except ApiError as error:
            return error
        except Exception as error:
            # Where it happened and no more: a message may hold what the client sent.
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename}:{last.lineno} in {last.name}"
            note(error=type(error).__name__)
            LOG.error("%s at %s", type(error).__name__, place)
            return unexpected()
        return None
