"""Routes that behave badly on purpose, on a server that is otherwise whole."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from chainrule.errors import InputError
from chainrule.server.app import create_app
from chainrule.server.limits import Limits
from chainrule.server.patience import Stream


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = ""


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    number: int | None = None
    prompt: str | list[int] = ""
    inner: Inner | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the slow routes went through."""

    begun: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)


def workshop(folder: Path, limits: Limits | None = None, **chosen: Any) -> tuple[FastAPI, Seen]:
    """The server with `/try`, `/slow`, `/stream`, `/broken` and `/refused` besides its own routes."""
    app, seen = create_app([folder], limits=limits, **chosen), Seen()

    async def wait() -> None:
        seen.begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.cancelled.set()
            raise

    @app.post("/try")
    async def attempt(asked: Asked) -> dict[str, Any]:
        return {"number": asked.number}

    @app.post("/slow")
    async def slow(asked: Asked) -> dict[str, Any]:
        await wait()
        return {}

    @app.get("/stream")
    async def stream(is_large: bool = False) -> Stream:
        async def events() -> AsyncGenerator[bytes]:
            try:
                yield b"data: first\n\n"
                yield b"data: " + b"x" * (32 << 20 if is_large else 1) + b"\n\n"
                yield b"data: last\n\n"
                seen.begun.set()
                await asyncio.sleep(30)
            finally:
                seen.cancelled.set()

        return Stream(events(), media_type="text/event-stream")

    @app.get("/broken")
    async def broken() -> None:
        raise ValueError("a secret of the client's")

    @app.get("/refused")
    async def refused() -> None:
        raise InputError("this text cannot be read; send another")

    return app, seen
