"""What bad requests and bad clients get, over real sockets: a row of the table of faults each."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from chainrule.server import serving
from chainrule.server.app import create_app
from chainrule.server.limits import Limits
from chainrule.server.scheduler import Drawn, Job, Scheduler
from server.running import Running, get, hear, post, running
from server.workshop import Seen, workshop

LIMITS = Limits(body_bytes=10_000, seconds=20)


@pytest.fixture(scope="module")
def server(ngram_folder: Path) -> Iterator[Running]:
    app, _ = workshop(ngram_folder, LIMITS)
    with running(app, LIMITS) as found:
        yield found


@pytest.fixture
def seen_server(ngram_folder: Path) -> Iterator[tuple[Running, Seen]]:
    app, seen = workshop(ngram_folder, LIMITS)
    with running(app, LIMITS) as found:
        yield found, seen


# The body's size.


def test_a_body_within_the_limit_is_read(server: Running) -> None:
    filler = b" " * (10_000 - len(b'{"number": 7}'))
    heard = server.ask(post("/try", b'{"number": 7}' + filler))
    assert (heard.status, heard.body) == (200, b'{"number":7}')
    assert server.ask(post("/try", b'{"number": 7}' + filler + b" ")).status == 413


def test_a_body_over_the_limit_is_refused_by_its_length_alone(server: Running) -> None:
    heard = server.ask(post("/try", b"", "Expect: 100-continue", length=150_000_000))
    assert heard.status == 413
    assert heard.error["code"] == "request_too_large"
    assert "10,000 bytes" in heard.error["message"]


def test_a_sender_who_reads_no_answer_before_the_end_hears_the_refusal(server: Running) -> None:
    assert server.ask(post("/try", b"x" * 3_000_000)).status == 413


def test_a_length_of_absurd_size_is_refused(server: Running) -> None:
    assert server.ask(post("/try", b"", "Expect: 100-continue", length=10**30)).status in (400, 413)


def test_a_chunked_body_over_the_limit_is_refused(server: Running) -> None:
    head = b"POST /try HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    chunk = b"400\r\n" + b" " * 0x400 + b"\r\n"
    heard = server.ask(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 12 + b"0\r\n\r\n")
    assert heard.status == 413


def test_a_length_that_is_too_small_is_no_way_around(server: Running) -> None:
    heard = server.ask(post("/try", b'{"number": 7}' + b" " * 20_000, length=13))
    assert heard.status == 200  # what the length names was read; the rest is no request
    heard = server.ask(post("/try", b'{"number": 7}', length=5))
    assert heard.status == 400


def test_a_body_that_ends_too_early_costs_nothing(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(post("/try", b'{"num', length=13))
    assert server.health_seconds() < 1


# Strict JSON.


@pytest.mark.parametrize(
    ("sent", "param", "says"),
    [
        (b'{"prompt": ' + b"[" * 40 + b"]" * 40 + b"}", "prompt", "more than 32 deep"),
        (b'{"a": 1, "inner": {"name": {"x": ' + b'{"y": ' * 40 + b"1" + b"}" * 43, "inner", "deep"),
        (b"[" * 9000, None, "deep"),
        (b'{"number": 1, "number": 2}', "number", "given twice"),
        (b'{"inner": {"name": "a", "name": "a"}}', "name", "given twice"),
        (b'{"number": NaN}', "number", "NaN is no number of JSON"),
        (b'{"number": 1, "inner": {"name": [-Infinity]}}', "inner.name", "-Infinity is no number"),
        (b'{"number": 1e999}', "number", "1e999 is no number"),
        (b'{"number": ' + b"9" * 5000 + b"}", None, "thousands of digits"),
        (b'{"number": 99999999999999999999}', None, ""),  # a whole number that JSON allows
        (b'{"prompt": "\xff"}', None, "not UTF-8: byte 12"),
        (b'{"prompt": "\\ud83d"}', "prompt", "half a character"),
        (b'{"\\ud83d": 1}', "?", "half a character"),
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
def test_what_is_not_strict_json_is_refused(server: Running, sent: bytes, param: str | None, says: str) -> None:
    heard = server.ask(post("/try", sent))
    if not says:
        assert heard.status == 200
        return
    assert heard.status == 400
    assert says in heard.error["message"]
    assert heard.error["param"] == param
    assert heard.error["type"] == "invalid_request_error"


def test_json_alone_is_read(server: Running) -> None:
    heard = server.ask(post("/try", b"{}").replace(b"application/json", b"text/plain"))
    assert heard.status == 415
    assert "application/json" in heard.error["message"]


def test_what_is_not_http_is_answered_in_the_same_shape(server: Running) -> None:
    heard = server.ask(b"what is the next word?\r\n\r\n")
    assert heard.status == 400
    assert "Invalid HTTP" in heard.error["message"]


# Clients that are slow, many, or gone.


def test_two_hundred_idle_connections(server: Running) -> None:
    idle = [server.connect() for _ in range(200)]
    try:
        assert server.health_seconds() < 1
        for connection in idle[:100]:
            connection.sendall(b"POST /try HTTP/1.1\r\nHost: 127")  # no more than the beginning of a request
        assert server.health_seconds() < 1
    finally:
        for connection in idle:
            connection.close()
    assert server.health_seconds() < 1


def test_a_connection_that_brings_no_request_is_closed(ngram_folder: Path) -> None:
    limits = Limits(idle_seconds=0.3)
    app, _ = workshop(ngram_folder, limits)
    with running(app, limits) as server, server.connect() as silent, server.connect() as slow:
        begin = time.monotonic()
        slow.sendall(get("/health")[:10])
        time.sleep(0.1)
        slow.sendall(get("/health")[10:20])  # a little now and then is no request either
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
        assert time.monotonic() - begin < 5
        assert server.health_seconds() < 1


def test_a_slow_body_has_its_time(ngram_folder: Path) -> None:
    limits = Limits(seconds=0.4)
    app, _ = workshop(ngram_folder, limits)
    with running(app, limits) as server, server.connect() as connection:
        connection.sendall(post("/try", b'{"num', length=13))
        time.sleep(0.1)
        connection.sendall(b"ber")
        heard = hear(connection)
        assert heard.status == 408
        assert heard.error["code"] == "request_timeout"


def test_an_answer_has_its_time(ngram_folder: Path) -> None:
    limits = Limits(seconds=0.3)
    app, seen = workshop(ngram_folder, limits)
    with running(app, limits) as server:
        heard = server.ask(post("/slow", b"{}"))
        assert heard.status == 504
        assert heard.error["type"] == "server_error"
        assert seen.cancelled.wait(2)
        seen.cancelled.clear()
        streamed = server.ask(get("/stream"))
        assert streamed.status == 200  # it had begun: the last event says what happened
        assert seen.cancelled.wait(2)
        last = next(line for line in streamed.body.split(b"\r\n") if b'"error"' in line)
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "timeout"


def test_a_client_that_does_not_read_its_stream(ngram_folder: Path) -> None:
    limits = Limits(seconds=1.0)
    app, seen = workshop(ngram_folder, limits)
    with running(app, limits) as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(get("/stream?is_large=true"))  # 32 MB that nobody takes
        time.sleep(0.5)
        assert server.health_seconds() < 1
        assert not seen.begun.is_set()  # the work waits for the client
        assert seen.cancelled.wait(3)  # and does not wait for ever
        assert server.health_seconds() < 1


def test_the_work_of_a_client_that_has_gone_is_cancelled(seen_server: tuple[Running, Seen]) -> None:
    server, seen = seen_server
    for request in (post("/slow", b"{}"), get("/stream")):
        seen.begun.clear()
        seen.cancelled.clear()
        with server.connect() as connection:
            connection.sendall(request)
            assert seen.begun.wait(5)
        assert seen.cancelled.wait(2), request
        assert server.health_seconds() < 1


def test_a_client_that_has_gone_is_told_of_in_the_log(
    seen_server: tuple[Running, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    server, seen = seen_server
    with caplog.at_level(logging.INFO, "chainrule.server"):
        with server.connect() as connection:
            connection.sendall(post("/slow", b"{}"))
            assert seen.begun.wait(5)
        assert seen.cancelled.wait(2)
        server.health_seconds()
    facts = [getattr(record, "facts", {}) for record in caplog.records]
    assert (499, True) in [(fact.get("status"), fact.get("is_gone")) for fact in facts]


def test_too_many_at_once_are_sent_away(ngram_folder: Path) -> None:
    limits = Limits(waiting=2)
    app, seen = workshop(ngram_folder, limits)
    with running(app, limits) as server, server.connect() as one, server.connect() as two:
        for connection in (one, two):
            seen.begun.clear()
            connection.sendall(post("/slow", b"{}"))
            assert seen.begun.wait(5)
        heard = server.ask(post("/try", b"{}"))
        assert heard.status == 503
        assert heard.headers["retry-after"] == "1"
        assert heard.error["code"] == "overloaded"
        assert server.health_seconds() < 1
        one.close()
        assert seen.cancelled.wait(2)
        time.sleep(0.05)
        assert server.ask(post("/try", b"{}")).status == 200


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "not reading"])
def test_the_rows_of_a_stream_that_nobody_reads_leave_the_batch(
    ngram_folder: Path, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, closed = threading.Event(), threading.Event()

    async def endless(self: Scheduler, job: Job) -> AsyncGenerator[Drawn]:
        begun.set()
        try:
            while True:
                yield Drawn(sample=0, id=3, log_prob=-1.0, top=(), finish=None)
                await asyncio.sleep(0)
        finally:
            closed.set()

    monkeypatch.setattr(Scheduler, "generate", endless)
    limits = Limits(seconds=1.5)
    with running(create_app([ngram_folder], limits=limits), limits) as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        asked = {"prompt": "the", "stream": True, "logprobs": 0, "max_tokens": 4096}
        connection.sendall(post("/v1/completions", json.dumps(asked).encode()))
        assert begun.wait(5)
        if is_gone:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.close()
        assert closed.wait(1 if is_gone else 4)
        assert server.health_seconds() < 1


def test_a_server_that_is_stopped_does_not_wait_for_ever(
    ngram_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "GRACE", 0.2)
    app, seen = workshop(ngram_folder)
    with running(app) as server:
        connection = server.connect()
        connection.sendall(post("/slow", b"{}"))
        assert seen.begun.wait(5)
    with connection, pytest.raises(ConnectionRefusedError):
        server.connect()
    assert seen.cancelled.is_set()
