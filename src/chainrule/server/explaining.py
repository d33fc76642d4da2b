"""POST /v1/beam and POST /v1/context: how a model came to what it says, for those who want to see it.

Lives here: the two requests, checked, worked on beside the event loop, and their documents. Not here: the search
as a tree (tree.py), what a model went by (sights.py).
"""

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
from chainrule.server.logs import note
from chainrule.server.schema import Request, not_too_long
from chainrule.server.service import Service
from chainrule.server.tree import Node, Tree, grow

MOST_CHARACTERS: Final = 1 << 16  # of a prompt or text
Result = TypeVar("Result")


class BeamRequest(Request):
    """`POST /v1/beam`: a prompt and how wide and far to search from it."""

    prompt: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    beam_size: Annotated[int, Field(ge=1, le=16)] = 4
    max_tokens: Annotated[int, Field(ge=1, le=64)] = 12
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0


class ContextRequest(Request):
    """`POST /v1/context`: a text to be read with one model."""

    text: Annotated[str, Field(max_length=MOST_CHARACTERS)]


def router(service: Service) -> APIRouter:
    """The two routes."""
    routes = APIRouter()

    @routes.post("/v1/beam", response_model=dict[str, Any])
    async def beam(request: BeamRequest) -> Response:
        """A beam search as a tree: every extension kept, finished or nearly kept, with its log-probability."""
        loaded = await service.loaded(request.model)
        found = await beside(lambda check: _search(loaded.model, request, service.limits, check))
        note(tokens_out=len(found["nodes"]))
        size = 16 * len(found["nodes"])  # a node has six fields
        return await json_response(size, {"object": "beam", "model": loaded.name, **found})

    @routes.post("/v1/context", response_model=dict[str, Any])
    async def context(request: ContextRequest) -> Response:
        """Each token of a text: its bits, what was expected, and how far back the model looked for it."""
        loaded = await service.loaded(request.model)
        found = await beside(
            lambda check: sights.look(loaded.model, request.text, lambda what, done, of=None: check())
        )
        note(tokens_in=len(found["tokens"]))
        size = 256 * len(found["tokens"])  # a token has its fields, alternatives and rows of attention weights
        return await json_response(size, {"object": "context", "model": loaded.name, **found})

    return routes


class _Abandoned(Exception):
    """Nobody waits for the answer any more."""


async def beside(work: Callable[[Callable[[], None]], Result]) -> Result:
    """Run it in a thread; it is given a check to call often, which ends it once the request is cancelled."""
    is_abandoned = threading.Event()

    def check() -> None:
        if is_abandoned.is_set():
            raise _Abandoned

    try:
        return await asyncio.to_thread(work, check)
    except asyncio.CancelledError:
        is_abandoned.set()
        raise


def _search(model: Model, request: BeamRequest, limits: Limits, check: Callable[[], None]) -> dict[str, Any]:
    continuation = Continuation(model.tokenizer, request.prompt)
    not_too_long("prompt", len(continuation.prompt_ids), limits)
    settings = Decoding(
        strategy="beam",
        beam_size=request.beam_size,
        max_tokens=request.max_tokens,
        length_penalty=request.length_penalty,
    )
    tree = grow(model.lm, Prompt(continuation.prompt_ids, model.lm.vocabulary), settings, check)
    return {
        "prompt": continuation.prompt,
        "nodes": [_node(model, continuation, node) for node in tree.nodes],
        "best": [_found(tree, continuation, place, settings) for place in range(len(tree.found))],
    }


def _node(model: Model, continuation: Continuation, node: Node) -> dict[str, Any]:
    before, after = continuation.text(node.ids[:-1]), continuation.text(node.ids)
    return {
        "parent": node.parent,
        "token": model.tokenizer.tokens([node.ids[-1]])[0],
        "text": after[len(before) :] if after.startswith(before) else "",  # "" also where a character is not whole
        "log_prob": max(node.log_prob, sights.FLOOR),
        "score": max(node.score, sights.FLOOR),
        "fate": node.fate,
    }


def _found(tree: Tree, continuation: Continuation, place: int, settings: Decoding) -> dict[str, Any]:
    hypothesis = tree.found[place]
    return {
        "node": tree.place(hypothesis.ids),
        "text": continuation.text(hypothesis.ids),
        "log_prob": max(math.fsum(hypothesis.log_probs), sights.FLOOR),
        "rank_score": max(hypothesis.rank(settings.length_penalty), sights.FLOOR),
        "is_finished": hypothesis.is_finished,
    }
