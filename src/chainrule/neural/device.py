"""Device selection and exact arithmetic for evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from chainrule.errors import UsageError


def select_device(name: str) -> torch.device:
    """Return the named torch device; `auto` is the GPU if available, else the CPU."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("device is 'cuda', and torch finds no GPU here; choose cpu, or see chainrule doctor")
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
