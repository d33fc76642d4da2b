"""What a request carries, read within its limits and as strict JSON, before anything is made of it.

Lives here: size, encoding, depth, duplicate keys, numbers that are none. Not here: which fields exist (schema.py).
"""

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
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits

LARGE: Final = 1 << 16  # bytes; from here on a thread reads the JSON, and the others are answered meanwhile
DRAINED: Final = 16 << 20  # bytes of a refused body that are read and dropped, so that its sender hears the refusal
SHOWN: Final = 80  # characters of a name that an error repeats
TEXT: Final = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'  # a string of JSON, or what begins as one and never ends
STRINGS: Final = re.compile(TEXT, re.DOTALL)
STRINGS_AND_BRACKETS: Final = re.compile(rb"(" + TEXT + rb")\s*+(:?)|[\[{]|[\]}]", re.DOTALL)
HALVES: Final = re.compile("[\ud800-\udfff]")


class ClientGone(Exception):
    """The client went away; there is nobody to answer."""


class StrictBody:
    """Passes on a request whose body is small enough and, where there must be one, a strict JSON object."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = await read(receive, headers, self.limits.body_bytes)
        if body:
            _check_kind(headers.get(b"content-type", b""))
            if len(body) < LARGE:
                parse(body, self.limits.depth, self.limits.names)
            else:
                await asyncio.to_thread(parse, body, self.limits.depth, self.limits.names)
        is_told = False

        async def again() -> Message:
            nonlocal is_told
            if is_told:
                return await receive()
            is_told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)


async def read(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes:
    """The whole body; never more than the limit in memory, whatever its length claims to be."""
    said = headers.get(b"content-length", b"0")
    parts: list[bytes] = []
    size = int(said) if said.isdigit() and len(said) < 20 else limit + 1
    if size > limit:
        # Who asks first whether to send it has sent nothing yet.
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
    """413, once the sender has had a second to finish: many read no answer before that."""
    dropped = 0
    try:
        async with asyncio.timeout(1):
            while is_sent and dropped < DRAINED:
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


def _check_kind(content_type: bytes) -> None:
    """JSON alone: a page elsewhere can make a browser send forms and plain text here unasked."""
    if content_type.split(b";")[0].strip().lower() != b"application/json":
        raise ApiError(415, "the body must be JSON; send it with the header Content-Type: application/json")


def parse(body: bytes, depth: int, names: int) -> dict[str, Any]:
    """A strict JSON object: UTF-8, no key twice, no NaN, no infinity, not too deep, not too many names of fields.

    Every step takes time proportional to the size of the body.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start} begins no character") from None
    if _depth(body) > depth:
        field = _field_deeper_than(depth, body)
        raise ApiError(400, f"lists and objects lie more than {depth} deep in each other", param=field)
    odd: list[str] = []
    count = 0

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal count
        count += len(pairs)
        if count > names:
            raise ApiError(400, f"the body has more than {names:,} names of fields; send fewer")
        return _object(pairs)

    try:
        value = json.loads(
            text,
            object_pairs_hook=read_object,
            parse_constant=lambda name: _number(name, odd),
            parse_float=lambda digits: _number(digits, odd),
        )
    except json.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise ApiError(400, "the body holds a whole number of thousands of digits; none is so large") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object, {…}")
    if odd:
        path = next(
            (path for path, item in _leaves(value) if isinstance(item, float) and not math.isfinite(item)), ""
        )
        raise ApiError(400, f"{odd[0][:SHOWN]} is no number of JSON; give a finite one", param=path or None)
    if b"\\u" in body:
        _check_characters(value)
    return value


def _number(written: str, odd: list[str]) -> float:
    number = float(written)
    if not math.isfinite(number):
        odd.append(written)
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = shown(Counter(name for name, _ in pairs).most_common(1)[0][0])
        raise ApiError(400, f"'{name}' is given twice; give it once", param=name)
    return found


def _check_characters(value: dict[str, Any]) -> None:
    """Refuse half a character: the escape of a surrogate without its other half."""
    for path, item in _leaves(value):
        if HALVES.search(path) or (isinstance(item, str) and HALVES.search(item)):
            raise ApiError(400, "a text holds half a character (a lone surrogate)", param=shown(path))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, with the names of the fields that lead to it; lists have no names."""
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
    """How deep brackets lie in each other, strings aside."""
    signs = np.frombuffer(STRINGS.sub(b"", body), dtype=np.uint8)
    opens = (signs == ord("[")) | (signs == ord("{"))
    closes = (signs == ord("]")) | (signs == ord("}"))
    return int(np.max(np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int64), initial=0))


def _field_deeper_than(limit: int, body: bytes) -> str | None:
    """The field of the outermost object in which the limit is passed."""
    depth, field = 0, b""
    for found in STRINGS_AND_BRACKETS.finditer(body):
        if found[1] is not None:
            field = found[1] if depth == 1 and found[2] else field
        else:
            depth += 1 if found[0] in b"[{" else -1
        if depth > limit:
            break
    return shown(field[1:-1].decode("utf-8", "replace")) or None


def shown(name: str) -> str:
    """A name as an error repeats it: not too long, in one line, and nothing that UTF-8 cannot hold."""
    return printable(name[:SHOWN].encode("utf-8", "replace").decode("utf-8"))
