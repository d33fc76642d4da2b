"""Lightweight HTTP clients for benchmarks/serve.py: one process, one plain socket per client.

    python benchmarks/serve_clients.py URL PATH BODIES.json CLIENTS SECONDS

Prints as JSON the latency of each response, the measured seconds, and the tokens generated or scored. Responses
before every client has received one are not counted. Does not import chainrule, so that it starts quickly.
"""

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

WARM_UP = 0.5  # minimum seconds


class Tally:
    """Statistics of the responses of all clients received after the warm-up."""

    def __init__(self, clients: int, seconds: float) -> None:
        self.clients, self.seconds = clients, seconds
        self.unanswered = clients  # clients without a first response
        self.created = time.perf_counter()
        self.start: float | None = None  # of the measurement
        self.end = 0.0
        self.latencies: list[float] = []
        self.tokens = 0
        self.over = asyncio.Event()

    def add(self, sent: float, tokens: int, is_first: bool) -> None:
        """Count a response after the warm-up; waits for two responses per client on average."""
        now = time.perf_counter()
        self.unanswered -= is_first
        if self.start is None:
            self.start = now if not self.unanswered and now > self.created + WARM_UP else None
            return
        self.latencies.append(now - sent)
        self.tokens += tokens
        self.end = now
        if now > self.start + self.seconds and len(self.latencies) >= 2 * self.clients:
            self.over.set()


async def client(url: str, messages: list[bytes], first: int, tally: Tally) -> None:
    """Send requests repeatedly over one connection."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    count = 0
    while True:
        sent = time.perf_counter()
        writer.write(messages[(first + count) % len(messages)])
        response = await read_response(reader)
        tokens = response["usage"]["completion_tokens"] if "usage" in response else scored_tokens(response)
        tally.add(sent, tokens, count == 0)
        count += 1


async def read_response(reader: asyncio.StreamReader) -> Any:
    """Read one response and return its JSON; raise unless its status is 200."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
    body = await reader.readexactly(length)
    if head.split()[1] != "200":
        raise RuntimeError(f"{head.splitlines()[0]}: {body.decode()}")
    return json.loads(body)


def scored_tokens(response: Any) -> int:
    """Count the tokens of a score response."""
    return sum(len(result["tokens"]) for result in response["results"])


def message(url: str, path: str, body: Any) -> bytes:
    """Format an HTTP request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def main(url: str, path: str, bodies: str, clients: str, seconds: str) -> None:
    with open(bodies, encoding="utf-8") as file:
        messages = [message(url, path, body) for body in json.load(file)]
    tally = Tally(int(clients), float(seconds))
    offset = len(messages) // int(clients)
    tasks = [asyncio.create_task(client(url, messages, k * offset, tally)) for k in range(int(clients))]
    over = asyncio.create_task(tally.over.wait())
    done, _ = await asyncio.wait([*tasks, over], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # a client ends only with an exception
    for task in tasks:
        task.cancel()
    assert tally.start is not None
    result = {"latencies": tally.latencies, "seconds": tally.end - tally.start, "tokens": tally.tokens}
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
