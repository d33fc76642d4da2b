"""Benchmark the server on loopback: requests per second and latency, compared with in-process calls.

    python -m benchmarks.serve --clients 1,8,64 --seconds 5
    python -m benchmarks.serve --busy 1000 --seconds 10

Two models of Penn Treebank are used: a 5-gram, and a 2×650 LSTM trained for one second, since its quality does
not matter here. Requests are completions of up to 16 tokens and scores of whole lines. Each client sends its next
request after the response to the last. Server and clients are separate processes that share all cores. Finally
the LSTM is measured without batching (`--rows 1`) at the largest number of clients.

`--busy N` instead measures the latency of `GET /health` while N connections request eight completions of 64
tokens each from the 5-gram, and then the time from SIGTERM to exit.
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
LINES: Final = 1000  # of the validation text, used cyclically
BUSY_SECONDS: Final = 3.0  # until all connections are busy
BATCHING_GAIN: Final = 4.0  # required speed-up of the LSTM at the largest number of clients
HEAD: Final = ["", "clients", "requests/s", "tokens/s", "p50 ms", "p90 ms", "p99 ms", "in process, requests/s"]


@dataclass(frozen=True, slots=True)
class Figures:
    """Throughput and latency of one run."""

    requests: float  # per second
    tokens: float  # per second, generated or scored
    latency: tuple[float, float, float]  # seconds: p50, p90, p99


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--models", type=Path, default=ROOT / "build" / "serve-models", help="model folder, reused between runs"
    )
    parser.add_argument("--busy", type=int, metavar="N", help="measure /health under N busy connections")
    parser.add_argument("--only", choices=("ngram", "lstm"), help="measure one of the models")
    options = parser.parse_args()
    clients = [int(number) for number in options.clients.split(",")]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"{machine()}\nServer and clients share {len(os.sched_getaffinity(0))} cores.\n", flush=True)
    if options.busy:
        health_while_busy(train_or_reuse("ngram", options.models), options.busy, options.seconds)
        return 0
    names = [options.only] if options.only else ["ngram", "lstm"]
    folders = {name: train_or_reuse(name, options.models) for name in names}
    rows, batched = [], 0.0
    for name, folder in folders.items():
        in_process_rates = in_process(chainrule.load(folder), options.seconds)
        with serving(folder) as url:
            for path in ("/v1/completions", "/v1/score"):
                for number in clients:
                    figures = load(url, path, name, number, options.seconds)
                    rows.append([f"{name} {path}", str(number), *cells(figures), f"{in_process_rates[path]:,.1f}"])
                    print("  ".join(rows[-1]), file=sys.stderr, flush=True)
                    if (path, name, number) == ("/v1/completions", "lstm", max(clients)):
                        batched = figures.requests
    print(table(HEAD, rows), flush=True)
    return check_batching(folders["lstm"], max(clients), options.seconds, batched) if "lstm" in folders else 0


def check_batching(folder: Path, clients: int, seconds: float, batched: float) -> int:
    """Measure the LSTM without batching; return 1 if batching gains too little."""
    with serving(folder, "--rows", "1") as url:
        unbatched = load(url, "/v1/completions", "lstm", clients, seconds)
    gain = batched / unbatched.requests
    print(table(HEAD[:-1], [["lstm /v1/completions, no batching", str(clients), *cells(unbatched)]]))
    print(f"Batching: {gain:.1f} times the requests per second at {clients} clients; required: {BATCHING_GAIN:g}.")
    return 0 if gain >= BATCHING_GAIN else 1


def health_while_busy(folder: Path, connections: int, seconds: float) -> None:
    """Print the latency of `/health` under load, and the time from SIGTERM to exit."""
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
    figures = f"{len(latencies)} requests, median {median:,.0f} ms, worst {worst:,.0f} ms"
    print(f"/health with {connections} busy connections: {figures}")
    print(f"SIGTERM to exit: {stopped:.1f} s (--grace 5)")


def _keep_busy(port: int, connections: int, request: bytes) -> None:
    """Send the request repeatedly on each of the connections; runs in a separate process."""

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


def train_or_reuse(name: str, models: Path) -> Path:
    """Return the folder of a model, trained if it does not exist."""
    folder = models / name
    if not folder.exists():
        text = BENCHMARKS["ptb"].corpus("train")
        settings: dict[str, Any] = (
            {"hidden": 650, "layers": 2, "max_seconds": 1} if name == "lstm" else {"order": 5}
        )
        chainrule.train(name, text, **settings).save(folder)
    return folder


def in_process(model: Model, seconds: float) -> dict[str, float]:
    """Return the calls per second of the model in this process, by the corresponding path."""
    calls: dict[str, Any] = {
        "/v1/completions": lambda body: model.generate(
            body["prompt"], max_tokens=body["max_tokens"], seed=body["seed"]
        ),
        "/v1/score": lambda body: model.score(body["input"]),
    }
    rates = {}
    for path, call in calls.items():
        requests = bodies(path, "")
        call(requests[0])
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            call(requests[count % len(requests)])
            count += 1
        rates[path] = count / (time.perf_counter() - start)
    return rates


def bodies(path: str, model: str) -> list[dict[str, Any]]:
    """Return the request bodies: half a line to continue, or a line to score."""
    corpus: Corpus = BENCHMARKS["ptb"].corpus("valid")
    lines = [line for line, _ in zip(corpus, range(LINES), strict=False)]
    if path == "/v1/score":
        return [{"model": model, "input": line} for line in lines]
    halves = [" ".join(line.split()[: len(line.split()) // 2]) for line in lines]
    return [{"model": model, "prompt": p, "max_tokens": TOKENS, "seed": i} for i, p in enumerate(halves)]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Run a server process and yield its address."""
    with serving_process(folder, *options) as (url, _):
        yield url


@contextmanager
def serving_process(
    folder: Path, *options: str, python: str = sys.executable
) -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    """Run a server process of a Python interpreter; yield its address and the process."""
    command = [python, "-m", "chainrule", "serve", str(folder), "--port", "0", "--quiet"]
    command += ["--max-seconds", "600", *options]  # without batching, the last of many clients waits long
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


def load(url: str, path: str, model: str, clients: int, seconds: float) -> Figures:
    """Run clients in a separate process for some seconds and return their figures."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(bodies(path, model), file)
        file.flush()
        command = [sys.executable, str(Path(__file__).with_name("serve_clients.py")), url, path, file.name]
        done = subprocess.run([*command, str(clients), str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout)
    latencies = sorted(result["latencies"])
    p50, p90, p99 = (latencies[min(len(latencies) - 1, int(q * len(latencies)))] for q in (0.5, 0.9, 0.99))
    return Figures(len(latencies) / result["seconds"], result["tokens"] / result["seconds"], (p50, p90, p99))


def cells(figures: Figures) -> list[str]:
    return [f"{figures.requests:,.1f}", f"{figures.tokens:,.0f}", *(f"{1000 * p:,.1f}" for p in figures.latency)]


if __name__ == "__main__":
    sys.exit(main())
