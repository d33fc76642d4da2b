"""Route `POST /v1/beam`: beam search with a trace of all extensions."""

import math
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.decoding.beam import BeamTrace, Hypothesis, Node, search
from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.settings import Decoding
from chainrule.model import Model
from chainrule.server.errors import Limits
from chainrule.server.json_body import clamp_log_prob, json_response
from chainrule.server.logs import add_log_fields
from chainrule.server.models import ModelRegistry
from chainrule.server.schema import BeamRequest, check_length
from chainrule.server.threads import run_cancellable


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add `/v1/beam`."""

    @app.post("/v1/beam", response_model=dict[str, Any])
    async def beam(request: BeamRequest) -> Response:
        """Run a beam search and return its tree: kept, finished and pruned extensions with log-probabilities."""
        loaded = await registry.get(request.model)
        document = await run_cancellable(lambda check: _search(loaded.model, request, registry.limits, check))
        add_log_fields(tokens_out=len(document["nodes"]))
        size = 16 * len(document["nodes"])  # a node has six fields
        return await json_response(size, {"object": "beam", "model": loaded.name, **document})


def _search(model: Model, request: BeamRequest, limits: Limits, check: Callable[[], None]) -> dict[str, Any]:
    continuation = Continuation(model.tokenizer, request.prompt)
    check_length("prompt", len(continuation.prompt_ids), limits)
    settings = Decoding(
        strategy="beam",
        beam_size=request.beam_size,
        max_tokens=request.max_tokens,
        length_penalty=request.length_penalty,
    )
    trace = BeamTrace(settings.beam_size)

    def observe(*extensions: Any) -> None:
        check()
        trace(*extensions)

    prompt = Prompt(continuation.prompt_ids, model.lm.vocabulary)
    hypotheses = search(model.lm, prompt, settings, num=settings.beam_size, observer=observe)
    return {
        "prompt": continuation.prompt,
        "nodes": [_node_document(model, continuation, node) for node in trace.nodes],
        "best": [_hypothesis_document(trace, hypothesis, continuation, settings) for hypothesis in hypotheses],
    }


def _node_document(model: Model, continuation: Continuation, node: Node) -> dict[str, Any]:
    before, after = continuation.text(node.ids[:-1]), continuation.text(node.ids)
    return {
        "parent": node.parent,
        "token": model.tokenizer.tokens([node.ids[-1]])[0],
        "text": after[len(before) :] if after.startswith(before) else "",  # "" for incomplete characters
        "log_prob": clamp_log_prob(node.log_prob),
        "score": clamp_log_prob(node.score),
        "fate": node.status,
    }


def _hypothesis_document(
    trace: BeamTrace, hypothesis: Hypothesis, continuation: Continuation, settings: Decoding
) -> dict[str, Any]:
    return {
        "node": trace.index(hypothesis.ids),
        "text": continuation.text(hypothesis.ids),
        "log_prob": clamp_log_prob(math.fsum(hypothesis.log_probs)),
        "rank_score": clamp_log_prob(hypothesis.normalized_score(settings.length_penalty)),
        "is_finished": hypothesis.is_finished,
    }
