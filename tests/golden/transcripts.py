"""Requests to `chainrule serve`, and the answers of a real server as text."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from golden.normalizer import normalize

KEY: Final = "golden-key"
TIMEOUT: Final = 60.0
OMITTED_HEADERS: Final = ("date", "content-length", "connection", "server")


@dataclass(frozen=True)
class Request:
    """One HTTP request; `body` is sent as JSON unless it is a string."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    has_key: bool = False
    is_body_shown: bool = True
    more_headers: int = 0

    def payload(self) -> bytes:
        """The body as bytes."""
        if self.body is None:
            return b""
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()

    def message(self) -> bytes:
        """The whole request as it goes over the wire."""
        payload = self.payload()
        headers = {"Host": "127.0.0.1", "Connection": "close"} | self.sent_headers()
        if payload:
            headers = {"Content-Length": str(len(payload))} | headers
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        lines += [f"X-{number}: 0" for number in range(self.more_headers)]
        return "\r\n".join([*lines, "", ""]).encode() + payload

    def sent_headers(self) -> dict[str, str]:
        """The headers that matter to the answer."""
        is_json = self.body is not None and "Content-Type" not in self.headers
        return ({"Content-Type": "application/json"} if is_json else {}) | self.headers

    def text(self) -> str:
        """The request as it is shown in a transcript."""
        lines = [f"{self.method} {self.path}", *(f"{name}: {value}" for name, value in self.sent_headers().items())]
        if self.more_headers:
            lines.append(f"({self.more_headers} headers more)")
        if self.body is not None:
            lines += ["", self.payload().decode()]
        return "".join(f"> {line}".rstrip() + "\n" for line in lines)


def _completion(**fields: Any) -> Request:
    return Request("POST", "/v1/completions", {"model": "ngram", **fields})


def _post(path: str, **fields: Any) -> Request:
    return Request("POST", path, {"model": "ngram", **fields})


TRANSCRIPTS: Final = {
    "page": Request("GET", "/", is_body_shown=False),
    "health": Request("GET", "/health"),
    "models": Request("GET", "/v1/models"),
    "model": Request("GET", "/v1/models/ngram"),
    "openapi": Request("GET", "/openapi.json"),
    "completions": _completion(prompt="the cat", max_tokens=5, temperature=0),
    "completions-default-model": Request(
        "POST", "/v1/completions", {"prompt": "one", "max_tokens": 3, "temperature": 0}
    ),
    "completions-seed": _completion(prompt=["the", "a"], n=2, seed=3, max_tokens=6, top_p=0.9, temperature=0.8),
    "completions-echo": _completion(prompt="the cat sees", echo=True, logprobs=2, max_tokens=1, temperature=0),
    "completions-ids": _completion(prompt=[4, 5], max_tokens=3, temperature=0, logprobs=1),
    "completions-lists-of-ids": _completion(prompt=[[4], [5, 6]], max_tokens=2, temperature=0),
    "completions-stop": _completion(prompt="the", stop=["the", "garden"], max_tokens=12, temperature=0),
    "completions-filters": _completion(
        prompt="a", top_k=3, min_p=0.1, repetition_penalty=1.2, no_repeat_ngram=2, seed=1, unk="keep"
    ),
    "completions-bpe": Request(
        "POST", "/v1/completions", {"model": "ngram-bpe", "prompt": "the c", "max_tokens": 6, "temperature": 0}
    ),
    "completions-stream": _completion(prompt="the cat", max_tokens=4, temperature=0, stream=True, logprobs=1),
    "completions-stream-usage": _completion(
        prompt="the", max_tokens=3, seed=2, n=2, stream=True, stream_options={"include_usage": True}
    ),
    "score": _post("/v1/score", input=["the cat sees a zebra", ""]),
    "score-bits": _post("/v1/score", input="the cat", unit="bits"),
    "next": _post("/v1/next", prompt="the cat", top=3),
    "next-prefix": _post("/v1/next", prompt="the", prefix="c", top=3, temperature=0.5, top_k=2),
    "beam": _post("/v1/beam", prompt="the", beam_size=2, max_tokens=3),
    "context": _post("/v1/context", text="the cat sees a zebra"),
    "tokenizer-info": Request("GET", "/tokenizer_info?model=ngram"),
    "tokenize": _post("/tokenize", prompt="the cat sees <s>\na dog", return_token_strs=True),
    "tokenize-control-symbol": _post("/tokenize", prompt="</s>", add_special_tokens=True),
    "detokenize": _post("/detokenize", tokens=[4, 5, 1, 6]),
    "error-unknown-model": Request("POST", "/v1/completions", {"model": "nonesuch", "prompt": "the"}),
    "error-unknown-path": Request("GET", "/v1/nonesuch"),
    "error-method": Request("GET", "/v1/completions"),
    "error-unknown-field": _completion(prompt="the", nonesuch=1),
    "error-type": _completion(prompt="the", max_tokens="5"),
    "error-range": _completion(prompt="the", temperature=-1),
    "error-nested-field": _completion(prompt="the", stream=True, stream_options={"nonesuch": True}),
    "error-limit": _completion(prompt="the", max_tokens=100_000),
    "error-unit": _post("/v1/score", input="the", unit="yards"),
    "error-missing-field": _post("/tokenize"),
    "error-ids": _post("/detokenize", tokens=[100_000]),
    "error-not-json": Request("POST", "/v1/completions", "{"),
    "error-repeated-key": Request("POST", "/v1/completions", '{"prompt": "a", "prompt": "b"}'),
    "error-not-a-number": Request("POST", "/v1/completions", '{"prompt": "a", "temperature": NaN}'),
    "error-media-type": Request("POST", "/v1/score", "the cat", {"Content-Type": "text/plain"}),
    "error-body-too-large": Request(
        "POST", "/v1/score", "{", {"Content-Type": "application/json", "Content-Length": str((2 << 20) + 1)}
    ),
    "error-too-many-headers": Request("GET", "/health", more_headers=101),
    "error-host": Request("GET", "/health", None, {"Host": "example.com"}),
    "error-no-key": Request("GET", "/v1/models", has_key=True),
    "error-wrong-key": Request("GET", "/v1/models", None, {"Authorization": "Bearer wrong"}, has_key=True),
    "key": Request("GET", "/v1/models/ngram", None, {"Authorization": f"Bearer {KEY}"}, has_key=True),
}


@contextmanager
def served(*arguments: str) -> Iterator[int]:
    """Run `chainrule serve` on a free port; the port."""
    command = [str(Path(sys.executable).with_name("chainrule")), "serve", *arguments, "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.kill()


def transcript(request: Request, port: int) -> str:
    """Send a request; return it and the answer as text."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
        connection.sendall(request.message())
        with connection.makefile("rb") as stream:
            head, _, body = stream.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _dechunked(body)
    shown = sorted(f"{name}: {value}" for name, value in headers.items() if name not in OMITTED_HEADERS)
    answer = [status.partition(" ")[2], *shown, "", *_body(request, body.decode())]
    return request.text() + "\n" + "".join(f"< {line}".rstrip() + "\n" for line in answer)


def _body(request: Request, body: str) -> list[str]:
    if not request.is_body_shown:
        return ["(not recorded)"]
    try:
        return normalize(json.dumps(_without_tied_end(json.loads(body)), ensure_ascii=False, indent=1)).splitlines()
    except json.JSONDecodeError:
        return normalize(body).splitlines()


def _without_tied_end(value: Any) -> Any:
    """Leave out the last token of each list `top` and those that are as probable.

    `POST /v1/context` chooses among equally probable tokens by NumPy's argpartition, whose choice depends on the
    instruction set of the processor.
    """
    if isinstance(value, list):
        return [_without_tied_end(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {name: _without_tied_end(item) for name, item in value.items()}
    if isinstance(top := result.get("top"), list):
        above = [item for item in top if item["probability"] > top[-1]["probability"]]
        result["top"] = sorted(above, key=lambda item: (-item["probability"], item["token"]))
    return result


def _dechunked(body: bytes) -> bytes:
    """The content of a chunked body."""
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        content, body = content + body[:length], body[length + 2 :]
        if not length:
            break
    return content
