"""Clients of a server, as cheap as they can be: one process, a connection each, plain sockets.

    python benchmarks/serve_clients.py URL PATH BODIES.json CLIENTS SECONDS

Prints, as JSON, the latency of each answer, the seconds in which they came, and the tokens drawn or scored. What
comes before every client has had an answer is not counted. Imports nothing of chainrule, so that it starts at once.
"""

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

WARM_UP = 0.5  # seconds at least


class Tally:
    """What all clients found: the answers that came in a stretch of time, whenever they were asked for."""

    def __init__(self, clients: int, seconds: float) -> None:
        self.clients, self.seconds = clients, seconds
        self.unanswered = clients  # clients that still wait for their first answer
        self.began = time.perf_counter()
        self.start: float | None = None  # of what is counted
        self.end = 0.0
        self.latencies: list[float] = []
        self.tokens = 0
        self.over = asyncio.Event()

    def add(self, sent: float, tokens: int, is_first: bool) -> None:
        """Count an answer, if the warm-up is over; each client is heard twice at least."""
        now = time.perf_counter()
        self.unanswered -= is_first
        if self.start is None:
            self.start = now if not self.unanswered and now > self.began + WARM_UP else None
            return
        self.latencies.append(now - sent)
        self.tokens += tokens
        self.end = now
        if now > self.start + self.seconds and len(self.latencies) >= 2 * self.clients:
            self.over.set()


async def client(url: str, messages: list[bytes], first: int, tally: Tally) -> None:
    """Ask again and again over one connection."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    count = 0
    while True:
        sent = time.perf_counter()
        writer.write(messages[(first + count) % len(messages)])
        answer = await answered(reader)
        tokens = answer["usage"]["completion_tokens"] if "usage" in answer else scored(answer)
        tally.add(sent, tokens, count == 0)
        count += 1


async def answered(reader: asyncio.StreamReader) -> Any:
    """The document of one answer, which must be a good one."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
    body = await reader.readexactly(length)
    if head.split()[1] != "200":
        raise RuntimeError(f"{head.splitlines()[0]}: {body.decode()}")
    return json.loads(body)


def scored(answer: Any) -> int:
    """How many tokens a score is of."""
    return sum(len(result["tokens"]) for result in answer["results"])


def message(url: str, path: str, body: Any) -> bytes:
    """A whole HTTP request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def main(url: str, path: str, bodies: str, clients: str, seconds: str) -> None:
    with open(bodies, encoding="utf-8") as file:
        messages = [message(url, path, body) for body in json.load(file)]
    tally = Tally(int(clients), float(seconds))
    apart = len(messages) // int(clients)
    asking = [asyncio.create_task(client(url, messages, k * apart, tally)) for k in range(int(clients))]
    over = asyncio.create_task(tally.over.wait())
    done, _ = await asyncio.wait([*asking, over], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # a client ends by an error alone
    for task in asking:
        task.cancel()
    assert tally.start is not None
    found = {"latencies": tally.latencies, "seconds": tally.end - tally.start, "tokens": tally.tokens}
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
