"""POST /v1/completions, in OpenAI's shape.

Lives here: from a request to the jobs of the scheduler, and the documents around what they give. Not here: the
fields of a request (schema.py), one completion (choices.py), the stream (streaming.py).
"""

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
from chainrule.decoding.spelled import required_spell, spelling_generators
from chainrule.decoding.stop_strings import StopStrings
from chainrule.errors import ConfigError
from chainrule.model import Model
from chainrule.server.aside import aside, extent, json_response
from chainrule.server.choices import Choice, Delta, Tokens, prompt_tokens
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits
from chainrule.server.logs import note
from chainrule.server.patience import Stream
from chainrule.server.pieces import Given, Pieces, prompt_of_ids, prompt_of_text
from chainrule.server.scheduler import Job
from chainrule.server.schema import CompletionRequest, as_api_error, not_too_long
from chainrule.server.service import Loaded, Service
from chainrule.server.streaming import events, merged
from chainrule.server.writing import Spell, stop_checks

MOST_ALTERNATIVES: Final = 1 << 19
"""Log-probabilities told of the prompts of one request."""

STOP_WORK: Final = 16
"""A character of a stop string takes so many times as long as one of a prompt, which is only encoded."""

WORK_AT_ONCE: Final = 256
"""Tokens and alternatives after which a request lets the event loop serve others."""


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter()
    fingerprints: dict[str, str | None] = {}

    @routes.post("/v1/completions")
    async def completions(request: CompletionRequest) -> Response:
        """Go on with each prompt, `n` times."""
        request.check(service.limits)
        loaded = await service.loaded(request.model)
        if loaded.name not in fingerprints:
            fingerprints[loaded.name] = await asyncio.to_thread(fingerprint, loaded.model)
        asked = await aside(
            extent(request.prompt) + STOP_WORK * extent(request.stop),
            prepare,
            request,
            loaded,
            service.limits,
            fingerprints[loaded.name],
        )
        if request.stream:
            return Stream(events(chunks(asked)), media_type="text/event-stream", headers=UNCACHED)
        return await whole(asked)

    return routes


UNCACHED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def fingerprint(model: Model) -> str | None:
    """The digest of the model folder's manifest, which holds those of its files."""
    manifest = Path(model.name) / "manifest.json"
    return f"sha256:{hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]}" if manifest.is_file() else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, checked, with its prompts in tokens."""

    request: CompletionRequest
    loaded: Loaded
    pieces: Pieces
    prompts: tuple[Given, ...]
    stops: StopStrings
    head: dict[str, Any]  # what every document of the answer begins with

    @property
    def prompt_tokens(self) -> int:
        """All tokens that were given, `<s>` where it was."""
        return sum(len(given.ids) + given.has_bos for given in self.prompts)

    def usage(self, drawn: int) -> dict[str, int]:
        """The counts of tokens."""
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": drawn}
        note(tokens_in=self.prompt_tokens, tokens_out=drawn)
        return {**counts, "total_tokens": sum(counts.values())}


def prepare(request: CompletionRequest, loaded: Loaded, limits: Limits, digest: str | None) -> Asked:
    """Cut the prompts into tokens and refuse what is too much."""
    tokenizer = loaded.model.tokenizer
    pieces = Pieces(tokenizer)
    prompts = tuple(
        prompt_of_text(prompt, tokenizer, is_continued=not request.echo)  # an echoed prompt is scored as any text
        if isinstance(prompt, str)
        else prompt_of_ids(prompt, pieces)
        for prompt in request.prompts
    )
    for given in prompts:
        not_too_long("prompt", len(given.ids), limits)
    told = sum(len(given.ids) for given in prompts) * ((request.logprobs or 0) + 1)
    if request.echo and request.logprobs is not None and told * request.samples > MOST_ALTERNATIVES:
        raise ApiError(
            400,
            f"{told * request.samples:,} log-probabilities of the prompts are too many for one answer; "
            f"ask for at most {MOST_ALTERNATIVES:,}: fewer prompts, or fewer logprobs",
            param="logprobs",
        )
    try:
        required_spell(loaded.model.lm.vocabulary, request.decoding(), loaded.model.spell)
    except ConfigError as error:
        raise as_api_error(error) from error
    head = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": loaded.name,
        "system_fingerprint": digest,
    }
    return Asked(request, loaded, pieces, prompts, StopStrings(request.stops), head)


async def deltas(asked: Asked) -> AsyncGenerator[Delta]:
    """What is new of any choice, as it comes."""
    sources = [_of_prompt(asked, number, given) for number, given in enumerate(asked.prompts)]
    async with aclosing(merged(sources) if len(sources) > 1 else sources[0]) as source:
        async for delta in source:
            yield delta


async def _of_prompt(asked: Asked, number: int, given: Given) -> AsyncGenerator[Delta]:
    """The choices of one prompt."""
    request, scheduler = asked.request, asked.loaded.scheduler
    settings, first = request.decoding(), number * request.samples
    spells = _spells(asked.loaded.model, settings, request.samples)
    choices = [
        Choice(
            first + sample,
            asked.pieces,
            given,
            asked.stops,
            echo=bool(request.echo),
            has_tokens=request.logprobs is not None,
            spell=spells[sample] if spells else None,
        )
        for sample in range(request.samples)
    ]
    if request.echo:
        tokens = await _echoed(asked, given)
        for choice in choices:
            yield choice.opening(tokens)
    if not settings.max_tokens:
        for choice in choices:
            yield choice.closing()
        return
    job = Job(
        prompt=given.ids,
        settings=settings,
        samples=request.samples,
        top=request.logprobs or 0,
        stop_checks=stop_checks(asked.pieces, given.last, asked.stops, is_unknown_spelled=bool(spells)),
    )
    work = 0
    async with aclosing(scheduler.generate(job)) as draws:
        async for drawn in draws:
            choice = choices[drawn.sample]
            if not choice.is_over:
                is_spelled = (
                    bool(spells) and drawn.id == asked.pieces.tokenizer.unk
                )  # a spelling takes milliseconds
                yield await asyncio.to_thread(choice.take, drawn) if is_spelled else choice.take(drawn)
                if all(each.is_over for each in choices):
                    return
            work += 1 + len(drawn.top)
            if work > WORK_AT_ONCE:  # tokens that are ready are handed out without waiting
                work = 0
                await asyncio.sleep(0)


def _spells(model: Model, settings: Decoding, samples: int) -> list[Spell]:
    """What draws the spellings of each sample's unknown words, as `generate` draws them; empty where none are."""
    spell = required_spell(model.lm.vocabulary, settings, model.spell)
    if spell is None:
        return []
    return [partial(spell, rng) for rng in spelling_generators(settings.seed, samples)]


async def _echoed(asked: Asked, given: Given) -> Tokens:
    """The tokens of a prompt, where they are asked for."""
    if asked.request.logprobs is None:
        return Tokens()
    reading = await asked.loaded.scheduler.read(given.ids, asked.request.logprobs)
    told = len(given.ids) * (asked.request.logprobs + 1) * 16  # each takes some microseconds
    return await aside(told, prompt_tokens, asked.pieces, given, reading)


async def whole(asked: Asked) -> Response:
    """All choices in one document."""
    request = asked.request
    texts: list[list[str]] = [[] for _ in range(len(asked.prompts) * request.samples)]
    tokens = [Tokens() for _ in texts]
    finish: list[str | None] = [None] * len(texts)
    drawn = 0
    async with aclosing(deltas(asked)) as found:
        async for delta in found:
            texts[delta.index].append(delta.text)
            tokens[delta.index].extend(delta.tokens)
            finish[delta.index] = delta.finish_reason
            drawn += delta.drawn
    choices = [_choice(request, i, "".join(texts[i]), tokens[i], finish[i]) for i in range(len(texts))]
    size = (drawn + asked.prompt_tokens * request.samples) * (2 + (request.logprobs or 0))
    return await json_response(size, {**asked.head, "choices": choices, "usage": asked.usage(drawn)})


async def chunks(asked: Asked) -> AsyncGenerator[dict[str, Any]]:
    """A document for each piece of any choice, and at the end the counts where they are asked for."""
    request = asked.request
    usage: dict[str, Any] = {"usage": None} if request.has_usage else {}
    drawn = 0
    async with aclosing(deltas(asked)) as found:
        async for delta in found:
            drawn += delta.drawn
            if not delta.is_empty:
                choice = _choice(request, delta.index, delta.text, delta.tokens, delta.finish_reason)
                yield {**asked.head, "choices": [choice], **usage}
    counts = asked.usage(drawn)
    if request.has_usage:
        yield {**asked.head, "choices": [], "usage": counts}


def _choice(
    request: CompletionRequest, index: int, text: str, tokens: Tokens, finish_reason: str | None
) -> dict[str, Any]:
    return {
        "index": index,
        "text": text,
        "logprobs": None if request.logprobs is None else tokens.document(with_top=request.logprobs > 0),
        "finish_reason": finish_reason,
    }
