"""Routes `POST /v1/score` (log-probabilities of texts) and `POST /v1/next` (next-token distribution)."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.decoding.filters import apply_filters, make_history, next_token_distribution, top_indices
from chainrule.evaluation.perplexity import UNITS
from chainrule.lm import Floats
from chainrule.server.errors import ApiError, Limits
from chainrule.server.json_body import json_response
from chainrule.server.logs import add_log_fields
from chainrule.server.models import LoadedModel, ModelRegistry
from chainrule.server.prompt_encoding import EncodedPrompt, encode_lines, encode_prompt, prompt_from_ids
from chainrule.server.schema import NextRequest, ScoreRequest, check_length, check_limit
from chainrule.server.threads import input_size, run_in_thread_if_large
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import PrefixIndex, Tokenizer

UNIT_TOKENIZERS: Final = {"char": "characters", "byte": "bytes"}
"""Tokenizers whose tokens are single characters or bytes, and the name of these units."""


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add `/v1/score` and `/v1/next`."""
    prefix_indices: dict[str, PrefixIndex] = {}

    @app.post("/v1/score")
    async def score(request: ScoreRequest) -> Response:
        """Return the log-probability of each text and of its tokens, including line ends."""
        loaded = await registry.get(request.model)
        texts = [request.input] if isinstance(request.input, str) else request.input
        if len(texts) > registry.limits.prompts:
            raise ApiError(
                400, f"there are {len(texts)} texts; send at most {registry.limits.prompts}", param="input"
            )
        size = input_size(texts)
        encoded = await run_in_thread_if_large(size, _encode_all, texts, loaded, registry.limits)
        log_probs = await _score_all(loaded, encoded)
        results = await run_in_thread_if_large(size, _results, loaded, encoded, log_probs, request.unit)
        add_log_fields(tokens_in=sum(len(text.ids) for text in encoded))
        document = {"object": "list", "model": loaded.name, "results": results}
        return await json_response(8 * size, document)

    @app.post("/v1/next")
    async def next_tokens(request: NextRequest) -> Response:
        """Return the most probable next tokens, before and after the sampling filters."""
        check_limit("top", request.top, registry.limits.top)
        loaded = await registry.get(request.model)
        if request.prefix:
            _check_prefix(loaded)
        prompt = await run_in_thread_if_large(len(request.prompt), _prompt, request, loaded, registry.limits)
        log_p = await loaded.scheduler.next_log_probs(prompt.ids)
        if request.prefix and loaded.name not in prefix_indices:
            prefix_indices[loaded.name] = await asyncio.to_thread(PrefixIndex, loaded.model.tokenizer)
        document = await run_in_thread_if_large(
            len(log_p), _next, request, loaded, prompt, log_p, prefix_indices.get(loaded.name)
        )
        add_log_fields(tokens_in=len(prompt.ids))
        return await json_response(request.top, {"object": "next", "model": loaded.name, **document})


def _encode_all(texts: Sequence[str], loaded: LoadedModel, limits: Limits) -> list[EncodedPrompt]:
    encoded = [encode_lines(text, loaded.model.tokenizer) for text in texts]
    for prompt in encoded:
        check_length("input", len(prompt.ids), limits)
    return encoded


async def _score_all(loaded: LoadedModel, encoded: Sequence[EncodedPrompt]) -> list[Floats]:
    """Return log p of every token; a `stream` model scores the texts as one stream."""
    if loaded.model.lm.context == "stream":
        result = await loaded.scheduler.score([i for text in encoded for i in text.ids])
        ends = np.cumsum([len(text.ids) for text in encoded], dtype=int)
        return list(np.split(result.log_probs, ends[:-1])) if encoded else []
    tasks = [asyncio.ensure_future(loaded.scheduler.score(text.ids)) for text in encoded]
    try:
        return [reading.log_probs for reading in await asyncio.gather(*tasks)]
    finally:
        for task in tasks:
            task.cancel()


def _results(
    loaded: LoadedModel, texts: Sequence[EncodedPrompt], scores: Sequence[Floats], unit: str
) -> list[dict[str, Any]]:
    return [_result(loaded, text, log_probs, unit) for text, log_probs in zip(texts, scores, strict=True)]


def _result(loaded: LoadedModel, text: EncodedPrompt, log_probs: Floats, unit: str) -> dict[str, Any]:
    """Return the fields of `score --json`, the text of each token, and the bits per byte."""
    model = loaded.model
    encoded = encode(Corpus.from_lines([text.text]), model.tokenizer)
    spellings = encoded.spellings
    spelling_log_prob = 0.0
    if spellings:
        spelling_log_prob = -math.inf if model.speller is None else math.fsum(model.speller.log_probs(spellings))
    total = math.fsum(log_probs) if np.isfinite(log_probs).all() else -math.inf
    ends = (*text.offsets[1:], len(text.text))
    return {
        "text": text.text,
        "log_prob": _convert(unit, total),
        "unit": unit,
        "tokens": model.tokenizer.tokens(text.ids),
        "log_probs": [_convert(unit, log_prob) for log_prob in log_probs.tolist()],
        "oov": len(spellings),
        "infinite": total == -math.inf,
        "log_prob_of_spellings": _convert(unit, spelling_log_prob),
        "log_prob_with_spelling": _convert(unit, total + spelling_log_prob),
        "ids": list(text.ids),
        "pieces": [text.text[begin:end] for begin, end in zip(text.offsets, ends, strict=True)],
        "bytes": encoded.bytes,
        "bits_per_byte": _convert("bits", -(total + spelling_log_prob) / encoded.bytes),
    }


def _convert(unit: str, nats: float) -> float | None:
    return UNITS[unit] * nats + 0.0 if math.isfinite(nats) else None  # avoids −0


def _check_prefix(loaded: LoadedModel) -> None:
    """Raise ApiError if the tokens are single characters or bytes, which have no prefixes."""
    kind = loaded.model.tokenizer.config.kind
    if kind in UNIT_TOKENIZERS:
        raise ApiError(
            400,
            f"prefix selects whole tokens, but those of '{loaded.name}' are single {UNIT_TOKENIZERS[kind]}; "
            "leave it out, and append it to prompt",
            param="prefix",
            code="unsupported_value",
        )


def _prompt(request: NextRequest, loaded: LoadedModel, limits: Limits) -> EncodedPrompt:
    tokenizer = loaded.model.tokenizer
    encoded = (
        encode_prompt(request.prompt, tokenizer, is_continued=True)
        if isinstance(request.prompt, str)
        else prompt_from_ids(request.prompt, tokenizer)
    )
    check_length("prompt", len(encoded.ids), limits)
    return encoded


def _next(
    request: NextRequest, loaded: LoadedModel, prompt: EncodedPrompt, log_p: Floats, index: PrefixIndex | None
) -> dict[str, Any]:
    """Return the response; `shaped_probability` is 0 for tokens removed by the filters."""
    tokenizer, vocabulary = loaded.model.tokenizer, loaded.model.lm.vocabulary
    p = np.exp(next_token_distribution(log_p[None], vocabulary)[0])  # (V,) normalized, even if the model is not
    settings = request.decoding()
    shaped_p = np.exp(apply_filters(log_p[None], [make_history(prompt.ids, settings)], settings, vocabulary)[0])
    candidates = index.matches(request.prefix) if index and request.prefix else np.arange(len(p))
    order = candidates[top_indices(p[candidates], request.top)]
    listed = [
        {
            "token": token,
            "id": id_,
            "is_unknown": id_ == tokenizer.unk,
            "text": _appended_text(tokenizer, prompt.last, id_),
            "probability": float(p[id_]),
            "shaped_probability": float(shaped_p[id_]),
        }
        for token, id_ in zip(tokenizer.tokens(order.tolist()), order.tolist(), strict=True)
    ]
    return {
        "context": prompt.text,
        "next": listed,
        "entropy_bits": _entropy_bits(p),
        "shaped_entropy_bits": _entropy_bits(shaped_p),
        "kept": int(np.count_nonzero(shaped_p)),
        "vocab_size": tokenizer.vocab_size,
        "prefix_probability": float(p[candidates].sum()) if request.prefix else 1.0,
    }


def _appended_text(tokenizer: Tokenizer, previous: int | None, id_: int) -> str:
    """Return the text that a token appends to the prompt; `</s>` is a line break, `<s>` is empty."""
    if id_ == tokenizer.eos:
        return "\n"
    return "" if id_ == tokenizer.bos else tokenizer.token_text(previous, id_)


def _entropy_bits(p: Floats) -> float:
    nonzero = p[p > 0]
    return max(0.0, float(-(nonzero * np.log2(nonzero)).sum()))
