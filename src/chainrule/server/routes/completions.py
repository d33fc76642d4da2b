"""Route `POST /v1/completions`, compatible with OpenAI's API.

`prepare` tokenizes the prompts; `deltas` yields the new text and tokens of every choice, which `CompletionBuilder`
makes from the tokens of the worker; `complete_response` joins the deltas, `chunks` and `events` stream them.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.decoding.detokenizer import (
    DrawSpelling,
    IncrementalDetokenizer,
    SpellingSampler,
    StopStrings,
    resolve_speller,
    spawn_spelling_generators,
    stop_check,
)
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleError, ConfigError
from chainrule.model import Model
from chainrule.server.errors import ApiError, Limits
from chainrule.server.json_body import clamp_log_prob, encode_json, json_response
from chainrule.server.logs import add_log_fields
from chainrule.server.middleware import ClosingStreamingResponse
from chainrule.server.models import LoadedModel, ModelRegistry
from chainrule.server.prompt_encoding import EncodedPrompt, encode_prompt, prompt_from_ids
from chainrule.server.schema import CompletionRequest, check_length
from chainrule.server.slots import FinishReason, Job, ScoreResult, TokenResult, Top
from chainrule.server.threads import input_size, run_in_thread_if_large
from chainrule.tokenizers.config import BOS
from chainrule.tokenizers.tokenizer import Tokenizer

T = TypeVar("T")

MAX_PROMPT_LOGPROBS: Final = 1 << 19
"""Maximum number of prompt log-probabilities per response."""

STOP_CHARACTER_COST: Final = 16
"""Processing cost of a character of a stop string relative to one of a prompt."""

YIELD_AFTER: Final = 256
"""Tokens and alternatives after which a request yields to the event loop."""

MERGE_BUFFER: Final = 64
"""Items buffered between the generators of several prompts and their consumer."""

DONE: Final = b"data: [DONE]\n\n"
UNCACHED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(slots=True)
class LogprobTable:
    """Tokens, log-probabilities, alternatives and offsets, as in the field `logprobs`."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, text: str, log_prob: float | None, top: dict[str, float] | None, offset: int) -> None:
        """Append a token."""
        self.tokens.append(text)
        self.token_logprobs.append(log_prob)
        self.top_logprobs.append(top)
        self.text_offset.append(offset)

    def extend(self, other: "LogprobTable") -> None:
        """Append the tokens of another table."""
        for name in self.__slots__:
            getattr(self, name).extend(getattr(other, name))

    def document(self, with_top: bool) -> dict[str, Any]:
        """Return the JSON document; `top_logprobs` is null unless requested."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs if with_top else None,
            "text_offset": self.text_offset,
        }


@dataclass(frozen=True, slots=True)
class Delta:
    """New text and tokens of one choice."""

    index: int
    text: str
    tokens: LogprobTable
    finish_reason: FinishReason | None = None
    drawn: int = 0  # tokens generated, including those not sent

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.text and not self.tokens.tokens and self.finish_reason is None


class CompletionBuilder:
    """Builds one completion token by token.

    A token is sent together with the text in which it starts. Tokens of a stop string are not sent; `</s>`, which
    has no text, always is.

    Attributes:
        is_finished: Whether a stop string is complete or the last token was added.

    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        prompt: EncodedPrompt,
        stops: StopStrings,
        *,
        echo: bool,
        has_tokens: bool,
        spell: DrawSpelling | None = None,
    ) -> None:
        self.is_finished = False
        self._has_tokens = has_tokens
        self._index = index
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._detokenizer = IncrementalDetokenizer(tokenizer, prompt.last, stops, spell)
        self._start = len(prompt.text) if echo else 0  # offset of the completion in the text sent
        self._generated: list[TokenResult] = []
        self._tokens_sent = 0

    def echo(self, tokens: LogprobTable) -> Delta:
        """Return the delta that echoes the prompt and its tokens."""
        return Delta(self._index, self._prompt.text, tokens)

    def finish_empty(self) -> Delta:
        """Return the only delta of a completion without tokens."""
        return Delta(self._index, "", LogprobTable(), "length")

    def add_token(self, token: TokenResult) -> Delta:
        """Add a token; return the text that no later token can change, or all of it after the last token."""
        self._generated.append(token)
        self._detokenizer.add(token.id)
        if token.finish is None and self._detokenizer.stop_start is None:
            return self._delta(None)
        self.is_finished = True
        self._detokenizer.end()
        is_stopped = token.finish == "stop" or self._detokenizer.stop_start is not None
        return self._delta("stop" if is_stopped else "length")

    def _delta(self, finish: FinishReason | None) -> Delta:
        """Return the stable text not yet sent and the tokens that start in it."""
        settled, text, tokens = self._detokenizer.stable_length, self._detokenizer.release(), LogprobTable()
        eos = self._tokenizer.eos
        while self._has_tokens and self._tokens_sent < len(self._generated):
            token = self._generated[self._tokens_sent]
            start = self._detokenizer.offsets[self._tokens_sent]
            if start >= settled and token.id != eos:
                break
            before = self._generated[self._tokens_sent - 1].id if self._tokens_sent else self._prompt.last
            spelled = self._detokenizer.spelled.get(self._tokens_sent)
            name, top = name_alternatives(self._tokenizer, before, token.id, token.log_prob, token.top, spelled)
            tokens.add(name, clamp_log_prob(token.log_prob), top, self._start + start)
            self._tokens_sent += 1
        return Delta(self._index, text, tokens, finish, drawn=1)


def prompt_logprobs(tokenizer: Tokenizer, prompt: EncodedPrompt, reading: ScoreResult) -> LogprobTable:
    """Return the log-probabilities of a prompt; as in OpenAI's API, the first token has none."""
    table = LogprobTable()
    if prompt.has_bos:
        table.add(BOS, None, None, 0)
    before = None
    for position, id_ in enumerate(prompt.ids):
        log_prob = float(reading.log_probs[position])
        top = reading.top[position] if reading.top else ()
        name, alternatives = name_alternatives(tokenizer, before, id_, log_prob, top)
        is_first = not table.tokens
        table.add(
            name,
            None if is_first else clamp_log_prob(log_prob),
            None if is_first else alternatives,
            prompt.offsets[position],
        )
        before = id_
    return table


def name_alternatives(
    tokenizer: Tokenizer,
    before: int | None,
    id_: int,
    log_prob: float,
    top: Top,
    spelled: str | None = None,
) -> tuple[str, dict[str, float]]:
    """Return the text of a token and the log-probabilities of its alternatives by text, including its own.

    `spelled` replaces the text of an unknown word. Of alternatives with equal text, the most probable is returned.
    """
    name = tokenizer.token_text(before, id_) if spelled is None else spelled
    log_probs: dict[str, float] = {}
    for other, value in top:
        log_probs.setdefault(name if other == id_ else tokenizer.token_text(before, other), clamp_log_prob(value))
    log_probs.setdefault(name, clamp_log_prob(log_prob))
    return name, log_probs


async def merge(sources: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """Interleave several generators in order of arrival; closing it or an error closes all of them."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(MERGE_BUFFER)
    tasks = [asyncio.create_task(_drain(source, queue)) for source in sources]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _End:
    """Marker for the end of a source."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def _drain(source: AsyncGenerator[T], queue: "asyncio.Queue[T | _End]") -> None:
    end = _End()
    try:
        async with aclosing(source):
            async for item in source:
                await queue.put(item)
    except Exception as error:
        end = _End(error)
    await queue.put(end)


def event(document: dict[str, Any]) -> bytes:
    """Encode a document as a server-sent event."""
    return b"data: " + encode_json(document) + b"\n\n"


def _document_size(document: dict[str, Any]) -> int:
    """Estimate the number of characters and log-probabilities in a document."""
    size = 0
    for choice in document.get("choices", ()):
        logprobs = choice.get("logprobs") or {}
        alternatives = logprobs.get("top_logprobs") or [None]
        size += len(choice.get("text", "")) + len(logprobs.get("tokens", ())) * (8 + len(alternatives[-1] or ()))
    return size


async def events(documents: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    """Encode documents as events; an error after the start of the stream becomes the last event."""
    async with aclosing(documents):
        try:
            async for document in documents:
                yield await run_in_thread_if_large(_document_size(document), event, document)
        except ApiError as error:
            yield event(error.document)
            return
        except ChainruleError as error:
            yield event(ApiError(400, str(error)).document)
            return
    yield DONE


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add `/v1/completions`."""
    fingerprints: dict[str, str | None] = {}

    @app.post("/v1/completions")
    async def completions(request: CompletionRequest) -> Response:
        """Generate `n` completions of each prompt."""
        request.check(registry.limits)
        loaded = await registry.get(request.model)
        if loaded.name not in fingerprints:
            fingerprints[loaded.name] = await asyncio.to_thread(fingerprint, loaded.model)
        prepared = await run_in_thread_if_large(
            input_size(request.prompt) + STOP_CHARACTER_COST * input_size(request.stop),
            prepare,
            request,
            loaded,
            registry.limits,
            fingerprints[loaded.name],
        )
        if request.stream:
            return ClosingStreamingResponse(
                events(chunks(prepared)), media_type="text/event-stream", headers=UNCACHED
            )
        return await complete_response(prepared)


def fingerprint(model: Model) -> str | None:
    """Return the digest of the manifest, which contains the digests of all files; None without a manifest."""
    manifest = Path(model.name) / "manifest.json"
    return f"sha256:{hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]}" if manifest.is_file() else None


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A validated request with tokenized prompts."""

    request: CompletionRequest
    loaded: LoadedModel
    settings: Decoding
    spell: SpellingSampler | None  # None: unknown words are not spelled
    tokenizer: Tokenizer
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
    prompts = tuple(
        encode_prompt(prompt, tokenizer, is_continued=not request.echo)  # an echoed prompt is scored like any text
        if isinstance(prompt, str)
        else prompt_from_ids(prompt, tokenizer)
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
    settings = request.decoding()
    try:
        spell = resolve_speller(loaded.model.lm.vocabulary, settings, loaded.model.spell)
    except ConfigError as error:
        raise ApiError(400, str(error), param="unk") from error
    head = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": loaded.name,
        "system_fingerprint": digest,
    }
    return PreparedRequest(request, loaded, settings, spell, tokenizer, prompts, StopStrings(request.stops), head)


def deltas(prepared: PreparedRequest) -> AsyncGenerator[Delta]:
    """Return the new text and tokens of all choices as they are generated."""
    sources = [_complete_prompt(prepared, number, prompt) for number, prompt in enumerate(prepared.prompts)]
    return merge(sources) if len(sources) > 1 else sources[0]


async def _complete_prompt(prepared: PreparedRequest, number: int, prompt: EncodedPrompt) -> AsyncGenerator[Delta]:
    """Yield the deltas of one prompt's choices."""
    request, settings, first = prepared.request, prepared.settings, number * prepared.request.samples
    spells: list[DrawSpelling] = []
    if prepared.spell is not None:  # seeded as in `generate`
        rngs = spawn_spelling_generators(settings.seed, request.samples)
        spells = [partial(prepared.spell, rng) for rng in rngs]
    choices = [
        CompletionBuilder(
            first + sample,
            prepared.tokenizer,
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
        stop_checks=None
        if not prepared.stops
        else lambda: stop_check(prepared.tokenizer, prompt.last, prepared.stops, is_unknown_spelled=bool(spells)),
    )
    work = 0
    async with aclosing(prepared.loaded.scheduler.generate(job)) as tokens_drawn:
        async for token in tokens_drawn:
            choice = choices[token.sample]
            if not choice.is_finished:
                if spells and token.id == prepared.tokenizer.unk:  # drawing a spelling takes milliseconds
                    yield await asyncio.to_thread(choice.add_token, token)
                else:
                    yield choice.add_token(token)
                if all(builder.is_finished for builder in choices):
                    return
            work += 1 + len(token.top)
            if work > YIELD_AFTER:  # queued tokens are processed without awaiting
                work = 0
                await asyncio.sleep(0)


async def _echo_logprobs(prepared: PreparedRequest, prompt: EncodedPrompt) -> LogprobTable:
    """Return the prompt's log-probabilities if the request asks for them."""
    if prepared.request.logprobs is None:
        return LogprobTable()
    reading = await prepared.loaded.scheduler.score(prompt.ids, prepared.request.logprobs)
    cost = len(prompt.ids) * (prepared.request.logprobs + 1) * 16  # microseconds each
    return await run_in_thread_if_large(cost, prompt_logprobs, prepared.tokenizer, prompt, reading)


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
