"""Route `POST /v1/beam`: beam search with a trace of all extensions."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.decoding.beam import Hypothesis, search_steps
from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.filters import apply_filters, top_indices
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding
from chainrule.lm import AnyModel, Floats, Ids, State
from chainrule.model import Model
from chainrule.server.errors import Limits
from chainrule.server.json_body import clamp_log_prob, json_response
from chainrule.server.logs import add_log_fields
from chainrule.server.models import ModelRegistry
from chainrule.server.schema import BeamRequest, check_length
from chainrule.server.threads import run_cancellable

Status = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True, slots=True)
class Node:
    """One extension of a hypothesis by a token."""

    parent: int | None  # index of the parent node; None: the prompt
    ids: tuple[int, ...]  # generated tokens up to and including this one
    log_prob: float  # nats, of its token given the previous ones
    score: float  # nats, of all generated tokens
    status: Status


@dataclass(frozen=True, slots=True)
class BeamTrace:
    """All nodes, parents before children, and the final hypotheses, best first."""

    nodes: list[Node]
    hypotheses: list[Hypothesis]

    def index(self, ids: tuple[int, ...]) -> int:
        """Return the index of the node with these ids."""
        return next(i for i, node in enumerate(self.nodes) if node.ids == ids)


def trace_beam_search(
    lm: AnyModel, prompt: Prompt, settings: Decoding, check: Callable[[], None] = lambda: None
) -> BeamTrace:
    """Run a beam search and record, at each length, the B best extensions and the B next best (pruned) ones.

    `check` is called before every step and may raise to end the search.
    """
    log_p, state = read_prompt(lm, prompt)
    search = search_steps(log_p, _StateRows(state), prompt, settings, num=settings.beam_size)
    nodes: list[Node] = []
    running: list[int | None] = [None]  # kept nodes in the order of the search's rows
    reply: tuple[Floats, State] | None = None
    while True:
        running = _extend(nodes, running, log_p, prompt, settings)
        try:
            wrapped, ids = search.send(reply)  # type: ignore[arg-type]
        except StopIteration as end:
            return BeamTrace(nodes, end.value)
        check()
        log_p, after = lm.step(wrapped.state, ids)
        reply = (log_p, _StateRows(after))


@dataclass(frozen=True, slots=True)
class _StateRows:
    """Opaque state handed to the search, which only selects rows of it."""

    state: Any

    def select(self, rows: Ids) -> Self:
        return replace(self, state=self.state.select(rows))


def _extend(
    nodes: list[Node], running: list[int | None], log_p: Floats, prompt: Prompt, settings: Decoding
) -> list[int | None]:
    """Add the children of one length; return the kept ones in (row, token) order, as in the search."""
    before = [() if at is None else nodes[at].ids for at in running]
    allowed = apply_filters(log_p, [[*prompt.words, *ids] for ids in before], settings, prompt.vocabulary)
    totals = np.array([0.0 if at is None else nodes[at].score for at in running])[:, None] + allowed  # (K, V)
    flat = totals.reshape(-1)
    B = settings.beam_size
    best = [int(i) for i in top_indices(flat, 2 * B) if flat[i] > -np.inf]
    kept_nodes: list[tuple[int, int]] = []  # (flat index into (K, V), node)
    for rank, at in enumerate(best):
        row, token = divmod(at, totals.shape[1])
        ids = (*before[row], token)
        is_finished = prompt.is_ended_by(ids)
        status: Status = "pruned" if rank >= B else "finished" if is_finished else "kept"
        if status == "kept":
            kept_nodes.append((at, len(nodes)))
        nodes.append(Node(running[row], ids, float(log_p[row, token]), float(flat[at]), status))
    return [node for _, node in sorted(kept_nodes)]


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
        "log_prob": clamp_log_prob(node.log_prob),
        "score": clamp_log_prob(node.score),
        "fate": node.status,
    }


def _hypothesis_document(
    trace: BeamTrace, continuation: Continuation, rank: int, settings: Decoding
) -> dict[str, Any]:
    hypothesis = trace.hypotheses[rank]
    return {
        "node": trace.index(hypothesis.ids),
        "text": continuation.text(hypothesis.ids),
        "log_prob": clamp_log_prob(math.fsum(hypothesis.log_probs)),
        "rank_score": clamp_log_prob(hypothesis.normalized_score(settings.length_penalty)),
        "is_finished": hypothesis.is_finished,
    }
