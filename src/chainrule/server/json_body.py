"""Middleware for request bodies: size limit and strict JSON (UTF-8, depth, unique keys, finite numbers)."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.errors import printable
from chainrule.server.errors import ApiError, Limits

THREAD_BYTES: Final = 1 << 16  # larger bodies are parsed in a thread
MAX_DRAINED_BYTES: Final = 16 << 20  # of a rejected body, so that its sender reads the error
MAX_NAME_CHARS: Final = 80  # of a name repeated in an error message
JSON_STRING: Final = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'  # a JSON string, terminated or not
STRINGS: Final = re.compile(JSON_STRING, re.DOTALL)
STRINGS_AND_BRACKETS: Final = re.compile(rb"(" + JSON_STRING + rb")\s*+(:?)|[\[{]|[\]}]", re.DOTALL)
SURROGATES: Final = re.compile("[\ud800-\udfff]")


class ClientGone(Exception):
    """The client disconnected."""


class JsonBodyMiddleware:
    """Reject requests whose body is too large or is not a strict JSON object."""

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
        if body:
            _check_content_type(headers.get(b"content-type", b""))
            if len(body) < THREAD_BYTES:
                parse_json(body, self.limits.depth, self.limits.names)
            else:
                await asyncio.to_thread(parse_json, body, self.limits.depth, self.limits.names)
        is_replayed = False

        async def replay() -> Message:
            nonlocal is_replayed
            if is_replayed:
                return await receive()
            is_replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)


async def read_body(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes:
    """Read the body; never hold more than `limit` bytes, whatever Content-Length says."""
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
            raise ClientGone
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
                    raise ClientGone
                dropped += len(message.get("body", b""))
                is_sent = message.get("more_body", False)
    except TimeoutError:
        pass
    raise ApiError(
        413, f"the body is larger than {limit:,} bytes; send less at once", headers={"Connection": "close"}
    )


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
        raise ApiError(400, f"the body is not UTF-8: byte {error.start} begins no character") from None
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
            raise ApiError(400, "a text holds half a character (a lone surrogate)", param=printable_name(path))


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
