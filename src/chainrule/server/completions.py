"""Route `POST /v1/completions`, compatible with OpenAI's API."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from chainrule.decoding.settings import Decoding
from chainrule.decoding.spelled import resolve_speller, spawn_spelling_generators
from chainrule.decoding.stop_strings import StopStrings
from chainrule.errors import ConfigError
from chainrule.model import Model
from chainrule.server.aside import input_size, json_response, run_in_thread_if_large
from chainrule.server.choices import CompletionBuilder, Delta, LogprobTable, prompt_logprobs
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits
from chainrule.server.logs import add_log_fields
from chainrule.server.patience import ClosingStreamingResponse
from chainrule.server.pieces import EncodedPrompt, TokenDecoder, encode_prompt, prompt_from_ids
from chainrule.server.scheduler import Job
from chainrule.server.schema import CompletionRequest, as_api_error, check_length
from chainrule.server.service import LoadedModel, ModelRegistry
from chainrule.server.streaming import events, merge
from chainrule.server.writing import DrawSpelling, stop_checks

MAX_PROMPT_LOGPROBS: Final = 1 << 19
"""Maximum number of prompt log-probabilities per response."""

STOP_CHARACTER_COST: Final = 16
"""Processing cost of a character of a stop string relative to one of a prompt."""

YIELD_AFTER: Final = 256
"""Tokens and alternatives after which a request yields to the event loop."""


def router(service: ModelRegistry) -> APIRouter:
    """Return the router of `/v1/completions`."""
    routes = APIRouter()
    fingerprints: dict[str, str | None] = {}

    @routes.post("/v1/completions")
    async def completions(request: CompletionRequest) -> Response:
        """Generate `n` completions of each prompt."""
        request.check(service.limits)
        loaded = await service.get(request.model)
        if loaded.name not in fingerprints:
            fingerprints[loaded.name] = await asyncio.to_thread(fingerprint, loaded.model)
        prepared = await run_in_thread_if_large(
            input_size(request.prompt) + STOP_CHARACTER_COST * input_size(request.stop),
            prepare,
            request,
            loaded,
            service.limits,
            fingerprints[loaded.name],
        )
        if request.stream:
            return ClosingStreamingResponse(
                events(chunks(prepared)), media_type="text/event-stream", headers=UNCACHED
            )
        return await complete_response(prepared)

    return routes


UNCACHED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def fingerprint(model: Model) -> str | None:
    """Return the digest of the model's manifest, which contains the digests of its files; None without one."""
    manifest = Path(model.name) / "manifest.json"
    return f"sha256:{hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]}" if manifest.is_file() else None


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A validated request with tokenized prompts."""

    request: CompletionRequest
    loaded: LoadedModel
    pieces: TokenDecoder
    prompts: tuple[EncodedPrompt, ...]
    stops: StopStrings
    head: dict[str, Any]  # fields common to all documents of the response

    @property
    def prompt_tokens(self) -> int:
        """Number of prompt tokens, including `<s>` if it was given."""
        return sum(len(prompt.ids) + prompt.has_bos for prompt in self.prompts)

    def usage(self, drawn: int) -> dict[str, int]:
        """Return the token counts and add them to the access log."""
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": drawn}
        add_log_fields(tokens_in=self.prompt_tokens, tokens_out=drawn)
        return {**counts, "total_tokens": sum(counts.values())}


def prepare(request: CompletionRequest, loaded: LoadedModel, limits: Limits, digest: str | None) -> PreparedRequest:
    """Tokenize the prompts and reject requests that exceed a limit."""
    tokenizer = loaded.model.tokenizer
    pieces = TokenDecoder(tokenizer)
    prompts = tuple(
        encode_prompt(prompt, tokenizer, is_continued=not request.echo)  # an echoed prompt is scored like any text
        if isinstance(prompt, str)
        else prompt_from_ids(prompt, pieces)
        for prompt in request.prompts
    )
    for encoded in prompts:
        check_length("prompt", len(encoded.ids), limits)
    logprob_count = sum(len(encoded.ids) for encoded in prompts) * ((request.logprobs or 0) + 1)
    if request.echo and request.logprobs is not None and logprob_count * request.samples > MAX_PROMPT_LOGPROBS:
        raise ApiError(
            400,
            f"{logprob_count * request.samples:,} log-probabilities of the prompts are too many for one answer; "
            f"ask for at most {MAX_PROMPT_LOGPROBS:,}: fewer prompts, or fewer logprobs",
            param="logprobs",
        )
    try:
        resolve_speller(loaded.model.lm.vocabulary, request.decoding(), loaded.model.spell)
    except ConfigError as error:
        raise as_api_error(error) from error
    head = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": loaded.name,
        "system_fingerprint": digest,
    }
    return PreparedRequest(request, loaded, pieces, prompts, StopStrings(request.stops), head)


async def deltas(prepared: PreparedRequest) -> AsyncGenerator[Delta]:
    """Yield the new text and tokens of all choices as they are generated."""
    sources = [_complete_prompt(prepared, number, prompt) for number, prompt in enumerate(prepared.prompts)]
    async with aclosing(merge(sources) if len(sources) > 1 else sources[0]) as source:
        async for delta in source:
            yield delta


async def _complete_prompt(prepared: PreparedRequest, number: int, prompt: EncodedPrompt) -> AsyncGenerator[Delta]:
    """Yield the deltas of one prompt's choices."""
    request, scheduler = prepared.request, prepared.loaded.scheduler
    settings, first = request.decoding(), number * request.samples
    spells = _spells(prepared.loaded.model, settings, request.samples)
    choices = [
        CompletionBuilder(
            first + sample,
            prepared.pieces,
            prompt,
            prepared.stops,
            echo=bool(request.echo),
            has_tokens=request.logprobs is not None,
            spell=spells[sample] if spells else None,
        )
        for sample in range(request.samples)
    ]
    if request.echo:
        tokens = await _echo_logprobs(prepared, prompt)
        for choice in choices:
            yield choice.echo(tokens)
    if not settings.max_tokens:
        for choice in choices:
            yield choice.finish_empty()
        return
    job = Job(
        prompt=prompt.ids,
        settings=settings,
        samples=request.samples,
        top=request.logprobs or 0,
        stop_checks=stop_checks(prepared.pieces, prompt.last, prepared.stops, is_unknown_spelled=bool(spells)),
    )
    work = 0
    async with aclosing(scheduler.generate(job)) as tokens_drawn:
        async for token in tokens_drawn:
            choice = choices[token.sample]
            if not choice.is_finished:
                is_spelled = (
                    bool(spells) and token.id == prepared.pieces.tokenizer.unk
                )  # drawing a spelling takes milliseconds
                yield await asyncio.to_thread(choice.add_token, token) if is_spelled else choice.add_token(token)
                if all(builder.is_finished for builder in choices):
                    return
            work += 1 + len(token.top)
            if work > YIELD_AFTER:  # queued tokens are processed without awaiting
                work = 0
                await asyncio.sleep(0)


def _spells(model: Model, settings: Decoding, samples: int) -> list[DrawSpelling]:
    """Return a spelling sampler per sample, seeded as in `generate`; empty if unknown words are not spelled."""
    spell = resolve_speller(model.lm.vocabulary, settings, model.spell)
    if spell is None:
        return []
    return [partial(spell, rng) for rng in spawn_spelling_generators(settings.seed, samples)]


async def _echo_logprobs(prepared: PreparedRequest, prompt: EncodedPrompt) -> LogprobTable:
    """Return the prompt's log-probabilities if the request asks for them."""
    if prepared.request.logprobs is None:
        return LogprobTable()
    reading = await prepared.loaded.scheduler.score(prompt.ids, prepared.request.logprobs)
    cost = len(prompt.ids) * (prepared.request.logprobs + 1) * 16  # microseconds each
    return await run_in_thread_if_large(cost, prompt_logprobs, prepared.pieces, prompt, reading)


async def complete_response(prepared: PreparedRequest) -> Response:
    """Return all choices in one response."""
    request = prepared.request
    texts: list[list[str]] = [[] for _ in range(len(prepared.prompts) * request.samples)]
    tokens = [LogprobTable() for _ in texts]
    finish: list[str | None] = [None] * len(texts)
    drawn = 0
    async with aclosing(deltas(prepared)) as stream:
        async for delta in stream:
            texts[delta.index].append(delta.text)
            tokens[delta.index].extend(delta.tokens)
            finish[delta.index] = delta.finish_reason
            drawn += delta.drawn
    choices = [_choice_document(request, i, "".join(texts[i]), tokens[i], finish[i]) for i in range(len(texts))]
    size = (drawn + prepared.prompt_tokens * request.samples) * (2 + (request.logprobs or 0))
    return await json_response(size, {**prepared.head, "choices": choices, "usage": prepared.usage(drawn)})


async def chunks(prepared: PreparedRequest) -> AsyncGenerator[dict[str, Any]]:
    """Yield one document per delta and, if requested, a last one with the token counts."""
    request = prepared.request
    usage: dict[str, Any] = {"usage": None} if request.has_usage else {}
    drawn = 0
    async with aclosing(deltas(prepared)) as stream:
        async for delta in stream:
            drawn += delta.drawn
            if not delta.is_empty:
                choice = _choice_document(request, delta.index, delta.text, delta.tokens, delta.finish_reason)
                yield {**prepared.head, "choices": [choice], **usage}
    counts = prepared.usage(drawn)
    if request.has_usage:
        yield {**prepared.head, "choices": [], "usage": counts}


def _choice_document(
    request: CompletionRequest, index: int, text: str, tokens: LogprobTable, finish_reason: str | None
) -> dict[str, Any]:
    return {
        "index": index,
        "text": text,
        "logprobs": None if request.logprobs is None else tokens.document(with_top=request.logprobs > 0),
        "finish_reason": finish_reason,
    }
