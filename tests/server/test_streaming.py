"""Streams: the same text and tokens as a complete response, never split within a character or stop string."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from chainrule.errors import InputError
from chainrule.server.errors import Limits
from chainrule.server.models import LoadedModel
from chainrule.server.routes.completions import chunks, merge, prepare
from chainrule.server.routes.completions import events as as_events
from chainrule.server.schema import CompletionRequest
from chainrule.server.slots import Job, TokenResult
from server.http_client import KINDS, events, open_client, post_ok, train_trigram


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("streaming")
    for kind in KINDS:
        train_trigram(folder, kind)
    with open_client(*(folder / kind for kind in KINDS)) as client_:
        yield client_


@pytest.mark.parametrize("kind", KINDS)
def test_stream_equals_the_complete_response(client: TestClient, kind: str) -> None:
    fields: dict[str, Any] = {
        "model": kind,
        "prompt": ["the dög sees", "a "],
        "n": 2,
        "seed": 4,
        "max_tokens": 25,
        "stop": ["es t", "sh"],
        "logprobs": 2,
        "echo": True,
    }
    whole = post_ok(client, "/v1/completions", **fields)
    stream_events = events(client, **fields)
    for choice in whole["choices"]:
        own = [e["choices"][0] for e in stream_events if e["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in own) == choice["text"]
        assert [piece["finish_reason"] for piece in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        for name, values in choice["logprobs"].items():
            assert [value for piece in own for value in piece["logprobs"][name]] == values
    assert {e["id"] for e in stream_events} == {stream_events[0]["id"]}
    assert {e["object"] for e in stream_events} == {"text_completion"}
    assert not any("usage" in e for e in stream_events)


def test_streamed_characters_are_complete(client: TestClient) -> None:
    stream_events = events(client, model="byte", prompt="the fish sees a ", max_tokens=12, temperature=0)
    # 🐭 is four bytes and four tokens.
    assert stream_events[0]["choices"][0]["text"] == "🐭"
    assert not any("\N{REPLACEMENT CHARACTER}" in e["choices"][0]["text"] for e in stream_events)


def test_no_part_of_a_stop_string_is_streamed(client: TestClient) -> None:
    stream_events = events(client, model="char", prompt="the cat s", max_tokens=30, temperature=0, stop=["s the"])
    assert "".join(e["choices"][0]["text"] for e in stream_events) == "ee"
    assert stream_events[-1]["choices"][0]["finish_reason"] == "stop"
    # Text that only begins like a stop string is sent once it continues differently.
    stream_events = events(client, model="char", prompt="the cat s", max_tokens=6, temperature=0, stop=["s thx"])
    assert "".join(e["choices"][0]["text"] for e in stream_events) == "ees th"


def test_usage_comes_last_on_request(client: TestClient) -> None:
    stream_events = events(
        client, model="word", prompt="the cat", max_tokens=3, seed=1, stream_options={"include_usage": True}
    )
    assert all(e["usage"] is None for e in stream_events[:-1])
    assert stream_events[-1]["choices"] == []
    usage = stream_events[-1]["usage"]
    assert (
        usage == post_ok(client, "/v1/completions", model="word", prompt="the cat", max_tokens=3, seed=1)["usage"]
    )


class Source:
    """Numbers with a pause between them; records when it was closed."""

    def __init__(self, first: int, count: int, error: Exception | None = None) -> None:
        self.first, self.count, self.error = first, count, error
        self.is_closed = False

    async def numbers(self) -> AsyncGenerator[int]:
        try:
            for number in range(self.first, self.first + self.count):
                await asyncio.sleep(0)
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed = True


def test_merge_keeps_the_order_of_each_source() -> None:
    async def collect() -> list[int]:
        return [number async for number in merge([Source(0, 200).numbers(), Source(1000, 100).numbers()])]

    merged = asyncio.run(collect())
    assert sorted(merged) == [*range(200), *range(1000, 1100)]
    assert [number for number in merged if number < 1000] == list(range(200))


def test_merge_closes_all_sources_when_the_reader_stops() -> None:
    sources = [Source(0, 10**9), Source(0, 10**9)]

    async def take_one() -> int:
        async with aclosing(merge([source.numbers() for source in sources])) as both:
            async for number in both:
                return number
        return -1

    assert asyncio.run(take_one()) == 0
    assert all(source.is_closed for source in sources)


def test_merge_ends_all_sources_on_an_error() -> None:
    sources = [Source(0, 10**9), Source(0, 1, InputError("this cannot be read"))]

    async def collect() -> None:
        async for _ in merge([source.numbers() for source in sources]):
            pass

    with pytest.raises(InputError, match="cannot be read"):
        asyncio.run(collect())
    assert all(source.is_closed for source in sources)


def test_stream_error_is_its_last_event() -> None:
    async def documents() -> AsyncGenerator[dict[str, Any]]:
        yield {"text": "ö"}
        raise InputError("this cannot be read")

    async def collect() -> list[bytes]:
        return [event async for event in as_events(documents())]

    first, last = asyncio.run(collect())
    assert first == 'data: {"text":"ö"}\n\n'.encode()
    error = json.loads(last.removeprefix(b"data: "))["error"]
    assert error["message"] == "this cannot be read"


class Endless:
    """A scheduler that draws the same token for ever."""

    def __init__(self) -> None:
        self.closed = 0

    async def generate(self, job: Job) -> AsyncGenerator[TokenResult]:
        try:
            while True:
                await asyncio.sleep(0)
                yield TokenResult(0, 1, -1.0, (), None)
        finally:
            self.closed += 1


@pytest.mark.parametrize("prompts", [["the"], ["the", "a", ""]])
def test_leaving_a_stream_ends_generation_for_every_prompt(tmp_path: Path, prompts: list[str]) -> None:
    scheduler: Any = Endless()
    loaded = LoadedModel("word", train_trigram(tmp_path, "word"), scheduler)
    request_ = prepare(CompletionRequest(prompt=prompts, stream=True), loaded, Limits(), None)

    async def leave() -> None:
        async with aclosing(chunks(request_)) as chunk_stream:
            assert (await anext(chunk_stream))["choices"][0]["text"] == request_.tokenizer.token_text(1, 1)
            assert scheduler.closed == 0

    asyncio.run(leave())
    assert scheduler.closed == len(prompts)
