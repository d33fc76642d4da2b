"""GET / and the files of the page: plain HTML, CSS and ES modules that lie beside this module in page/.

Lives here: handing out these files and no others, and a passage for the Shannon game. Not here: what the page asks
for (the other routes).
"""

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from chainrule.server.errors import ApiError
from chainrule.server.service import Service
from chainrule.text.default import default_text

FOLDER: Final = Path(__file__).parent / "page"
KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SENTENCE: Final = re.compile(r"(?<=[.:] )(?<!Mr\. )(?<!Mrs\. )[A-Z][a-z]+ [a-z ,]{40,150}\.(?= )")


def router(service: Service) -> APIRouter:
    """The page, its files, and one passage at a time; none of it is part of the API's description."""
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def index() -> Response:
        return _answer("index.html")

    @routes.get("/page/passage")
    async def passage(number: Annotated[int, Query(ge=0, le=1 << 31)] = 0) -> dict[str, str]:
        return {"text": passages()[number % len(passages())]}

    @routes.api_route("/page/{name}", methods=["GET", "HEAD"])
    async def file(name: str) -> Response:
        return _answer(name)

    return routes


@cache
def passages() -> tuple[str, ...]:
    """Return plain sentences of the default text."""
    text = " ".join(default_text())
    return tuple(dict.fromkeys(SENTENCE.findall(text)))


@cache
def _files() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in KINDS}


def _answer(name: str) -> Response:
    path = _files().get(name)
    if path is None:
        raise ApiError(404, f"the page has no file '{name}'")
    return Response(path.read_bytes(), media_type=KINDS[path.suffix], headers={"Cache-Control": "no-cache"})
