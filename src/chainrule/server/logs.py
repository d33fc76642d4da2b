"""Access log: one JSON object per request on stderr (time, path, status, duration, token counts) and no text."""

import datetime
import json
import logging
import sys
from contextvars import ContextVar
from typing import Any, Final

LOG: Final = logging.getLogger("chainrule.server")

_FACTS: ContextVar[dict[str, Any] | None] = ContextVar("facts of the request", default=None)


def add_log_fields(**facts: str | float | None) -> None:
    """Add fields such as `model`, `tokens_in`, `tokens_out` to the log line of the current request.

    Only numbers and model names, never a prompt or text. Does nothing outside a request.
    """
    known = _FACTS.get()
    if known is not None:
        known.update(facts)


def start_log_record(**facts: str | float | None) -> dict[str, Any]:
    """Start the log record of a request; tasks created while it runs share it."""
    known: dict[str, Any] = dict(facts)
    _FACTS.set(known)
    return known


class JsonLines(logging.Formatter):
    """Format a log record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        facts = getattr(record, "facts", None)
        if facts is None:
            facts = {"level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps({"time": time} | facts, allow_nan=False)


def log_to_stderr(is_quiet: bool) -> None:
    """Send the log to stderr; if `is_quiet`, only warnings and errors.

    Warnings of asyncio and uvicorn (disconnected clients, invalid HTTP) are dropped: clients could flood the log,
    and the access log has the same information.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    server_level = logging.WARNING if is_quiet else logging.INFO
    for name, level in {LOG.name: server_level, "uvicorn.error": logging.ERROR, "asyncio": logging.ERROR}.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)
