"""FastAPI application: middleware, routes and exception handlers."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from chainrule import __version__
from chainrule.errors import ChainruleError, ShardError
from chainrule.server.errors import ApiError, Limits
from chainrule.server.json_body import JsonBodyMiddleware, JsonRoute, printable_name
from chainrule.server.logs import LOG
from chainrule.server.middleware import (
    LOOPBACK,
    AccessMiddleware,
    AccessRules,
    RequestLogMiddleware,
    RunningRequests,
    TimeoutMiddleware,
)
from chainrule.server.models import ModelRegistry

HEALTH: Final = {"status": "ok", "version": __version__}

ROUTES: Final = (
    "routes.completions",
    "routes.tokenize",
    "routes.score",
    "routes.beam",
    "routes.context",
    "routes.shards",
    "page",
)
"""Modules of this package that define `add_routes(app, registry)`, in the order of the API description."""


def create_app(
    folders: Sequence[Path],
    *,
    limits: Limits | None = None,
    api_key: str | None = None,
    hosts: Collection[str] | None = LOOPBACK,
    device: str = "auto",
    shard_servers: Sequence[str] = (),
    shard_server_key: str | None = None,
) -> FastAPI:
    """Create the application for these model folders.

    Requests whose Host header is not in `hosts` are rejected; None allows any. Sharded models are connected to
    `shard_servers`.
    """
    registry = ModelRegistry(
        folders, limits, device=device, shard_servers=shard_servers, shard_server_key=shard_server_key
    )
    requests = RunningRequests(registry.limits.waiting)
    access_rules = AccessRules(api_key, hosts)
    app = FastAPI(
        title="chainrule",
        version=__version__,
        description="Language models: completions, scores, next-token probabilities.",
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # a redirect has no JSON body, and few clients repeat a POST
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
        lifespan=_lifespan(registry),
        middleware=[
            Middleware(RequestLogMiddleware),
            Middleware(AccessMiddleware, rules=access_rules),
            Middleware(TimeoutMiddleware, limits=registry.limits, requests=requests),
            Middleware(JsonBodyMiddleware, limits=registry.limits),
        ],
        exception_handlers=HANDLERS,
        responses={"default": {"description": "An error", "content": {"application/json": {"schema": ERROR}}}},
    )
    app.router.route_class = JsonRoute
    app.state.names = registry.names()
    app.state.requests = requests
    app.state.access_rules = access_rules
    app.state.registry = registry
    _add_model_routes(app, registry)
    for name in ROUTES:
        import_module(f"chainrule.server.{name}").add_routes(app, registry)
    _drop_validation_responses(app)
    return app


def _lifespan(registry: ModelRegistry) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await registry.close()

    return lifespan


def _add_model_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add `/health` and `/v1/models`."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Health check."""
        return HEALTH

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """List the models."""
        return {"object": "list", "data": [registry.description(name) for name in registry.names()]}

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        """Describe a model."""
        return registry.description(model)


async def _handle_api_error(request: Request, error: ApiError) -> Response:
    return error.response()


async def _handle_http_error(request: Request, error: HTTPException) -> Response:
    messages = {
        404: f"no such path {printable_name(request.url.path)}; see /openapi.json",
        405: f"{request.method} is not allowed for {printable_name(request.url.path)}; see the header Allow",
    }
    message = messages.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _handle_chainrule_error(request: Request, error: ChainruleError) -> Response:
    return ApiError(400, str(error)).response()


async def _handle_shard_error(request: Request, error: ShardError) -> Response:
    LOG.error("%s", error)
    message = "a part of the model is not available; the server's log says why"
    return ApiError(503, message, code="shard_unavailable").response()


async def _handle_validation_error(request: Request, error: RequestValidationError) -> Response:
    errors = error.errors()
    field = _field(errors[0], error.body)
    if errors[0]["type"] == "extra_forbidden":
        message = f"there is no field '{field}'; leave it out"
    else:
        # A field of a union type has one error per member.
        messages = dict.fromkeys(item["msg"] for item in errors if _field(item, error.body) == field)
        message = f"{field or 'the body'}: {'; or '.join(list(messages)[:4])}"
    return ApiError(400, message, param=field).response()


def _field(error: dict[str, Any], body: Any) -> str | None:
    """Return the dotted path of the field of a validation error, without the names of union members."""
    steps: list[str] = []
    value = body
    *path, last = error["loc"][1:] or (None,)
    for step in [*path, last]:
        if isinstance(value, dict) and (step in value or (step is last and error["type"] == "missing")):
            steps.append(printable_name(str(step)))
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
    return ".".join(steps) or None


HANDLERS: Final[dict[Any, Any]] = {
    ApiError: _handle_api_error,
    HTTPException: _handle_http_error,
    ChainruleError: _handle_chainrule_error,
    ShardError: _handle_shard_error,
    RequestValidationError: _handle_validation_error,
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


def _drop_validation_responses(app: FastAPI) -> None:
    """Remove the 422 responses from the OpenAPI schema; validation errors have status 400."""
    description = app.openapi()
    for operations in description["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        description.get("components", {}).get("schemas", {}).pop(name, None)
