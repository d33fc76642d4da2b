"""Measure training from mapped ids against ids in memory, gradient accumulation, and several processes.

    python -m benchmarks.streams [--tokens 200000000] [--steps 60] [--processes 2]

Each configuration runs in a new process, which reports tokens per second of wall and CPU time after a warm-up, and
the peak of its resident memory; of several processes, CPU time and memory are those of rank 0. The ids are random
numbers in a temporary file of uint16.
"""

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.corpora import table

from chainrule.data.encoded import MappedIds
from chainrule.lm import Vocabulary
from chainrule.neural import lstm, transformer
from chainrule.training import ranks
from chainrule.training.batches import MappedStream, StreamBatches
from chainrule.training.config import TrainingConfig
from chainrule.training.step import EagerStepper, TrainingStep, next_token

V = 2000
BLOCK = 10_000_000
WARM_UP = 5
NETWORKS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "lstm 256": (lstm, {"hidden": 256, "dropout": 0.0}, {"batch_size": 32, "bptt": 35}),
    "transformer 4x128": (
        transformer,
        {"hidden": 128, "layers": 4, "dropout": 0.0},
        {"batch_size": 32, "bptt": 128},
    ),
}


def write_ids(path: Path, tokens: int) -> None:
    """Write random ids below V as uint16."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for first in range(0, tokens, BLOCK):
            rng.integers(0, V, min(BLOCK, tokens - first)).astype(np.uint16).tofile(file)


def read(path: Path, batch: int, bptt: int, steps: int) -> dict[str, float]:
    """Read windows without training."""
    config = TrainingConfig(batch_size=batch, bptt=bptt)
    source = MappedStream(MappedIds([np.memmap(path, np.uint16, "r")]), config, 1, torch.device("cpu"))
    cpu, wall = time.process_time(), time.perf_counter()
    for count, _ in enumerate(source.windows(0), start=1):
        if count == steps:
            break
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return _figures(count * batch * bptt, wall, cpu)


def train(path: Path, network: str, source: str, accumulate: int, steps: int) -> dict[str, float]:
    """Train for some steps, after a warm-up."""
    torch.set_num_threads(1)
    module, model, training = NETWORKS[network]
    config = module.Config(**model, training=TrainingConfig(**training, accumulate=accumulate))
    torch.manual_seed(1)
    net = module.build(config, Vocabulary(V, 0, 1, 2), None).train()
    team, cpu_device = ranks.current(), torch.device("cpu")
    step = TrainingStep(net, next_token, config.training, cpu_device, team)
    ids = np.memmap(path, np.uint16, "r")
    batches: Any = MappedStream(MappedIds([ids]), config.training, 1, cpu_device, team.rank, team.size)
    if source == "memory":
        batches = StreamBatches(np.array(ids), config.training, 1, cpu_device)
    updates = EagerStepper(step, batches).epoch(0, 0)
    for _ in range(WARM_UP):
        next(updates)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(steps):
        next(updates)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return _figures(steps * training["batch_size"] * training["bptt"], wall, cpu)


def _figures(tokens: int, wall: float, cpu: float) -> dict[str, float]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tokens/s": tokens / wall, "tokens/CPU s": tokens / cpu, "peak MiB": peak}


def _run(function: Any, arguments: tuple[Any, ...], rank: int, size: int, port: int, pipe: Any) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
    }
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    if size == 1:
        figures = function(*arguments)
    else:
        with ranks.process_group("cpu"):
            figures = function(*arguments)
    if rank == 0:
        pipe.send(json.dumps(figures))


def in_processes(function: Any, *arguments: Any, size: int = 1) -> dict[str, float]:
    """Run a function in new processes; return the figures of rank 0."""
    store = ranks.make_store()
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_run, args=(function, arguments, rank, size, store.port, sender))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    figures: dict[str, float] = json.loads(receiver.recv())
    return figures


def main() -> None:
    """Print a table of all configurations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    rows: list[list[str]] = []

    def add(name: str, figures: dict[str, float]) -> None:
        rows.append([name, *(f"{value:,.0f}" for value in figures.values())])
        print(name, rows[-1][1:], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        write_ids(path, arguments.tokens)
        for batch, bptt in ((64, 256), (32, 2048), (20, 35)):
            add(f"read {batch}x{bptt}", in_processes(read, path, batch, bptt, 2000))
        for network in NETWORKS:
            for source in ("memory", "mapped"):
                add(f"{network}, {source}", in_processes(train, path, network, source, 1, arguments.steps))
            add(f"{network}, accumulate 4", in_processes(train, path, network, "mapped", 4, arguments.steps))
            size = arguments.processes
            figures = in_processes(train, path, network, "mapped", 1, arguments.steps, size=size)
            add(f"{network}, {size} processes", figures)
    print(table(["configuration", "tokens/s", "tokens/CPU s", "peak MiB"], rows))


if __name__ == "__main__":
    main()
