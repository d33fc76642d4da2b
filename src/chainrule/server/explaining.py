"""Routes `POST /v1/beam` (beam-search trace) and `POST /v1/context` (per-token explanation of a text)."""

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from chainrule.decoding.continuation import Continuation
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.settings import Decoding
from chainrule.model import Model
from chainrule.server import sights
from chainrule.server.aside import json_response
from chainrule.server.limits import Limits
from chainrule.server.logs import add_log_fields
from chainrule.server.schema import Request, check_length
from chainrule.server.service import ModelRegistry
from chainrule.server.tree import BeamTrace, Node, trace_beam_search

MAX_CHARACTERS: Final = 1 << 16  # in a prompt or text
Result = TypeVar("Result")


class BeamRequest(Request):
    """Body of `POST /v1/beam`: a prompt and the beam-search settings."""

    prompt: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""
    beam_size: Annotated[int, Field(ge=1, le=16)] = 4
    max_tokens: Annotated[int, Field(ge=1, le=64)] = 12
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0


class ContextRequest(Request):
    """Body of `POST /v1/context`: the text to explain."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS)]


def router(service: ModelRegistry) -> APIRouter:
    """Return the router of `/v1/beam` and `/v1/context`."""
    routes = APIRouter()

    @routes.post("/v1/beam", response_model=dict[str, Any])
    async def beam(request: BeamRequest) -> Response:
        """Run a beam search and return its tree: kept, finished and pruned extensions with log-probabilities."""
        loaded = await service.get(request.model)
        document = await run_cancellable(lambda check: _search(loaded.model, request, service.limits, check))
        add_log_fields(tokens_out=len(document["nodes"]))
        size = 16 * len(document["nodes"])  # a node has six fields
        return await json_response(size, {"object": "beam", "model": loaded.name, **document})

    @routes.post("/v1/context", response_model=dict[str, Any])
    async def context(request: ContextRequest) -> Response:
        """Explain each token of a text: surprisal, alternatives, and n-gram order or attention weights."""
        loaded = await service.get(request.model)
        document = await run_cancellable(
            lambda check: sights.describe_context(loaded.model, request.text, lambda what, done, of=None: check())
        )
        add_log_fields(tokens_in=len(document["tokens"]))
        size = 256 * len(document["tokens"])  # fields, alternatives and attention weights of a token
        return await json_response(size, {"object": "context", "model": loaded.name, **document})

    return routes


class _Cancelled(Exception):
    """Raised in the worker thread when the request was cancelled."""


async def run_cancellable(work: Callable[[Callable[[], None]], Result]) -> Result:
    """Run `work(check)` in a thread; `check` raises once the request is cancelled, so `work` must call it often."""
    is_cancelled = threading.Event()

    def check() -> None:
        if is_cancelled.is_set():
            raise _Cancelled

    try:
        return await asyncio.to_thread(work, check)
    except asyncio.CancelledError:
        is_cancelled.set()
        raise


def _search(model: Model, request: BeamRequest, limits: Limits, check: Callable[[], None]) -> dict[str, Any]:
    continuation = Continuation(model.tokenizer, request.prompt)
    check_length("prompt", len(continuation.prompt_ids), limits)
    settings = Decoding(
        strategy="beam",
        beam_size=request.beam_size,
        max_tokens=request.max_tokens,
        length_penalty=request.length_penalty,
    )
    trace = trace_beam_search(model.lm, Prompt(continuation.prompt_ids, model.lm.vocabulary), settings, check)
    return {
        "prompt": continuation.prompt,
        "nodes": [_node_document(model, continuation, node) for node in trace.nodes],
        "best": [
            _hypothesis_document(trace, continuation, rank, settings) for rank in range(len(trace.hypotheses))
        ],
    }


def _node_document(model: Model, continuation: Continuation, node: Node) -> dict[str, Any]:
    before, after = continuation.text(node.ids[:-1]), continuation.text(node.ids)
    return {
        "parent": node.parent,
        "token": model.tokenizer.tokens([node.ids[-1]])[0],
        "text": after[len(before) :] if after.startswith(before) else "",  # "" for incomplete characters
        "log_prob": max(node.log_prob, sights.FLOOR),
        "score": max(node.score, sights.FLOOR),
        "fate": node.status,
    }


def _hypothesis_document(
    trace: BeamTrace, continuation: Continuation, rank: int, settings: Decoding
) -> dict[str, Any]:
    hypothesis = trace.hypotheses[rank]
    return {
        "node": trace.index(hypothesis.ids),
        "text": continuation.text(hypothesis.ids),
        "log_prob": max(math.fsum(hypothesis.log_probs), sights.FLOOR),
        "rank_score": max(hypothesis.normalized_score(settings.length_penalty), sights.FLOOR),
        "is_finished": hypothesis.is_finished,
    }
