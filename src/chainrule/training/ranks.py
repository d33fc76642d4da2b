"""Training on several processes (ranks) with torch.distributed, which only this module imports.

Every rank holds all weights and computes its rows of each batch; the gradients are added in one all-reduce before
they are clipped. Rank 0 prepares the text, decides about time and checkpoints, validates, writes and prints. The
processes are started by torchrun or by `launch`.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from chainrule import system
from chainrule.errors import ConfigError, LostRankError, UsageError
from chainrule.lm import Ids

STEP_TIMEOUT: Final = timedelta(minutes=30)
"""Longest time in which the ranks wait for each other in a training step."""
WAIT_TIMEOUT: Final = timedelta(days=30)
"""Longest time in which the ranks wait for rank 0, which prepares the text or validates."""
GRACE: Final = 20.0
"""Seconds that the other processes get to end by themselves after one has failed, and again after SIGTERM."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_waiting: list[Any] = []  # the process group in which ranks wait for rank 0


@dataclass(frozen=True, slots=True)
class Ranks:
    """The current process among those that train a network; without a process group the only one."""

    rank: int = 0
    size: int = 1
    is_distributed: bool = False  # whether there is a process group, which may have a single rank

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone writes and prints."""
        return self.rank == 0

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all ranks."""
        if self.is_distributed:
            with translate_errors():
                dist.all_reduce(tensor)

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each value over all ranks."""
        if not self.is_distributed:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)  # on the CPU: does not wait for a GPU
        with translate_errors():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        result: list[float] = tensor.tolist()
        return result

    def from_first(self, compute: Callable[[], Any]) -> Any:
        """Return the JSON value that `compute` returns in rank 0, which alone calls it."""
        if not self.is_distributed:
            return compute()
        content = json.dumps(compute()).encode() if self.is_first else b""
        size = torch.tensor([len(content)])
        with translate_errors():
            dist.broadcast(size, 0, group=_waiting[0])
            data = torch.frombuffer(bytearray(content), dtype=torch.uint8) if self.is_first else None
            data = torch.empty(int(size), dtype=torch.uint8) if data is None else data
            dist.broadcast(data, 0, group=_waiting[0])
        return json.loads(bytes(data.numpy()))

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy the tensors of rank 0 in place."""
        if not self.is_distributed:
            return
        for tensor in tensors:
            with translate_errors():
                dist.broadcast(tensor.detach(), 0)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, of one shape, on the CPU."""
        if not self.is_distributed:
            return [tensor]
        local = tensor.detach().cpu().contiguous()
        local, is_bool = (local.to(torch.uint8), True) if local.dtype == torch.bool else (local, False)
        parts = [torch.empty_like(local) for _ in range(self.size)]
        with translate_errors():
            dist.all_gather(parts, local)
        return [part.bool() for part in parts] if is_bool else parts

    def gather_rows(self, tensor: Tensor, rows: Ids, total: int) -> Tensor:
        """Join the (b, …) rows of all ranks, given their indices in the (B, …) result; extra rows are ignored."""
        most = -(-total // self.size)
        indices = torch.full((most,), -1)
        indices[: len(rows)] = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64))
        padded = tensor.new_zeros(most, *tensor.shape[1:])
        padded[: len(rows)] = tensor[: len(rows)]
        joined = torch.zeros(total, *tensor.shape[1:], dtype=tensor.dtype)
        for part, part_rows in zip(self.gather(padded), self.gather(indices), strict=True):
            joined[part_rows[part_rows >= 0]] = part[part_rows >= 0]
        return joined

    def wait(self) -> None:
        """Wait until all ranks get here, however long rank 0 takes."""
        self.from_first(lambda: None)
        self.largest([0.0])


def current() -> Ranks:
    """Return this process among the ranks of the process group, or as the only one."""
    if not dist.is_available() or not dist.is_initialized():
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size(), is_distributed=True)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Convert an error of a collective operation to LostRankError."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        raise LostRankError(
            "another process of this run ended or does not answer; see its message, and continue with --resume"
        ) from error


@contextmanager
def process_group(device: str) -> Iterator[Ranks]:
    """Join the processes that torchrun or `launch` started, for the block: nccl on GPUs, gloo on the CPU."""
    local_rank, local_size = (int(os.environ.get(f"LOCAL_{name}", 0)) for name in ("RANK", "WORLD_SIZE"))
    backend = "gloo"
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        if local_size > torch.cuda.device_count():
            raise UsageError(
                f"{local_size} processes cannot share {torch.cuda.device_count()} GPUs; start one for each GPU, "
                "or choose --device cpu"
            )
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    if local_size == system.rank_and_size()[1]:  # on one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with translate_errors():
        dist.init_process_group(backend, timeout=STEP_TIMEOUT)
        _waiting[:] = [dist.new_group(backend="gloo", timeout=WAIT_TIMEOUT)]
    try:
        yield current()
    finally:
        close()


def close() -> None:
    """Leave the process group, if there is one."""
    _waiting.clear()
    if dist.is_initialized():
        with suppress(RuntimeError):
            dist.destroy_process_group()


def backends() -> list[str]:
    """Return the communication backends that torch was built with."""
    if not dist.is_available():
        return []
    available = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available(), "mpi": dist.is_mpi_available()}
    return [name for name, is_available in available.items() if is_available]


def is_launcher_gone() -> bool:
    """Whether the process that started this one by `launch` has ended."""
    launcher = os.environ.get(system.LAUNCHER)
    return launcher is not None and os.getppid() != int(launcher)


def make_store() -> dist.TCPStore:
    """Open a store on a free port of this machine, through which the processes find each other."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def launch(processes: int, arguments: Sequence[str], threads: int | None = None) -> int:
    """Run `chainrule` with the arguments in several processes on this machine, as torchrun does.

    Signals are passed on. When one process fails, the others are stopped. Returns the exit status of the run.

    Raises:
        LostRankError: a process was killed.

    """
    if processes < 1:
        raise ConfigError(f"processes is {processes}; choose 1 or more")
    store = make_store()
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is in this process
        "TORCHELASTIC_RESTART_COUNT": "0",
        system.LAUNCHER: str(os.getpid()),
    }
    if "TORCH_CPP_LOG_LEVEL" not in os.environ:
        shared["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # a lost connection is reported once, by this process
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        shared["OMP_NUM_THREADS"] = str(max(1, system.thread_count() // processes))
    children: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(processes):
            children.append(_start(rank, arguments, {**os.environ, **shared}))
        with _forward_signals(children):
            return _wait_for(children)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()


def _start(rank: int, arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "chainrule", *arguments],
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdin=None if rank == 0 else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches the processes once, through this one
    )


@contextmanager
def _forward_signals(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def forward(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all processes; stop the others when one has failed."""
    ended: queue.Queue[tuple[int, int]] = queue.Queue()
    for rank, child in enumerate(children):
        threading.Thread(target=lambda r=rank, c=child: ended.put((r, c.wait())), daemon=True).start()
    statuses: dict[int, int] = {}
    stops = [signal.SIGTERM, signal.SIGKILL]
    was_stopped = False
    while len(statuses) < len(children):
        grace = GRACE if any(statuses.values()) and stops else None
        if statuses.get(0) and not was_stopped:
            grace = 0.0  # nothing is left to be saved
        try:
            rank, status = ended.get(timeout=grace)
        except queue.Empty:
            was_stopped, number = True, stops.pop(0)
            for rank, child in enumerate(children):
                if rank not in statuses:
                    child.send_signal(number)
            continue
        if status >= 0 or not was_stopped:
            statuses[rank] = status
        else:
            statuses[rank] = system.LOST
    for rank, status in statuses.items():
        if status < 0:
            name = signal.Signals(-status).name
            raise LostRankError(f"process {rank} of this run was ended by {name}; continue with --resume")
    failures = [status for _, status in sorted(statuses.items()) if status not in (0, system.LOST)]
    if failures:
        return failures[0]
    if any(statuses.values()):
        raise LostRankError("the processes of this run lost their connection; continue with --resume")
    return 0
