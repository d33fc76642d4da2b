"""POST /v1/score and POST /v1/next: how probable a text is, and what may come after it.

Lives here: the two routes and their documents. Not here: completions (completions.py), beams (explaining.py).
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from fastapi import APIRouter
from fastapi.responses import Response

from chainrule.decoding.shaping import distribution, shape
from chainrule.errors import ConfigError
from chainrule.lm import Floats
from chainrule.server.aside import aside, extent, json_response
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits
from chainrule.server.logs import note
from chainrule.server.pieces import Given, Pieces, lay_out, prompt_of_ids, prompt_of_text
from chainrule.server.schema import NextRequest, ScoreRequest, as_api_error, not_too_long, within
from chainrule.server.service import Loaded, Service
from chainrule.server.starts import Starts
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode

UNITS: Final = {"nats": 1.0, "bits": 1 / math.log(2), "log10": 1 / math.log(10)}
"""What a natural logarithm is multiplied by to become one of base e, 2 or 10."""

SINGLE: Final = {"char": "characters", "byte": "bytes"}
"""The tokenizers whose tokens are no parts of words, and what these are."""


def router(service: Service) -> APIRouter:
    """The two routes."""
    routes = APIRouter()
    starts: dict[str, Starts] = {}

    @routes.post("/v1/score")
    async def score(request: ScoreRequest) -> Response:
        """The log-probability of each text, token by token, the ends of its lines included."""
        loaded = await service.loaded(request.model)
        texts = [request.input] if isinstance(request.input, str) else request.input
        if len(texts) > service.limits.prompts:
            raise ApiError(
                400, f"there are {len(texts)} texts; send at most {service.limits.prompts}", param="input"
            )
        size = extent(texts)
        laid = await aside(size, _lay_out_all, texts, loaded, service.limits)
        read = await _read(loaded, laid)
        results = await aside(size, _results, loaded, laid, read, request.unit)
        note(tokens_in=sum(len(given.ids) for given in laid))
        document = {"object": "list", "model": loaded.name, "results": results}
        return await json_response(8 * size, document)

    @routes.post("/v1/next")
    async def next_tokens(request: NextRequest) -> Response:
        """The most probable next tokens, before and after the filters of a draw."""
        within("top", request.top, service.limits.top)
        loaded = await service.loaded(request.model)
        if request.prefix:
            _check_prefix(loaded)
        given = await aside(len(request.prompt), _prompt, request, loaded, service.limits)
        log_p = await loaded.scheduler.after(given.ids)
        if request.prefix and loaded.name not in starts:
            starts[loaded.name] = await asyncio.to_thread(Starts, loaded.model.tokenizer)
        found = await aside(len(log_p), _next, request, loaded, given, log_p, starts.get(loaded.name))
        note(tokens_in=len(given.ids))
        return await json_response(request.top, {"object": "next", "model": loaded.name, **found})

    return routes


def _lay_out_all(texts: Sequence[str], loaded: Loaded, limits: Limits) -> list[Given]:
    laid = [lay_out(text, loaded.model.tokenizer) for text in texts]
    for given in laid:
        not_too_long("input", len(given.ids), limits)
    return laid


async def _read(loaded: Loaded, laid: Sequence[Given]) -> list[Floats]:
    """Log p of every token; a `stream` model reads the texts one after another as one stream."""
    if loaded.model.lm.context == "stream":
        everything = await loaded.scheduler.read([i for given in laid for i in given.ids])
        ends = np.cumsum([len(given.ids) for given in laid], dtype=int)
        return list(np.split(everything.log_probs, ends[:-1])) if laid else []
    tasks = [asyncio.ensure_future(loaded.scheduler.read(given.ids)) for given in laid]
    try:
        return [reading.log_probs for reading in await asyncio.gather(*tasks)]
    finally:
        for task in tasks:
            task.cancel()


def _results(loaded: Loaded, laid: Sequence[Given], read: Sequence[Floats], unit: str) -> list[dict[str, Any]]:
    return [_result(loaded, given, log_probs, unit) for given, log_probs in zip(laid, read, strict=True)]


def _result(loaded: Loaded, given: Given, log_probs: Floats, unit: str) -> dict[str, Any]:
    """What `score --json` says of a line, the pieces of the text by token, and its bits per byte."""
    model = loaded.model
    encoded = encode(Corpus.from_lines([given.text]), model.tokenizer)
    spellings = encoded.spellings
    of_spellings = 0.0
    if spellings:
        of_spellings = -math.inf if model.speller is None else math.fsum(model.speller.log_probs(spellings))
    total = math.fsum(log_probs) if np.isfinite(log_probs).all() else -math.inf
    ends = (*given.begins[1:], len(given.text))
    return {
        "text": given.text,
        "log_prob": _in(unit, total),
        "unit": unit,
        "tokens": model.tokenizer.tokens(given.ids),
        "log_probs": [_in(unit, log_prob) for log_prob in log_probs.tolist()],
        "oov": len(spellings),
        "infinite": total == -math.inf,
        "log_prob_of_spellings": _in(unit, of_spellings),
        "log_prob_with_spelling": _in(unit, total + of_spellings),
        "ids": list(given.ids),
        "pieces": [given.text[begin:end] for begin, end in zip(given.begins, ends, strict=True)],
        "bytes": encoded.bytes,
        "bits_per_byte": _in("bits", -(total + of_spellings) / encoded.bytes),
    }


def _in(unit: str, nats: float) -> float | None:
    return UNITS[unit] * nats + 0.0 if math.isfinite(nats) else None  # −0 bits are 0


def _check_prefix(loaded: Loaded) -> None:
    """Refuse to choose by their beginning among tokens that have nothing behind it."""
    kind = loaded.model.tokenizer.config.kind
    if kind in SINGLE:
        raise ApiError(
            400,
            f"prefix chooses among whole tokens, and those of '{loaded.name}' are single {SINGLE[kind]}; "
            "leave it out, and put what was typed at the end of prompt",
            param="prefix",
            code="unsupported_value",
        )


def _prompt(request: NextRequest, loaded: Loaded, limits: Limits) -> Given:
    tokenizer = loaded.model.tokenizer
    given = (
        prompt_of_text(request.prompt, tokenizer, is_continued=True)
        if isinstance(request.prompt, str)
        else prompt_of_ids(request.prompt, Pieces(tokenizer))
    )
    not_too_long("prompt", len(given.ids), limits)
    return given


def _next(
    request: NextRequest, loaded: Loaded, given: Given, log_p: Floats, starts: Starts | None
) -> dict[str, Any]:
    """The document: `shaped_probability` is 0 for what the filters cut."""
    tokenizer, vocabulary = loaded.model.tokenizer, loaded.model.lm.vocabulary
    try:
        settings = request.decoding()
    except ConfigError as error:
        raise as_api_error(error) from error
    own = np.exp(
        distribution(log_p[None], vocabulary)[0]
    )  # (V,) as `score` gives it, also of an unnormalised model
    shaped = np.exp(shape(log_p[None], [given.ids], settings, vocabulary)[0])
    chosen = starts.beginning_with(request.prefix) if starts and request.prefix else np.arange(len(own))
    order = chosen[_highest(own[chosen], request.top)]
    pieces = Pieces(tokenizer)
    listed = [
        {
            "token": token,
            "id": id_,
            "is_unknown": id_ == tokenizer.unk,
            "text": _added(pieces, given.last, id_),
            "probability": float(own[id_]),
            "shaped_probability": float(shaped[id_]),
        }
        for token, id_ in zip(tokenizer.tokens(order.tolist()), order.tolist(), strict=True)
    ]
    return {
        "context": given.text,
        "next": listed,
        "entropy_bits": _entropy_bits(own),
        "shaped_entropy_bits": _entropy_bits(shaped),
        "kept": int(np.count_nonzero(shaped)),
        "vocab_size": tokenizer.vocab_size,
        "prefix_probability": float(own[chosen].sum()) if request.prefix else 1.0,
    }


def _added(pieces: Pieces, previous: int | None, id_: int) -> str:
    """What the token adds to the prompt: `</s>` is a line break there, and `<s>` is nothing."""
    if id_ == pieces.tokenizer.eos:
        return "\n"
    return "" if id_ == pieces.tokenizer.bos else pieces.text(previous, id_)


def _highest(p: Floats, top: int) -> Any:
    """Where the largest stand, the largest first, the lowest place first among equals."""
    if top < len(p):
        least = np.partition(p, len(p) - top)[len(p) - top]
        places = np.flatnonzero(p >= least)
    else:
        places = np.arange(len(p))
    return places[np.argsort(-p[places], kind="stable")][:top]


def _entropy_bits(p: Floats) -> float:
    kept = p[p > 0]
    return max(0.0, float(-(kept * np.log2(kept)).sum()))
