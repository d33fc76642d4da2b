"""Responses without the application under overload, and shutdown of a busy server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chainrule import api
from chainrule.server import http
from chainrule.server.app import create_app
from chainrule.server.errors import Limits
from chainrule.server.middleware import StartLimiter
from chainrule.server.worker import Worker
from server.running_server import (
    TIMEOUT_SECONDS,
    Response,
    RunningServer,
    get,
    post,
    read_response,
    read_until_closed,
    run_server,
    wait_until,
)

ASKED = post("/v1/completions", b'{"prompt": "the", "max_tokens": 2}')
KEEP = b"Connection: close\r\n"


@contextmanager
def full_server(
    ngram_folder: Path, monkeypatch: pytest.MonkeyPatch, api_key: str | None = None
) -> Iterator[RunningServer]:
    """A server whose queue is full while the context lasts: its model is blocked."""
    gate = threading.Event()
    step = Worker._step

    def blocked_step(self: Worker) -> None:
        assert gate.wait(TIMEOUT_SECONDS)
        step(self)

    monkeypatch.setattr(Worker, "_step", blocked_step)
    limits = Limits(waiting=20)
    key = () if api_key is None else (f"Authorization: Bearer {api_key}",)
    request_ = post("/v1/completions", b'{"prompt": "the", "max_tokens": 2}', *key)
    app = create_app([ngram_folder], limits=limits, api_key=api_key)
    with run_server(app, limits) as server:
        connections = [server.connect() for _ in range(limits.waiting)]
        for connection in connections:
            connection.sendall(request_)
        wait_until(lambda: len(app.state.requests) == limits.waiting)
        try:
            yield server
            assert len(app.state.requests) == limits.waiting
        finally:
            gate.set()
        assert [read_until_closed(connection).status for connection in connections] == [200] * limits.waiting
        for connection in connections:
            connection.close()


def without_date(response: Response) -> tuple[int, dict[str, str], bytes]:
    return (
        response.status,
        {name: value for name, value in response.headers.items() if name != "date"},
        response.body,
    )


def test_health_is_answered_while_the_queue_is_full(ngram_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both by the connection itself and, with a query, by the application."""
    with full_server(ngram_folder, monkeypatch) as server:
        direct, by_app = server.ask(get("/health")), server.ask(get("/health?by=app"))
        assert json.loads(direct.body)["status"] == "ok"
        assert direct.status == 200
        assert "date" in direct.headers
        assert without_date(direct) == without_date(by_app)
        assert server.ask(get("/")).status == 200  # the page takes no slot in the queue either


def test_full_queue_response_equals_the_application_s(ngram_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_server(ngram_folder, monkeypatch) as server:
        direct = server.ask(ASKED)
        assert direct.status == 503
        assert direct.headers["retry-after"] == "1"
        assert direct.error["code"] == "overloaded"
        by_app = server.ask(ASKED.replace(b"/v1/completions", b"/v1/completion%73"))
        assert without_date(direct) == without_date(by_app)


def test_access_is_checked_before_the_queue(ngram_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_server(ngram_folder, monkeypatch, api_key="secret") as server:
        assert server.ask(get("/health")).status == 200
        assert server.ask(ASKED).status == 401
        assert server.ask(get("/health").replace(b"127.0.0.1", b"elsewhere")).error["param"] == "Host"
        assert server.ask(post("/v1/completions", b"{}", "Authorization: Bearer secret")).status == 503


def test_direct_and_application_responses_alternate_on_a_connection(ngram_folder: Path) -> None:
    with run_server(create_app([ngram_folder])) as server, server.connect() as connection:
        health, request_ = get("/health").replace(KEEP, b""), ASKED.replace(KEEP, b"")
        for request in (health, request_, health, health, request_):
            connection.sendall(request)
            assert read_response(connection).status == 200
        connection.sendall(health + request_ + health)  # pipelined
        assert [read_response(connection).status for _ in range(3)] == [200] * 3
        connection.sendall(get("/health"))
        assert read_until_closed(connection).status == 200  # and the connection is closed


WHOLE = b"POST /v1/score?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


def test_whole_request_is_read() -> None:
    request = ("POST", "/v1/score", {b"host": b"a", b"content-length": b"2"})
    assert http.read_whole_request(WHOLE) == request
    assert http.read_whole_request(b"GET / HTTP/1.1\r\nHost:a\r\n\r\n") == ("GET", "/", {b"host": b"a"})


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[:-1],
        WHOLE + b"G",
        WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        WHOLE.replace(b"Host: a\r\n", b""),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\nHost: a\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\nhost: b\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host : a\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\n b\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\0\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\nExpect: 100-continue\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\nTransfer-Encoding: chunked\r\n"),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(100))),
        WHOLE.replace(b"Host: a\r\n", b"Host: a\r\nX: " + b"y" * 40_000 + b"\r\n"),
        WHOLE.replace(b": 2", b": +2"),
        WHOLE.replace(b": 2", b": " + b"9" * 5000),
        WHOLE.replace(b"/v1/score", b"/v1/scor%65"),
        WHOLE.replace(b"/v1/score", b"http://a/v1/score"),
        b"",
    ],
)
def test_other_data_is_left_to_the_http_parser(data: bytes) -> None:
    assert http.read_whole_request(data) is None


def test_simultaneous_requests_start_in_several_event_loop_turns() -> None:
    started: list[int] = []

    async def main() -> list[int]:
        turnstile = StartLimiter(4)

        async def request(number: int) -> None:
            await turnstile.enter()
            started.append(number)

        tasks = [asyncio.create_task(request(number)) for number in range(10)]
        counts: list[int] = []
        tasks[5].cancel()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            counts.append(len(started))
        tasks += [asyncio.create_task(request(number)) for number in (10, 11)]  # it is free again
        await asyncio.gather(*tasks, return_exceptions=True)
        return counts

    counts = asyncio.run(main())
    assert started == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) <= 4


def test_server_stops_while_a_model_is_loading(ngram_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_loading, gate = threading.Event(), threading.Event()

    def load(*folder: object, **settings: object) -> None:
        is_loading.set()
        assert gate.wait(2 * TIMEOUT_SECONDS)

    monkeypatch.setattr(api, "load", load)
    limits = Limits(grace_seconds=0)
    try:
        with run_server(create_app([ngram_folder], limits=limits), limits) as server:
            connection = server.connect()
            connection.sendall(ASKED)
            assert is_loading.wait(TIMEOUT_SECONDS)
        with connection:
            assert read_until_closed(connection).error["code"] == "shutting_down"
    finally:
        gate.set()


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_running_completions_get_an_error_when_the_server_stops(
    ngram_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_stream: bool
) -> None:
    """The model never answers. Its thread ends before the requests are aborted."""
    monkeypatch.setattr(Worker, "_step", lambda self: None)
    limits = Limits(grace_seconds=0)
    app = create_app([ngram_folder], limits=limits)
    body = json.dumps({"prompt": "the", "stream": is_stream}).encode()
    with run_server(app, limits) as server:
        connections = [server.connect() for _ in range(30)]
        for connection in connections:
            connection.sendall(post("/v1/completions", body))
        wait_until(lambda: len(app.state.requests) == 30)
    for connection in connections:
        with connection:
            response = read_until_closed(connection)
        assert response.status in ((200, 503) if is_stream else (503,))
        document = response.body
        if response.status == 200:
            (document,) = (line[6:] for line in response.body.split(b"\r\n") if line.startswith(b"data: "))
        assert json.loads(document)["error"]["code"] == "shutting_down"
    assert "Exception" not in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("model")]
