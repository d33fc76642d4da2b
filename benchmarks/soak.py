"""Soak test of the server: mixed load for minutes; checks every response and the memory.

    python -m benchmarks.soak --minutes 5 --clients 16        # or: make soak MINUTES=5

One process serves a trigram and a small LSTM of the default text. Clients send completions (complete, streamed,
and streamed but cancelled halfway), scores, next-token queries, and invalid requests; every response is compared
with the same model in this process. The resident memory of the server is sampled every second; after a warm-up it
must not grow. Exits with 1 if a response was lost or wrong, or if memory grew.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
from benchmarks.corpora import machine, table

import chainrule
from chainrule.model import Model
from chainrule.text.splits import default_text

TOKENS: Final = 16
PROMPTS: Final = 100
WARM_UP: Final = 0.3  # fraction of the time before memory is evaluated
GROWTH: Final = 0.03  # allowed relative growth of memory after the warm-up, by a linear fit
WEIGHTS: Final = {"whole": 4, "stream": 3, "cancelled": 2, "score": 4, "next": 4, "refused": 1}


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected responses, computed in this process."""

    prompts: list[str]
    completions: list[str]  # greedy
    scores: list[float]
    nexts: list[list[tuple[str, float]]]


@dataclass(slots=True)
class Tally:
    """Results of the requests."""

    sent: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in WEIGHTS})
    memory: list[tuple[float, float]] = field(default_factory=list)  # (seconds, MiB)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"{machine()}\n", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folders = train(Path(scratch))
        expected = {name: expected_responses(chainrule.load(folder)) for name, folder in folders.items()}
        with serving(list(folders.values())) as (process, url):
            tally = asyncio.run(soak(url, process.pid, expected, options.clients, 60 * options.minutes))
            process.send_signal(signal.SIGTERM)
            status = process.wait(30)
    print(report(tally), flush=True)
    growth = memory_growth(tally.memory)
    problems = [*tally.wrong[:10]]
    if growth > GROWTH:
        problems.append(f"memory grew by {growth:.1%} after the warm-up; allowed: {GROWTH:.0%}")
    if status != 143:
        problems.append(f"the server exited with {status} instead of 143 (SIGTERM)")
    print("\n".join(problems) or "All responses correct, memory constant.")
    return 1 if problems else 0


def train(folder: Path) -> dict[str, Path]:
    """Train two small models; return their folders by name."""
    text = folder / "text.txt"
    text.write_text("\n".join(default_text()) + "\n", encoding="utf-8")
    settings: dict[str, dict[str, Any]] = {
        "ngram": {"order": 3},
        "lstm": {"hidden": 64, "layers": 1, "max_seconds": 5},
    }
    for family, options in settings.items():
        chainrule.train(family, text, min_count=2, **options).save(folder / family)
    return {family: folder / family for family in settings}


def expected_responses(model: Model) -> Expected:
    """Compute the expected responses."""
    lines = [line for line in default_text() if len(line.split()) >= 6][:PROMPTS]
    prompts = [" ".join(line.split()[:4]) for line in lines]
    return Expected(
        prompts=prompts,
        completions=[model.generate(p, strategy="greedy", max_tokens=TOKENS).text for p in prompts],
        scores=[model.score(prompt).log_prob for prompt in prompts],
        nexts=[model.next(prompt, top=5) for prompt in prompts],
    )


@contextmanager
def serving(folders: list[Path]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server process; yield the process and its address."""
    command = [sys.executable, "-m", "chainrule", "serve", *map(str, folders), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


async def soak(url: str, pid: int, expected: dict[str, Expected], clients: int, seconds: float) -> Tally:
    """Run the clients for some seconds."""
    tally, end = Tally(), time.monotonic() + seconds
    async with httpx2.AsyncClient(base_url=url, timeout=60) as web:
        watch = asyncio.create_task(watch_memory(pid, tally))
        await asyncio.gather(*(one_client(web, expected, tally, end, seed) for seed in range(clients)))
        watch.cancel()
        if (await web.get("/health")).status_code != 200:
            tally.wrong.append("/health fails at the end")
    return tally


async def watch_memory(pid: int, tally: Tally) -> None:
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    start = time.monotonic()
    while True:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        tally.memory.append((time.monotonic() - start, pages * page))
        await asyncio.sleep(1)


async def one_client(
    web: httpx2.AsyncClient, expected: dict[str, Expected], tally: Tally, end: float, seed: int
) -> None:
    """Send requests sequentially until the end time."""
    rng = random.Random(seed)
    while time.monotonic() < end:
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        model = rng.choice(list(expected))
        number = rng.randrange(len(expected[model].prompts))
        tally.sent[kind] += 1
        start = time.monotonic()
        try:
            problem = await REQUESTS[kind](web, model, expected[model], number)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        tally.seconds[kind].append(time.monotonic() - start)
        if problem is None:
            tally.right[kind] += 1
        else:
            tally.wrong.append(f"{kind} of {model}, prompt {number}: {problem}")


async def whole(web: httpx2.AsyncClient, model: str, expected: Expected, number: int) -> str | None:
    body = {"model": model, "prompt": expected.prompts[number], "max_tokens": TOKENS, "temperature": 0}
    answer = await web.post("/v1/completions", json=body)
    answer.raise_for_status()
    return differ(answer.json()["choices"][0]["text"], expected.completions[number])


async def stream(web: httpx2.AsyncClient, model: str, expected: Expected, number: int) -> str | None:
    body = {
        "model": model,
        "prompt": expected.prompts[number],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    text, is_done = "", False
    async with web.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                is_done = True
            elif line.startswith("data: "):
                text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
    return differ(text, expected.completions[number]) if is_done else "the stream was not terminated"


async def cancelled(web: httpx2.AsyncClient, model: str, expected: Expected, number: int) -> str | None:
    body = {"model": model, "prompt": expected.prompts[number], "max_tokens": 2000, "n": 4, "stream": True}
    async with web.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_lines():
            break
    return None


async def score(web: httpx2.AsyncClient, model: str, expected: Expected, number: int) -> str | None:
    answer = await web.post("/v1/score", json={"model": model, "input": expected.prompts[number]})
    answer.raise_for_status()
    return differ(answer.json()["results"][0]["log_prob"], expected.scores[number])


async def following(web: httpx2.AsyncClient, model: str, expected: Expected, number: int) -> str | None:
    answer = await web.post("/v1/next", json={"model": model, "prompt": expected.prompts[number], "top": 5})
    answer.raise_for_status()
    candidates = [(item["token"], item["probability"]) for item in answer.json()["next"]]
    right = expected.nexts[number]
    if [token for token, _ in candidates] != [token for token, _ in right]:
        return f"{candidates}, not {right}"
    return next(
        (problem for (_, a), (_, b) in zip(candidates, right, strict=True) if (problem := differ(a, b))), None
    )


async def refused(web: httpx2.AsyncClient, model: str, expected: Expected, number: int) -> str | None:
    answer = await web.post("/v1/completions", json={"model": model, "prompt": "", "colour": number})
    return differ((answer.status_code, answer.json()["error"]["param"]), (400, "colour"))


REQUESTS: Final[dict[str, Callable[[httpx2.AsyncClient, str, Expected, int], Awaitable[str | None]]]] = {
    "whole": whole,
    "stream": stream,
    "cancelled": cancelled,
    "score": score,
    "next": following,
    "refused": refused,
}


def differ(actual: Any, right: Any) -> str | None:
    """Describe the difference of two values, None if they agree (floats to a relative 1e-5)."""
    if isinstance(right, float):
        return None if math.isclose(actual, right, rel_tol=1e-5) else f"{actual}, not {right}"
    return None if actual == right else f"{actual!r}, not {right!r}"


def memory_growth(memory: list[tuple[float, float]]) -> float:
    """Return the relative growth of memory after the warm-up by a linear fit."""
    times, sizes = np.array([(at, size) for at, size in memory if at >= WARM_UP * memory[-1][0]]).T
    if len(times) < 2:
        return 0.0
    slope, first = np.polyfit(times - times[0], sizes, 1)
    return float(slope * (times[-1] - times[0]) / first)


def report(tally: Tally) -> str:
    """Format the table of requests and the memory usage."""
    rows = []
    for kind in WEIGHTS:
        spent = sorted(tally.seconds[kind]) or [0.0]
        quantiles = [f"{1000 * spent[int(q * (len(spent) - 1))]:,.0f}" for q in (0.5, 0.99, 1.0)]
        rows.append([kind, f"{tally.sent[kind]:,}", f"{tally.right[kind]:,}", *quantiles])
    sizes = [size for _, size in tally.memory]
    growth = memory_growth(tally.memory)
    tenths = " ".join(f"{sizes[i * (len(sizes) - 1) // 10]:,.0f}" for i in range(11))
    memory = f"Memory, MiB, at each tenth of the time: {tenths}; maximum {max(sizes):,.0f}; "
    head = ["requests", "sent", "correct", "p50 ms", "p99 ms", "max ms"]
    return table(head, rows) + "\n" + memory + f"{growth:+.2%} after the warm-up (linear fit)."


if __name__ == "__main__":
    sys.exit(main())
