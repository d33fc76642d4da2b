"""JSON bodies: requests are read and parsed once, strictly; responses are encoded without blocking the event loop.

Strict JSON is UTF-8 with unique keys, finite numbers, and limited size, depth and number of keys.
"""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import numpy as np
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from chainrule.errors import printable
from chainrule.server.errors import CLOSE, ApiError, Limits
from chainrule.server.threads import run_in_thread_if_large

MAX_DRAINED_BYTES: Final = 16 << 20  # of a rejected body, so that its sender reads the error
MAX_NAME_CHARS: Final = 80  # of a name repeated in an error message
JSON_STRING: Final = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'  # a JSON string, terminated or not
STRINGS: Final = re.compile(JSON_STRING, re.DOTALL)
STRINGS_AND_BRACKETS: Final = re.compile(rb"(" + JSON_STRING + rb")\s*+(:?)|[\[{]|[\]}]", re.DOTALL)
SURROGATES: Final = re.compile("[\ud800-\udfff]")


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


class JsonBodyMiddleware:
    """Read and parse the body for `JsonRoute`; reject bodies that are too large or not a strict JSON object."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = await read_body(receive, headers, self.limits.body_bytes)
        document = None
        if body:
            _check_content_type(headers.get(b"content-type", b""))
            cost = len(body) // 4  # a byte is parsed faster than a character is tokenized
            document = await run_in_thread_if_large(cost, parse_json, body, self.limits.depth, self.limits.names)
        scope.setdefault("state", {}).update(body=body, document=document)
        await self.app(scope, receive, send)


class ParsedRequest(Request):
    """A request whose body was read and parsed by `JsonBodyMiddleware`."""

    async def body(self) -> bytes:
        """Return the body."""
        body: bytes = self.state.body
        return body

    async def json(self) -> Any:
        """Return the parsed document."""
        return self.state.document


class JsonRoute(APIRoute):
    """A route whose parameters are validated from the parsed document; FastAPI would parse the body again."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(ParsedRequest(request.scope, request.receive))

        return handle


async def read_body(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes:
    """Read the body; never buffer more than `limit` bytes, regardless of Content-Length."""
    declared = headers.get(b"content-length", b"0")
    parts: list[bytes] = []
    size = int(declared) if declared.isdigit() and len(declared) < 20 else limit + 1
    if size > limit:
        # A client that sends `Expect` waits for permission and has sent nothing yet.
        await _refuse(receive, limit, is_sent=b"expect" not in headers)
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            await _refuse(receive, limit, is_sent=message.get("more_body", False))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse(receive: Receive, limit: int, *, is_sent: bool) -> None:
    """Raise 413 after draining the body for up to a second: many clients send everything before they read."""
    dropped = 0
    try:
        async with asyncio.timeout(1):
            while is_sent and dropped < MAX_DRAINED_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                dropped += len(message.get("body", b""))
                is_sent = message.get("more_body", False)
    except TimeoutError:
        pass
    raise ApiError(413, f"the body is larger than {limit:,} bytes; send less at once", headers=CLOSE)


def _check_content_type(content_type: bytes) -> None:
    """Accept JSON only: browsers let other sites submit forms and plain text without a preflight (CSRF)."""
    if content_type.split(b";")[0].strip().lower() != b"application/json":
        raise ApiError(415, "the body must be JSON; send it with the header Content-Type: application/json")


def parse_json(body: bytes, depth: int, names: int) -> dict[str, Any]:
    """Parse a strict JSON object: UTF-8, no duplicate keys, no NaN or infinity, limited depth and number of keys.

    Runs in time linear in the size of the body.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not valid UTF-8 at byte {error.start}; encode it as UTF-8") from None
    if _depth(body) > depth:
        field = _field_exceeding_depth(depth, body)
        raise ApiError(400, f"lists and objects are nested more than {depth} levels deep", param=field)
    nonfinite: list[str] = []
    count = 0

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal count
        count += len(pairs)
        if count > names:
            raise ApiError(400, f"the body has more than {names:,} names of fields; send fewer")
        return _dict_without_duplicates(pairs)

    try:
        value = json.loads(
            text,
            object_pairs_hook=read_object,
            parse_constant=lambda name: _parse_number(name, nonfinite),
            parse_float=lambda digits: _parse_number(digits, nonfinite),
        )
    except json.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise ApiError(400, "the body contains an integer of thousands of digits, which is too large") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object, {…}")
    if nonfinite:
        path = next(
            (path for path, item in _leaves(value) if isinstance(item, float) and not math.isfinite(item)), ""
        )
        raise ApiError(
            400,
            f"{nonfinite[0][:MAX_NAME_CHARS]} is not a valid JSON number; give a finite one",
            param=path or None,
        )
    if b"\\u" in body:
        _check_characters(value)
    return value


def _parse_number(literal: str, nonfinite: list[str]) -> float:
    number = float(literal)
    if not math.isfinite(number):
        nonfinite.append(literal)
    return number


def _dict_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        name = printable_name(Counter(name for name, _ in pairs).most_common(1)[0][0])
        raise ApiError(400, f"'{name}' is given twice; give it once", param=name)
    return fields


def _check_characters(value: dict[str, Any]) -> None:
    """Raise ApiError for lone surrogates."""
    for path, item in _leaves(value):
        if SURROGATES.search(path) or (isinstance(item, str) and SURROGATES.search(item)):
            raise ApiError(
                400,
                "a string contains a lone surrogate, which is not valid Unicode; remove it",
                param=printable_name(path),
            )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf value with its dotted path of keys; list indices are not part of the path."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
        if not value:
            yield path, None
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield path, value


def _depth(body: bytes) -> int:
    """Return the maximum nesting depth of brackets outside strings."""
    characters = np.frombuffer(STRINGS.sub(b"", body), dtype=np.uint8)
    opens = (characters == ord("[")) | (characters == ord("{"))
    closes = (characters == ord("]")) | (characters == ord("}"))
    return int(np.max(np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int64), initial=0))


def _field_exceeding_depth(limit: int, body: bytes) -> str | None:
    """Return the top-level key whose value exceeds the depth limit."""
    depth, field = 0, b""
    for match in STRINGS_AND_BRACKETS.finditer(body):
        if match[1] is not None:
            field = match[1] if depth == 1 and match[2] else field
        else:
            depth += 1 if match[0] in b"[{" else -1
        if depth > limit:
            break
    return printable_name(field[1:-1].decode("utf-8", "replace")) or None


def printable_name(name: str) -> str:
    """Shorten and escape a name for an error message: one line of valid UTF-8."""
    return printable(name[:MAX_NAME_CHARS].encode("utf-8", "replace").decode("utf-8"))


FLOOR: Final = -9999.0


def clamp_log_prob(log_prob: float) -> float:
    """Return a log-probability as in JSON, which cannot represent −∞: at least `FLOOR`."""
    return max(float(log_prob), FLOOR)


async def json_response(size: int, document: dict[str, Any]) -> Response:
    """Return a JSON response, encoded in a thread if it is large."""
    return Response(await run_in_thread_if_large(size, encode_json, document), media_type="application/json")


def encode_json(document: Any) -> bytes:
    """Return strict JSON in UTF-8.

    Lists are encoded in slices: `json.dumps` holds the interpreter lock until it returns, so that even in a thread
    a document of megabytes would block the event loop.
    """
    return "".join(_json_parts(document)).encode()


ITEMS_AT_ONCE: Final = 1024


def _json_parts(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values()):
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_dumps(name)}:"
            yield from _json_parts(item)
        yield "}"
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from _json_parts(item)
        yield "]"
    elif isinstance(value, list) and len(value) > ITEMS_AT_ONCE:
        for first in range(0, len(value), ITEMS_AT_ONCE):
            yield "," if first else "["
            yield _dumps(value[first : first + ITEMS_AT_ONCE])[1:-1]
        yield "]"
    else:
        yield _dumps(value)


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
