"""Measure training on GPUs: the plain step against one rank through nccl, and model FLOP/s utilisation.

    PYTHONPATH=src python benchmarks/distributed_gpu.py [--models 124M,1.1B] [--rounds 3] [--compile]
    PYTHONPATH=src torchrun --nproc-per-node 8 benchmarks/distributed_gpu.py

It needs torch, numpy and the sources of chainrule only: neither the extension nor a text. The ids are random
numbers in a temporary file. Both paths replay a CUDA graph and read the same mapped file; they are timed
alternately, and the median over the rounds is printed. With the weights N of all matrix products (with the tied
output matrix, without the lookup of the embedding), L layers, width D and windows of T tokens,

    FLOP per token = 6 N + 6 L T D      (forward and backward; causal attention counted by half)
    MFU            = tokens/s of a GPU · FLOP per token / peak      (--peak: 989e12, dense bf16 of an H100 or H200)
"""

import argparse
import gc
import importlib.util
import os
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

if importlib.util.find_spec("safetensors") is None:  # not needed: nothing is saved
    for name in ("safetensors", "safetensors.torch", "safetensors.numpy"):
        stub: Any = types.ModuleType(name)
        stub.SafetensorError, stub.save, stub.load = ValueError, None, None
        sys.modules[name] = stub

from chainrule.data.encoded import MappedIds
from chainrule.lm import Vocabulary
from chainrule.neural import transformer
from chainrule.training import ranks
from chainrule.training.batches import MappedStream
from chainrule.training.config import TrainingConfig
from chainrule.training.ranks import Ranks
from chainrule.training.step import CudaGraphStepper, TrainingStep, next_token

V = 50_304
TOKENS = 50_000_000
MODELS: dict[str, dict[str, int]] = {
    "124M": {"layers": 12, "hidden": 768, "heads": 12, "window": 1024, "batch": 64, "accumulate": 2, "steps": 20},
    "1.1B": {"layers": 20, "hidden": 2048, "heads": 16, "window": 2048, "batch": 32, "accumulate": 4, "steps": 8},
}


class Run:
    """The steps of one network on one path."""

    def __init__(self, size: dict[str, int], path: Path, team: Ranks, *, compiles: bool) -> None:
        self.size = size
        training = TrainingConfig(
            batch_size=size["batch"] * team.size,
            accumulate=size["accumulate"],
            bptt=size["window"],
            precision="bf16",
            learning_rate=1e-4,
            compile=compiles,
        )
        config = transformer.Config(
            layers=size["layers"],
            hidden=size["hidden"],
            heads=size["heads"],
            window=size["window"],
            dropout=0.0,
            positions="rotary",
            training=training,
        )
        gpu = torch.device("cuda")
        torch.manual_seed(1)
        self.network = transformer.Transformer(config, Vocabulary(V, 0, 1, 2), None).to(gpu).train()
        step = TrainingStep(self.network, next_token, training, gpu, team)
        ids = MappedIds([np.memmap(path, np.uint16, "r")])
        self.source = MappedStream(ids, training, 1, gpu, team.rank, team.size)
        self.stepper = CudaGraphStepper(step, self.source)
        self.updates = self._updates()

    def _updates(self) -> Iterator[None]:
        epoch = 0
        while True:
            yield from self.stepper.epoch(epoch, 0)
            epoch += 1

    def tokens_per_second(self, steps: int) -> float:
        """Tokens of this rank per second of wall time."""
        next(self.updates)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            next(self.updates)
        torch.cuda.synchronize()
        return float(steps * self.source.B * self.source.T / (time.perf_counter() - start))

    def flop_per_token(self) -> float:
        """6 N + 6 L T D, as in the docstring of this module."""
        N: int = sum(parameter.numel() for parameter in self.network.parameters())  # the tied matrix counts once
        return 6 * N + 6 * self.size["layers"] * self.size["window"] * self.size["hidden"]


def measure(name: str, path: Path, arguments: argparse.Namespace) -> None:
    """Time the paths alternately and print their medians."""
    size = MODELS[name] | {key: value for key in ("batch", "accumulate") if (value := getattr(arguments, key))}
    teams = {"distributed": ranks.current()}
    if teams["distributed"].size == 1:
        teams = {"plain": Ranks()} | teams
    speeds: dict[str, list[float]] = {path_name: [] for path_name in teams}
    flop = memory = 0.0
    for _ in range(arguments.rounds):
        for path_name, team in teams.items():
            torch.cuda.reset_peak_memory_stats()
            run = Run(size, path, team, compiles=arguments.compile)
            speeds[path_name].append(run.tokens_per_second(size["steps"]))
            flop, memory = run.flop_per_token(), torch.cuda.max_memory_allocated() / 2**30
            del run
            gc.collect()  # the generator of the steps refers to the run
            torch.cuda.empty_cache()
    if not teams["distributed"].is_first:
        return
    for path_name, values in speeds.items():
        speed = statistics.median(values)
        print(
            f"{name} {path_name} ({teams[path_name].size} GPU): {speed:,.0f} tokens/s a GPU, "
            f"MFU {speed * flop / arguments.peak:.1%}, {flop / 1e9:.2f} GFLOP/token, {memory:.1f} GiB, "
            f"batch {size['batch']} in {size['accumulate']} parts; rounds {[round(value) for value in values]}",
            flush=True,
        )
    if "plain" in speeds:
        ratio = statistics.median(speeds["distributed"]) / statistics.median(speeds["plain"])
        print(f"{name}: one rank through nccl has {ratio:.1%} of the speed of the plain path", flush=True)


def main() -> None:
    """Measure the chosen models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="124M,1.1B")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=0, help="rows of a GPU in each update")
    parser.add_argument("--accumulate", type=int, default=0)
    parser.add_argument("--peak", type=float, default=989e12)
    parser.add_argument("--compile", action="store_true", help="torch.compile the network")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        store = ranks.make_store()
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    with tempfile.TemporaryDirectory() as folder, ranks.process_group("cuda") as team:
        path = Path(folder) / "ids"
        np.random.default_rng(0).integers(3, V, TOKENS).astype(np.uint16).tofile(path)
        if team.is_first:
            print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
        for name in arguments.models.split(","):
            measure(name, path, arguments)


if __name__ == "__main__":
    main()
