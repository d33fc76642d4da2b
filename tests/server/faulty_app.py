"""An application with additional routes that are slow, broken or refuse requests."""

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
from chainrule.server.errors import Limits
from chainrule.server.middleware import ClosingStreamingResponse


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = ""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    number: int | None = None
    prompt: str | list[int] = ""
    inner: Inner | None = None


@dataclass(frozen=True, slots=True)
class RouteEvents:
    """Events of the slow routes."""

    begun: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)


def create_faulty_app(folder: Path, limits: Limits | None = None, **settings: Any) -> tuple[FastAPI, RouteEvents]:
    """Create the application with the additional routes `/try`, `/slow`, `/stream`, `/broken` and `/refused`."""
    app, events_seen = create_app([folder], limits=limits, **settings), RouteEvents()

    async def wait() -> None:
        events_seen.begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            events_seen.cancelled.set()
            raise

    @app.post("/try")
    async def attempt(body: Body) -> dict[str, Any]:
        return {"number": body.number}

    @app.post("/slow")
    async def slow(body: Body) -> dict[str, Any]:
        await wait()
        return {}

    @app.get("/stream")
    async def stream(is_large: bool = False) -> ClosingStreamingResponse:
        async def events() -> AsyncGenerator[bytes]:
            try:
                yield b"data: first\n\n"
                yield b"data: " + b"x" * (32 << 20 if is_large else 1) + b"\n\n"
                yield b"data: last\n\n"
                events_seen.begun.set()
                await asyncio.sleep(30)
            finally:
                events_seen.cancelled.set()

        return ClosingStreamingResponse(events(), media_type="text/event-stream")

    @app.get("/broken")
    async def broken() -> None:
        raise ValueError("a secret of the client's")

    @app.get("/refused")
    async def refused() -> None:
        raise InputError("this text cannot be read; send another")

    return app, events_seen
