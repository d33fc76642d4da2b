"""Benchmark GPU training and generation against a plain eager loop and against nanoGPT.

    python -m benchmarks.gpu --nanogpt FOLDER

FOLDER contains nanoGPT's model.py. Both sides of a comparison are timed alternately in one run; the median over
the rounds is reported.
"""

import argparse
import importlib.util
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.corpora import table
from torch import Tensor, nn

from chainrule.lm import Vocabulary
from chainrule.neural import lstm, transformer
from chainrule.neural.model import NeuralModel
from chainrule.training.batches import StreamBatches
from chainrule.training.config import Precision, TrainingConfig
from chainrule.training.step import HALF, CudaGraphStepper, TrainingStep, next_token

ROUNDS = 5
GPU = torch.device("cuda")


@dataclass(frozen=True)
class Size:
    """Size of a benchmarked LSTM."""

    layers: int
    hidden: int
    batch: int
    window: int
    precision: Precision


SIZES = [
    Size(2, 200, 20, 35, "fp32"),
    Size(2, 650, 20, 35, "fp32"),
    Size(3, 1150, 20, 70, "fp32"),
    Size(2, 200, 20, 35, "fp16"),
    Size(2, 650, 20, 35, "fp16"),
    Size(3, 1150, 20, 70, "fp16"),
    Size(3, 1024, 40, 70, "fp16"),
]
V = 10_000


def vocabulary(size: int = V) -> Vocabulary:
    return Vocabulary(size=size, bos=0, eos=1, unk=2)


class EagerLSTM(nn.Module):
    """The same network as in the PyTorch example: embedding, dropout, nn.LSTM, tied linear layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, size.hidden)
        self.lstm = nn.LSTM(size.hidden, size.hidden, size.layers, dropout=0.2)
        self.linear = nn.Linear(size.hidden, V)
        self.linear.weight = self.embedding.weight
        self.drop = nn.Dropout(0.2)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(T, B) ids -> (T, B, V) logits and the next state."""
        hidden, state = self.lstm(self.drop(self.embedding(ids)), state)
        return self.linear(self.drop(hidden)), state


def eager_lstm(size: Size, ids: Tensor) -> Callable[[int], None]:
    net = EagerLSTM(size).to(GPU)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    columns = ids[: len(ids) // size.batch * size.batch].view(size.batch, -1).t().contiguous()
    zeros = torch.zeros(size.layers, size.batch, size.hidden, device=GPU)
    state: Any = (zeros, zeros)
    scaler = torch.amp.GradScaler("cuda", enabled=size.precision == "fp16")
    at = 0

    def run(steps: int) -> None:
        nonlocal state, at
        for _ in range(steps):
            at = at if at + size.window + 1 < len(columns) else 0
            x, y = columns[at : at + size.window], columns[at + 1 : at + 1 + size.window]
            at += size.window
            state = tuple(s.detach() for s in state)
            optimizer.zero_grad()
            with torch.autocast("cuda", HALF.get(size.precision), enabled=size.precision in HALF):
                logits, state = net(x, state)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.25)
            scaler.step(optimizer)
            scaler.update()

    return run


def our_lstm(size: Size, ids: Tensor) -> Callable[[int], None]:
    config = lstm.Config(
        layers=size.layers,
        hidden=size.hidden,
        dropout=0.2,
        locked=False,
        training=TrainingConfig(batch_size=size.batch, bptt=size.window, clip=0.25, precision=size.precision),
    )
    network = lstm.build(config, vocabulary(), None).to(GPU).train()
    source = StreamBatches(ids.cpu().numpy(), config.training, 0, GPU)
    return step_runner(CudaGraphStepper(TrainingStep(network, next_token, config.training, GPU), source))


def step_runner(reader: CudaGraphStepper) -> Callable[[int], None]:
    """Return a function that runs a number of steps, cycling through epochs."""
    epochs = iter(range(1 << 30))
    steps: Iterator[None] = iter(())

    def run(number: int) -> None:
        nonlocal steps
        for _ in range(number):
            if next(steps, "over") == "over":
                steps = reader.epoch(next(epochs), 0)
                next(steps)

    return run


def time_alternately(runs: dict[str, Callable[[int], None]], steps: int) -> dict[str, float]:
    """Return the median milliseconds per step over alternating rounds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(steps // 2 + 1)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            run(steps)
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - start) / steps * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def lstms() -> str:
    ids = torch.from_numpy(np.random.default_rng(0).integers(3, V, 400_000)).to(GPU)
    rows = []
    for size in SIZES:
        milliseconds = time_alternately({"eager": eager_lstm(size, ids), "ours": our_lstm(size, ids)}, 60)
        name = f"{size.layers}×{size.hidden} LSTM, batch {size.batch}, window {size.window}, {size.precision}"
        ratio = milliseconds["eager"] / milliseconds["ours"]
        rows.append([name, f"{milliseconds['eager']:.2f}", f"{milliseconds['ours']:.2f}", f"{ratio:.2f}"])
        torch.cuda.empty_cache()
    return table(["net (V = 10,000, tied)", "eager loop, ms/step", "chainrule, ms/step", "speed-up"], rows)


def transformers(folder: Path) -> str:
    B, T, size = 64, 256, 65
    config = transformer.Config(
        hidden=384,
        layers=6,
        heads=6,
        window=T,
        dropout=0.2,
        positions="learned",
        training=TrainingConfig(bptt=T, batch_size=B, precision="bf16", compile=True),
    )
    ids = np.random.default_rng(0).integers(3, size, 1_000_000)
    network = transformer.build(config, vocabulary(size), None).to(GPU).train()
    step = TrainingStep(network, next_token, config.training, GPU)
    ours = step_runner(CudaGraphStepper(step, StreamBatches(ids, config.training, 0, GPU)))
    runs = {"nanoGPT": nanogpt(folder, torch.from_numpy(ids).to(GPU), B, T, size), "chainrule": ours}
    milliseconds = time_alternately(runs, 60)
    rows = [[name, f"{ms:.2f}", f"{B * T / ms * 1e3:,.0f}"] for name, ms in milliseconds.items()]
    rows.append(["speed-up", f"{milliseconds['nanoGPT'] / milliseconds['chainrule']:.2f}", ""])
    return table(["6×384 Transformer, batch 64, window 256, bf16, compiled", "ms/step", "tokens/s"], rows)


def nanogpt(folder: Path, ids: Tensor, B: int, T: int, size: int) -> Callable[[int], None]:
    """Return the compiled nanoGPT model with the steps of its training loop."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=T, vocab_size=size, n_layer=6, n_head=6, n_embd=384, dropout=0.2, bias=False
    )
    model = module.GPT(config).to(GPU)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cuda")
    compiled = torch.compile(model)

    def run(steps: int) -> None:
        for _ in range(steps):
            at = torch.randint(len(ids) - T - 1, (B,)).tolist()
            x = torch.stack([ids[i : i + T] for i in at])
            y = torch.stack([ids[i + 1 : i + 1 + T] for i in at])
            with torch.autocast("cuda", torch.bfloat16):
                _, loss = compiled(x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return run


def generation() -> str:
    """Measure tokens per second of `step`, with a recurrent state or a key/value cache."""
    nets: dict[str, Any] = {
        "2×650 LSTM, V = 10,000": lstm.build(lstm.Config(layers=2, hidden=650), vocabulary(), None),
        "6×384 Transformer, V = 10,000": transformer.build(
            transformer.Config(hidden=384, layers=6, heads=6, window=256), vocabulary(), None
        ),
    }
    rows = []
    for name, network in nets.items():
        model = NeuralModel(network.to(GPU), vocabulary(), "stream")
        for K in (1, 64):
            state, ids, tokens = model.start(K), np.full(K, 3), 200
            for i in range(tokens + 20):
                if i == 20:
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                log_p, state = model.step(state, ids)
                ids = log_p.argmax(axis=1)
            seconds = time.perf_counter() - start
            rows.append([name, str(K), f"{K * tokens / seconds:,.0f}"])
    return table(["greedy generation", "batch", "tokens/s"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", type=Path, help="folder with nanoGPT's model.py")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print(lstms(), end="\n\n", flush=True)
    if arguments.nanogpt:
        print(transformers(arguments.nanogpt), end="\n\n", flush=True)
    print(generation())


if __name__ == "__main__":
    main()
