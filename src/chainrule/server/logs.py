"""One JSON object a request on stderr: when, what path, what status, how long, how many tokens; never a text.

Lives here: the log, and what a handler adds to its line. Not here: answers (errors.py, app.py).
"""

import datetime
import json
import logging
import sys
from contextvars import ContextVar
from typing import Any, Final

LOG: Final = logging.getLogger("chainrule.server")

_FACTS: ContextVar[dict[str, Any] | None] = ContextVar("facts of the request", default=None)


def note(**facts: str | float | None) -> None:
    """Add facts to the line of the request that is being answered: `model`, `tokens_in`, `tokens_out`.

    Numbers and names of models alone: never a prompt or a text. Outside a request nothing happens.
    """
    known = _FACTS.get()
    if known is not None:
        known.update(facts)


def begin(**facts: str | float | None) -> dict[str, Any]:
    """The facts of a new request; tasks made while it is answered add to the same."""
    known: dict[str, Any] = dict(facts)
    _FACTS.set(known)
    return known


class JsonLines(logging.Formatter):
    """A record as one JSON object: a request by its facts, anything else by its message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        facts = getattr(record, "facts", None)
        if facts is None:
            facts = {"level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps({"time": time} | facts, allow_nan=False)


def to_stderr(is_quiet: bool) -> None:
    """Send the log to stderr; a quiet server tells only of what failed.

    Warnings of asyncio and uvicorn are left out: of a client gone while it is written to, and of bytes that are not
    HTTP. Clients could fill the log with them, and the line of the request says the same.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    own = logging.WARNING if is_quiet else logging.INFO
    for name, level in {LOG.name: own, "uvicorn.error": logging.ERROR, "asyncio": logging.ERROR}.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)
