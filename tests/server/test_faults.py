"""Invalid requests and misbehaving clients over real sockets."""

import asyncio
import errno
import json
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from chainrule.server import http
from chainrule.server.app import create_app
from chainrule.server.errors import Limits
from chainrule.server.slots import Job, TokenResult
from chainrule.server.worker import Scheduler, Worker
from server.faulty_app import RouteEvents, create_faulty_app
from server.running_server import (
    TIMEOUT_SECONDS,
    RunningServer,
    get,
    post,
    read_response,
    read_until_closed,
    run_server,
    wait_until,
)

LIMITS = Limits(body_bytes=10_000, seconds=20)


@pytest.fixture(scope="module")
def server(ngram_folder: Path) -> Iterator[RunningServer]:
    app, _ = create_faulty_app(ngram_folder, LIMITS)
    with run_server(app, LIMITS) as running_server:
        yield running_server


@pytest.fixture
def server_and_events(ngram_folder: Path) -> Iterator[tuple[RunningServer, RouteEvents]]:
    app, route_events = create_faulty_app(ngram_folder, LIMITS)
    with run_server(app, LIMITS) as running_server:
        yield running_server, route_events


# Body size.


def test_body_within_the_limit_is_read(server: RunningServer) -> None:
    filler = b" " * (10_000 - len(b'{"number": 7}'))
    response = server.ask(post("/try", b'{"number": 7}' + filler))
    assert (response.status, response.body) == (200, b'{"number":7}')
    assert server.ask(post("/try", b'{"number": 7}' + filler + b" ")).status == 413


def test_body_over_the_limit_is_rejected_by_its_length(server: RunningServer) -> None:
    response = server.ask(post("/try", b"", "Expect: 100-continue", length=150_000_000))
    assert response.status == 413
    assert response.error["code"] == "request_too_large"
    assert "10,000 bytes" in response.error["message"]


def test_client_that_sends_everything_first_gets_the_413(server: RunningServer) -> None:
    assert server.ask(post("/try", b"x" * 3_000_000)).status == 413


def test_absurd_content_length_is_rejected(server: RunningServer) -> None:
    assert server.ask(post("/try", b"", "Expect: 100-continue", length=10**30)).status in (400, 413)


def test_chunked_body_over_the_limit_is_rejected(server: RunningServer) -> None:
    head = b"POST /try HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    chunk = b"400\r\n" + b" " * 0x400 + b"\r\n"
    response = server.ask(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 12 + b"0\r\n\r\n")
    assert response.status == 413


def test_too_small_content_length_does_not_bypass_the_limit(server: RunningServer) -> None:
    response = server.ask(post("/try", b'{"number": 7}' + b" " * 20_000, length=13))
    assert response.status == 200  # the bytes covered by the length were read; the rest is not a request
    response = server.ask(post("/try", b'{"number": 7}', length=5))
    assert response.status == 400


def test_truncated_body_does_no_harm(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(post("/try", b'{"num', length=13))
    assert server.is_healthy()


# Strict JSON.


@pytest.mark.parametrize(
    ("sent", "param", "says"),
    [
        (b'{"prompt": ' + b"[" * 40 + b"]" * 40 + b"}", "prompt", "more than 32 levels deep"),
        (b'{"a": 1, "inner": {"name": {"x": ' + b'{"y": ' * 40 + b"1" + b"}" * 43, "inner", "deep"),
        (b"[" * 9000, None, "deep"),
        (b'{"number": 1, "number": 2}', "number", "given twice"),
        (b'{"inner": {"name": "a", "name": "a"}}', "name", "given twice"),
        (b'{"number": NaN}', "number", "NaN is not a valid JSON number"),
        (b'{"number": 1, "inner": {"name": [-Infinity]}}', "inner.name", "-Infinity is not a valid JSON number"),
        (b'{"number": 1e999}', "number", "1e999 is not a valid JSON number"),
        (b'{"number": ' + b"9" * 5000 + b"}", None, "thousands of digits"),
        (b'{"number": 99999999999999999999}', None, ""),  # an integer that JSON allows
        (b'{"prompt": "\xff"}', None, "not valid UTF-8 at byte 12"),
        (b'{"prompt": "\\ud83d"}', "prompt", "a lone surrogate"),
        (b'{"\\ud83d": 1}', "?", "a lone surrogate"),
        (b'{"number": 1', None, "not JSON"),
        (b'{"prompt": "\\', None, "not JSON"),
        (b"{'number': 1}", None, "not JSON"),
        (b"[1]", None, "must be a JSON object"),
        (b"7", None, "must be a JSON object"),
        (b"null", None, "must be a JSON object"),
        (b"", None, "the body: "),
        (b'{"number": "7"}', "number", "valid integer"),
        (b'{"colour": 1}', "colour", "there is no field 'colour'"),
    ],
)
def test_invalid_json_is_rejected(server: RunningServer, sent: bytes, param: str | None, says: str) -> None:
    response = server.ask(post("/try", sent))
    if not says:
        assert response.status == 200
        return
    assert response.status == 400
    assert says in response.error["message"]
    assert response.error["param"] == param
    assert response.error["type"] == "invalid_request_error"


def test_other_content_types_are_rejected(server: RunningServer) -> None:
    response = server.ask(post("/try", b"{}").replace(b"application/json", b"text/plain"))
    assert response.status == 415
    assert "application/json" in response.error["message"]


def test_invalid_http_gets_a_json_error(server: RunningServer) -> None:
    response = server.ask(b"what is the next word?\r\n\r\n")
    assert response.status == 400
    assert response.error["message"] == "Invalid HTTP request received: illegal request line"


@pytest.mark.parametrize("version", ["0.9", "2.0", "9.9"])
def test_other_http_versions_are_rejected(server: RunningServer, version: str) -> None:
    response = server.ask(get("/health").replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
    assert response.status == 505
    assert "HTTP/1.1" in response.error["message"]
    preface = server.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")  # how an HTTP/2 client begins
    assert preface.status == 505
    assert preface.error["type"] == "server_error"


def test_http_1_0_client_is_served(server: RunningServer) -> None:
    response = server.ask(post("/try", b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (response.status, response.body) == (200, b'{"number":null}')


def test_path_with_trailing_slash_is_not_found(server: RunningServer) -> None:
    for request in (get("/health/"), post("/try/", b"{}")):
        response = server.ask(request)
        assert response.status == 404
        assert response.error["code"] == "not_found"


def test_client_cannot_flood_the_log_with_warnings(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = get("/health", "Upgrade: websocket", "Sec-WebSocket-Version: 13").replace(b"close", b"Upgrade")
    with caplog.at_level(logging.INFO), server.connect() as connection:
        connection.sendall(upgrade)
        assert read_response(connection).status == 200
        assert server.ask(b"what is the next word?\r\n\r\n").status == 400
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {record.name for record in warnings} <= {"uvicorn.error"}  # which `to_stderr` omits
    assert "WebSocket" not in caplog.text
    assert {"status": 400} in [getattr(record, "facts", None) for record in caplog.records]


# Slow, numerous or disconnected clients.


def test_two_hundred_idle_connections(server: RunningServer) -> None:
    idle = [server.connect() for _ in range(200)]
    try:
        assert server.is_healthy()
        for connection in idle[:100]:
            connection.sendall(b"POST /try HTTP/1.1\r\nHost: 127")  # only the beginning of a request
        assert server.is_healthy()
    finally:
        for connection in idle:
            connection.close()
    assert server.is_healthy()


def test_connection_without_a_request_is_closed(ngram_folder: Path) -> None:
    limits = Limits(idle_seconds=0.3)
    app, _ = create_faulty_app(ngram_folder, limits)
    with run_server(app, limits) as server, server.connect() as silent, server.connect() as slow:
        slow.sendall(get("/health")[:10])
        slow.sendall(get("/health")[10:20])  # a few bytes now and then are not a request either
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
        assert server.is_healthy()


def test_slow_body_times_out(ngram_folder: Path) -> None:
    limits = Limits(seconds=0.4)
    app, _ = create_faulty_app(ngram_folder, limits)
    with run_server(app, limits) as server, server.connect() as connection:
        connection.sendall(post("/try", b'{"num', length=13))
        connection.sendall(b"ber")
        response = read_until_closed(connection)
        assert response.status == 408
        assert response.error["code"] == "request_timeout"


def test_slow_response_times_out(ngram_folder: Path) -> None:
    limits = Limits(seconds=0.3)
    app, route_events = create_faulty_app(ngram_folder, limits)
    with run_server(app, limits) as server:
        response = server.ask(post("/slow", b"{}"))
        assert response.status == 504
        assert response.error["type"] == "server_error"
        assert route_events.cancelled.wait(TIMEOUT_SECONDS)
        route_events.cancelled.clear()
        streamed = server.ask(get("/stream"))
        assert streamed.status == 200  # it had begun: the last event contains the error
        assert route_events.cancelled.wait(TIMEOUT_SECONDS)
        last = next(line for line in streamed.body.split(b"\r\n") if b'"error"' in line)
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "timeout"


def test_client_that_does_not_read_its_stream_times_out(ngram_folder: Path) -> None:
    limits = Limits(seconds=1.0)
    app, route_events = create_faulty_app(ngram_folder, limits)
    with run_server(app, limits) as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(get("/stream?is_large=true"))  # 32 MB that nobody reads
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert server.is_healthy()
        assert not route_events.begun.is_set()  # the work waits for the client
        assert route_events.cancelled.wait(TIMEOUT_SECONDS)  # but not for ever
        assert server.is_healthy()


def test_work_of_a_disconnected_client_is_cancelled(server_and_events: tuple[RunningServer, RouteEvents]) -> None:
    server, route_events = server_and_events
    for request in (post("/slow", b"{}"), get("/stream")):
        route_events.begun.clear()
        route_events.cancelled.clear()
        with server.connect() as connection:
            connection.sendall(request)
            assert route_events.begun.wait(TIMEOUT_SECONDS)
        assert route_events.cancelled.wait(TIMEOUT_SECONDS), request
        assert server.is_healthy()


def test_disconnected_client_is_logged(
    server_and_events: tuple[RunningServer, RouteEvents], caplog: pytest.LogCaptureFixture
) -> None:
    server, route_events = server_and_events
    with caplog.at_level(logging.INFO, "chainrule.server"):
        with server.connect() as connection:
            connection.sendall(post("/slow", b"{}"))
            assert route_events.begun.wait(TIMEOUT_SECONDS)
        assert route_events.cancelled.wait(TIMEOUT_SECONDS)
        server.is_healthy()
    facts = [getattr(record, "facts", {}) for record in caplog.records]
    assert (499, True) in [(fact.get("status"), fact.get("is_gone")) for fact in facts]


def test_too_many_concurrent_requests_are_rejected(ngram_folder: Path) -> None:
    limits = Limits(waiting=2)
    app, route_events = create_faulty_app(ngram_folder, limits)
    with run_server(app, limits) as server, server.connect() as first, server.connect() as second:
        for connection in (first, second):
            route_events.begun.clear()
            connection.sendall(post("/slow", b"{}"))
            assert route_events.begun.wait(TIMEOUT_SECONDS)
        response = server.ask(post("/try", b"{}"))
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert response.error["code"] == "overloaded"
        assert server.is_healthy()
        first.close()
        assert route_events.cancelled.wait(TIMEOUT_SECONDS)
        wait_until(lambda: server.ask(post("/try", b"{}")).status == 200)  # the slot is free


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "not reading"])
def test_unread_stream_rows_leave_the_batch(
    ngram_folder: Path, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, closed = threading.Event(), threading.Event()

    async def endless(self: Scheduler, job: Job) -> AsyncGenerator[TokenResult]:
        begun.set()
        try:
            while True:
                yield TokenResult(sample=0, id=3, log_prob=-1.0, top=(), finish=None)
                await asyncio.sleep(0)
        finally:
            closed.set()

    monkeypatch.setattr(Scheduler, "generate", endless)
    limits = Limits(seconds=1.5)
    with run_server(create_app([ngram_folder], limits=limits), limits) as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        request_ = {"prompt": "the", "stream": True, "logprobs": 0, "max_tokens": 4096}
        connection.sendall(post("/v1/completions", json.dumps(request_).encode()))
        assert begun.wait(TIMEOUT_SECONDS)
        if is_gone:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.close()
        assert closed.wait(TIMEOUT_SECONDS)
        assert server.is_healthy()


def test_requests_running_after_the_grace_period_get_503(
    ngram_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(grace_seconds=0)
    app, route_events = create_faulty_app(ngram_folder, limits)
    with run_server(app, limits) as server:
        waiting, streaming, sending = server.connect(), server.connect(), server.connect()
        waiting.sendall(post("/slow", b"{}"))
        assert route_events.begun.wait(TIMEOUT_SECONDS)
        route_events.begun.clear()
        streaming.sendall(get("/stream"))
        assert route_events.begun.wait(TIMEOUT_SECONDS)
        sending.sendall(post("/try", b'{"num', length=13))  # the rest of the body never comes
        assert server.is_healthy()  # the server has read all of that
    with waiting, streaming, sending:
        for connection in (waiting, sending):
            response = read_until_closed(connection)
            assert (response.status, response.headers["content-type"]) == (503, "application/json")
            assert response.error["code"] == "shutting_down"
            assert response.error["type"] == "server_error"
        streamed = read_until_closed(streaming)
        assert streamed.status == 200
        *_, last = (line for line in streamed.body.split(b"\r\n") if line.startswith(b"data: "))
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "shutting_down"
        assert streamed.body.endswith(b"\r\n0\r\n\r\n")  # the stream is terminated as HTTP requires
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    assert route_events.cancelled.is_set()
    assert "Exception" not in caplog.text


def test_requests_finished_within_the_grace_period_are_answered(
    ngram_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The model's thread is blocked until the server has begun to stop."""
    is_stopping = threading.Event()
    step = Worker._step

    def blocked(self: Worker) -> None:
        assert is_stopping.wait(TIMEOUT_SECONDS)
        step(self)

    original = http.Server.shutdown

    async def shutdown(self: http.Server, sockets: Any = None) -> None:
        is_stopping.set()
        await original(self, sockets)

    monkeypatch.setattr(Worker, "_step", blocked)
    monkeypatch.setattr(http.Server, "shutdown", shutdown)
    limits = Limits(grace_seconds=TIMEOUT_SECONDS)
    with run_server(create_app([ngram_folder], limits=limits), limits) as server:
        connection = server.connect()
        connection.sendall(post("/v1/completions", b'{"prompt": "the", "max_tokens": 3, "seed": 1}'))
        assert server.is_healthy()
    with connection:
        assert read_until_closed(connection).status == 200
    assert "aborted" not in caplog.text


# Ambiguous requests (request smuggling) and endless heads.

HEAD = "POST /try HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = "2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("rest", "status", "says"),
    [
        ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400, "together"),
        ("Transfer-Encoding: chunked\r\ncontent-length: 2\r\n\r\n" + CHUNKED, 400, "together"),
        ("Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, "more than once"),
        ("Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", 400, "more than once"),
        ("Content-Length: 2, 2\r\n\r\n{}", 400, "more than once"),
        ("Content-Length: +2\r\n\r\n{}", 400, "Content-Length"),
        ("Content-Length: 0x2\r\n\r\n{}", 400, "Content-Length"),
        ("Content-Length : 2\r\n\r\n{}", 400, "header"),
        ("Transfer-Encoding: identity\r\n\r\n{}", 400, "must be chunked"),
        ("Transfer-Encoding: gzip\r\n\r\n{}", 400, "must be chunked"),
        ("Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, 400, "must be chunked"),
        ("Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKED, 400, "must be chunked"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400, "must be chunked"),
        ("Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKED, 400, ""),
        ("Transfer-Encoding: chunked\r\n\r\nz\r\n{}\r\n0\r\n\r\n", 400, ""),
        ("X-Folded: one\r\n two\r\nContent-Length: 2\r\n\r\n{}", 400, "folded"),
        ("Content-Length: 2\n\r\n{}", 400, "LF alone"),
        ("Content-Length: 2\r\n\n{}", 400, "LF alone"),
        ("X: a\rb\r\nContent-Length: 2\r\n\r\n{}", 400, ""),
        ("X: a\0b\r\nContent-Length: 2\r\n\r\n{}", 400, ""),
        ("Host: other\r\nContent-Length: 2\r\n\r\n{}", 400, "Host"),
        ("X: " + "x" * 100_000 + "\r\nContent-Length: 2\r\n\r\n{}", 431, "larger than 32,768 bytes"),
        ("X: " + "x" * 100_000, 431, "larger than 32,768 bytes"),
        ("X: y\r\n" * 101 + "Content-Length: 2\r\n\r\n{}", 431, "more than 100 headers"),
    ],
)
def test_ambiguous_and_endless_heads_are_rejected(server: RunningServer, rest: str, status: int, says: str) -> None:
    for before in (
        b"",
        post("/try", b"{}").replace(b"Connection: close\r\n", b""),
    ):  # alone, and after another request
        with server.connect() as connection:
            connection.sendall(before + HEAD.encode() + rest.encode("latin-1"))
            if before:
                assert read_response(connection).status == 200
            response = read_until_closed(connection)
        assert response.status == status
        assert response.headers["connection"] == "close"
        assert says in response.error["message"]
    assert server.is_healthy()


def test_long_target_is_rejected_and_normal_heads_accepted(server: RunningServer) -> None:
    assert server.ask(get("/" + "a" * 100_000)).status == 431
    assert server.ask(get("/health", "X: " + "x" * 30_000)).status == 200
    assert server.ask(get("/health", *["X: y"] * 97)).status == 200


# More connections than descriptors.


def test_connections_beyond_the_limit_are_rejected_with_one_log_line(
    ngram_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "connection_limit", lambda: 3)
    with run_server(create_app([ngram_folder])) as server:
        idle = [server.connect() for _ in range(3)]
        for _ in range(10):
            with server.connect() as refused:
                response = read_until_closed(refused)
                assert response.status == 503
                assert response.error["code"] == "overloaded"
        for connection in idle:
            connection.close()
        wait_until(lambda: is_served(server))
    assert caplog.text.count("refusing connections: 3 are open") == 1


def is_served(server: RunningServer) -> bool:
    """Whether a request is answered; a rejected connection may be reset before its response is read."""
    try:
        return server.is_healthy()
    except ConnectionError:
        return False


def test_connections_without_descriptors_are_rejected_by_the_reserve(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept = socket.socket.accept

    def exhausted(self: socket.socket) -> Any:
        if isinstance(self, http.Listener) and self._reserve is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    with http.bind("127.0.0.1", 0) as listener:
        for _ in range(3):
            with socket.create_connection(listener.getsockname(), timeout=TIMEOUT_SECONDS) as client:
                with pytest.raises(BlockingIOError):
                    listener.accept()
                assert read_until_closed(client).status == 503
            assert listener._reserve is not None
    assert caplog.text.count("refusing connections") == 1
