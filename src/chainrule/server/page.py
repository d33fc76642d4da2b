"""Routes of the web page: its static files (page/) and passages for the Shannon game."""

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from fastapi import FastAPI, Query
from fastapi.responses import Response

from chainrule.server.errors import ApiError
from chainrule.server.models import ModelRegistry
from chainrule.text.splits import default_text

FOLDER: Final = Path(__file__).parent / "page"
MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SENTENCE: Final = re.compile(r"(?<=[.:] )(?<!Mr\. )(?<!Mrs\. )[A-Z][a-z]+ [a-z ,]{40,150}\.(?= )")


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add the routes of the page, which are not in the OpenAPI schema."""

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> Response:
        return _file_response("index.html")

    @app.get("/page/passage", include_in_schema=False)
    async def passage(number: Annotated[int, Query(ge=0, le=1 << 31)] = 0) -> dict[str, str]:
        return {"text": passages()[number % len(passages())]}

    @app.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def file(name: str) -> Response:
        return _file_response(name)


@cache
def passages() -> tuple[str, ...]:
    """Return sentences of the built-in text that contain only letters, blanks and commas."""
    text = " ".join(default_text())
    return tuple(dict.fromkeys(SENTENCE.findall(text)))


@cache
def _files() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES}


def _file_response(name: str) -> Response:
    path = _files().get(name)
    if path is None:
        raise ApiError(404, f"the page has no file '{name}'")
    return Response(path.read_bytes(), media_type=MEDIA_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})
