"""The server on loopback: requests a second and their latency, beside the same model called in process.

    python -m benchmarks.serve --clients 1,8,64 --seconds 5
    python -m benchmarks.serve --busy 1000 --seconds 10

Two models of Penn Treebank text: a 5-gram, and a 2×650 LSTM that was trained for a second, since what it says does
not matter here. Asked are completions of 16 tokens, fewer where `</s>` is drawn, and scores of whole lines. Each
client sends its next request when it has the answer to the last. Server and clients are processes of their own and
share the cores there are. Last, the LSTM with batching off (`--rows 1`), at the most clients.

`--busy N` measures `GET /health` instead, while N connections ask the 5-gram for eight completions of 64 tokens
each, and then how long the server takes to stop at SIGTERM.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.corpora import BENCHMARKS, ROOT, machine, table

import chainrule
from chainrule.model import Model
from chainrule.text.corpus import Corpus

TOKENS: Final = 16
LINES: Final = 1000  # of the validation text, asked in turn
BUSY_SECONDS: Final = 3.0  # until all connections are busy
BATCHING_GAIN: Final = 4.0  # what is asked of the LSTM at the most clients
HEAD: Final = ["", "clients", "requests/s", "tokens/s", "p50 ms", "p90 ms", "p99 ms", "in process, requests/s"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run showed."""

    requests: float  # a second
    tokens: float  # a second, drawn or scored
    latency: tuple[float, float, float]  # seconds: p50, p90, p99


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "serve-models", help="kept between runs")
    parser.add_argument("--busy", type=int, metavar="N", help="measure /health under N busy connections")
    parser.add_argument("--only", choices=("ngram", "lstm"), help="one of the models")
    options = parser.parse_args()
    clients = [int(number) for number in options.clients.split(",")]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"{machine()}\nServer and clients share {len(os.sched_getaffinity(0))} cores.\n", flush=True)
    if options.busy:
        health_while_busy(made("ngram", options.models), options.busy, options.seconds)
        return 0
    names = [options.only] if options.only else ["ngram", "lstm"]
    folders = {name: made(name, options.models) for name in names}
    rows, batched = [], 0.0
    for name, folder in folders.items():
        alone = in_process(chainrule.load(folder), options.seconds)
        with serving(folder) as url:
            for path in ("/v1/completions", "/v1/score"):
                for number in clients:
                    found = ask(url, path, name, number, options.seconds)
                    rows.append([f"{name} {path}", str(number), *cells(found), f"{alone[path]:,.1f}"])
                    print("  ".join(rows[-1]), file=sys.stderr, flush=True)
                    if (path, name, number) == ("/v1/completions", "lstm", max(clients)):
                        batched = found.requests
    print(table(HEAD, rows), flush=True)
    return check_batching(folders["lstm"], max(clients), options.seconds, batched) if "lstm" in folders else 0


def check_batching(folder: Path, clients: int, seconds: float, batched: float) -> int:
    """The LSTM one request at a time, and how much batching gains."""
    with serving(folder, "--rows", "1") as url:
        apart = ask(url, "/v1/completions", "lstm", clients, seconds)
    gain = batched / apart.requests
    print(table(HEAD[:-1], [["lstm /v1/completions, one at a time", str(clients), *cells(apart)]]))
    print(
        f"Batching: {gain:.1f} times the requests a second at {clients} clients; {BATCHING_GAIN:g} are asked for."
    )
    return 0 if gain >= BATCHING_GAIN else 1


def health_while_busy(folder: Path, connections: int, seconds: float) -> None:
    """Print the latency of `/health` beside busy connections, and the time from SIGTERM to the end."""
    body = json.dumps({"prompt": "the", "max_tokens": 64, "n": 8, "stop": ["\n", "###"]}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with serving_process(folder) as (url, process):
        port = int(url.rpartition(":")[2])
        clients = multiprocessing.get_context("spawn").Process(
            target=_keep_busy, args=(port, connections, request), daemon=True
        )
        clients.start()
        try:
            time.sleep(BUSY_SECONDS)
            latencies = _health_latencies(port, seconds)
            start = time.perf_counter()
            process.terminate()
            process.wait()
            stopped = time.perf_counter() - start
        finally:
            clients.terminate()
    median, worst = 1000 * latencies[len(latencies) // 2], 1000 * latencies[-1]
    figures = f"{len(latencies)} times, median {median:,.0f} ms, worst {worst:,.0f} ms"
    print(f"/health beside {connections} busy connections: {figures}")
    print(f"SIGTERM to the end of the process: {stopped:.1f} s (--grace 5)")


def _keep_busy(port: int, connections: int, request: bytes) -> None:
    """Send the request over and over on each of the connections; runs in a process of its own."""

    async def repeat() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                await reader.read()
                writer.close()
            except OSError:  # the server has stopped
                await asyncio.sleep(0.1)

    async def repeat_all() -> None:
        await asyncio.gather(*(repeat() for _ in range(connections)))

    asyncio.run(repeat_all())


def _health_latencies(port: int, seconds: float) -> list[float]:
    """Return the sorted latencies of `GET /health` in seconds, each over a new connection."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        latencies.append(time.perf_counter() - start)
        time.sleep(0.05)
    return sorted(latencies)


def made(name: str, models: Path) -> Path:
    """The folder of a model, trained where there is none."""
    folder = models / name
    if not folder.exists():
        text = BENCHMARKS["ptb"].corpus("train")
        settings: dict[str, Any] = (
            {"hidden": 650, "layers": 2, "max_seconds": 1} if name == "lstm" else {"order": 5}
        )
        chainrule.train(name, text, **settings).save(folder)
    return folder


def in_process(model: Model, seconds: float) -> dict[str, float]:
    """Calls a second of the model itself, one after another, by the path that stands for the same."""
    calls: dict[str, Any] = {
        "/v1/completions": lambda body: model.generate(
            body["prompt"], max_tokens=body["max_tokens"], seed=body["seed"]
        ),
        "/v1/score": lambda body: model.score(body["input"]),
    }
    found = {}
    for path, call in calls.items():
        asked = bodies(path, "")
        call(asked[0])
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            call(asked[count % len(asked)])
            count += 1
        found[path] = count / (time.perf_counter() - start)
    return found


def bodies(path: str, model: str) -> list[dict[str, Any]]:
    """What is asked: half a line to continue, or a line to score."""
    corpus: Corpus = BENCHMARKS["ptb"].corpus("valid")
    lines = [line for line, _ in zip(corpus, range(LINES), strict=False)]
    if path == "/v1/score":
        return [{"model": model, "input": line} for line in lines]
    halves = [" ".join(line.split()[: len(line.split()) // 2]) for line in lines]
    return [{"model": model, "prompt": p, "max_tokens": TOKENS, "seed": i} for i, p in enumerate(halves)]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server process."""
    with serving_process(folder, *options) as (url, _):
        yield url


@contextmanager
def serving_process(folder: Path, *options: str) -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    """A server process and its address."""
    command = [sys.executable, "-m", "chainrule", "serve", str(folder), "--port", "0", "--quiet"]
    command += ["--max-seconds", "600", *options]  # one at a time, the last of many clients waits long
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit(f"the server did not start: {' '.join(command)}")
        yield url, process
    finally:
        process.terminate()
        process.wait(30)


def ask(url: str, path: str, model: str, clients: int, seconds: float) -> Figures:
    """So many clients for so long, in a process of their own."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as asked:
        json.dump(bodies(path, model), asked)
        asked.flush()
        command = [sys.executable, str(Path(__file__).with_name("serve_clients.py")), url, path, asked.name]
        done = subprocess.run([*command, str(clients), str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    latencies = sorted(found["latencies"])
    p50, p90, p99 = (latencies[min(len(latencies) - 1, int(q * len(latencies)))] for q in (0.5, 0.9, 0.99))
    return Figures(len(latencies) / found["seconds"], found["tokens"] / found["seconds"], (p50, p90, p99))


def cells(found: Figures) -> list[str]:
    return [f"{found.requests:,.1f}", f"{found.tokens:,.0f}", *(f"{1000 * p:,.1f}" for p in found.latency)]


if __name__ == "__main__":
    sys.exit(main())
