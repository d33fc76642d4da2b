"""The application: the routes, what stands around them, and which exception becomes which answer.

Lives here: `create_app`, `/health`, `/v1/models`. Not here: the other routes (one file each), sockets (serving.py).
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from chainrule import __version__
from chainrule.errors import ChainruleError
from chainrule.server.body import StrictBody, shown
from chainrule.server.errors import ApiError
from chainrule.server.frame import Frame
from chainrule.server.keys import LOOPBACK, AccessMiddleware, AccessRules
from chainrule.server.limits import Limits
from chainrule.server.patience import Patience, RunningRequests
from chainrule.server.service import Service

HEALTH: Final = {"status": "ok", "version": __version__}

ROUTES: Final = ("completions", "tokens", "asking", "explaining", "page")
"""Modules of this package, each with `router(service)`."""


def create_app(
    folders: Sequence[Path],
    *,
    limits: Limits | None = None,
    api_key: str | None = None,
    hosts: Collection[str] | None = LOOPBACK,
    device: str = "auto",
) -> FastAPI:
    """The server of some model folders; asked for under other names than `hosts` it refuses, None: any."""
    service = Service(folders, limits, device=device)
    requests = RunningRequests(service.limits.waiting)
    access_rules = AccessRules(api_key, hosts)
    app = FastAPI(
        title="chainrule",
        version=__version__,
        description="Language models of your own text: completions, scores, next tokens.",
        docs_url=None,  # these two pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect has no JSON document, and few clients repeat a POST
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
        lifespan=_closing(service),
        middleware=[
            Middleware(Frame),
            Middleware(AccessMiddleware, rules=access_rules),
            Middleware(Patience, limits=service.limits, requests=requests),
            Middleware(StrictBody, limits=service.limits),
        ],
        exception_handlers=HANDLERS,
        responses={"default": {"description": "An error", "content": {"application/json": {"schema": ERROR}}}},
    )
    app.state.names = service.names()
    app.state.requests = requests
    app.state.access_rules = access_rules
    app.state.service = service
    app.include_router(_models(service))
    for name in ROUTES:
        app.include_router(import_module(f"chainrule.server.{name}").router(service))
    _describe(app)
    return app


def _closing(service: Service) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    return lifespan


def _models(service: Service) -> APIRouter:
    """Whether the server is up, and what it serves."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server is up."""
        return HEALTH

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The models there are."""
        return {"object": "list", "data": [service.description(name) for name in service.names()]}

    @router.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        """One of the models."""
        return service.description(model)

    return router


async def _of_api(request: Request, error: ApiError) -> Response:
    return error.response()


async def _of_http(request: Request, error: HTTPException) -> Response:
    messages = {
        404: f"there is nothing at {shown(request.url.path)}; /openapi.json says what there is",
        405: f"{request.method} is not for {shown(request.url.path)}; see the header Allow",
    }
    message = messages.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _of_chainrule(request: Request, error: ChainruleError) -> Response:
    return ApiError(400, str(error)).response()


async def _of_validation(request: Request, error: RequestValidationError) -> Response:
    found = error.errors()
    field = _field(found[0], error.body)
    if found[0]["type"] == "extra_forbidden":
        message = f"there is no field '{field}'; leave it out"
    else:
        # A field that may be one of several kinds has one complaint of each.
        same = dict.fromkeys(item["msg"] for item in found if _field(item, error.body) == field)
        message = f"{field or 'the body'}: {'; or '.join(list(same)[:4])}"
    return ApiError(400, message, param=field).response()


def _field(complaint: dict[str, Any], body: Any) -> str | None:
    """The field a complaint is about, `outer.inner`: the steps that exist in the body, not the names of kinds."""
    steps: list[str] = []
    here = body
    *path, last = complaint["loc"][1:] or (None,)
    for step in [*path, last]:
        if isinstance(here, dict) and (step in here or (step is last and complaint["type"] == "missing")):
            steps.append(shown(str(step)))
            here = here.get(step)
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
    return ".".join(steps) or None


HANDLERS: Final[dict[Any, Any]] = {
    ApiError: _of_api,
    HTTPException: _of_http,
    ChainruleError: _of_chainrule,
    RequestValidationError: _of_validation,
}

ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def _describe(app: FastAPI) -> None:
    """Take the answers out of the description that are never given: a wrong field is 400, not 422."""
    description = app.openapi()
    for operations in description["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        description.get("components", {}).get("schemas", {}).pop(name, None)
