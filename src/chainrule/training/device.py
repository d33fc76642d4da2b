"""Device, arithmetic precision and CPU threads of a network.

Threads synchronize after every matrix product. With OMP_WAIT_POLICY=passive, which chainrule sets by default to
share the machine, each wake-up is slow: an LSTM layer of 128 cells, 20 rows, forward and backward over 35 steps,
takes 5 ms on one thread and 24 ms on two; one of 1,024 cells takes 300 ms and 210 ms (2 cores, 2026-11-15). So
small sequential work runs on one thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from chainrule.errors import UsageError


def select_device(name: str) -> torch.device:
    """Return the named torch device; `auto` is the GPU if available, else the CPU."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("device is 'cuda', but torch finds no GPU here; choose cpu, or see chainrule doctor")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def device_of(network: nn.Module) -> torch.device:
    """Return the device of the network's parameters."""
    device: torch.device = next(network.parameters()).device
    return device


@contextmanager
def exact_inference() -> Iterator[None]:
    """Disable gradients and TF32 matrix products."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products under the current autocast setting."""
    if device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return torch.float32


def cast(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the compute dtype; unchanged on the CPU, whose recurrent kernels require fp32."""
    dtype = compute_dtype(tensors[0].device)
    return [tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors]


MIN_PARALLEL_WORK = 2e7  # multiplications of one product below which one thread is faster
_saved_counts: list[int] = []  # thread counts to restore, innermost last


@contextmanager
def limit_threads(multiplications: float) -> Iterator[None]:
    """Use one thread in the block if its largest matrix product is small."""
    is_active_wait = os.environ.get("OMP_WAIT_POLICY", "active").lower() != "passive"
    if is_active_wait or multiplications >= MIN_PARALLEL_WORK or torch.get_num_threads() == 1:
        yield
        return
    _saved_counts.append(torch.get_num_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(_saved_counts.pop())


@contextmanager
def use_all_threads(multiplications: float) -> Iterator[None]:
    """Use all threads again for a large product inside a `limit_threads` block."""
    if multiplications < MIN_PARALLEL_WORK or not _saved_counts:
        yield
        return
    torch.set_num_threads(_saved_counts[-1])
    try:
        yield
    finally:
        torch.set_num_threads(1)
