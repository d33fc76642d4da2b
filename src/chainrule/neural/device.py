"""Device selection and exact arithmetic for evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

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


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products under the current autocast setting."""
    if device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return torch.float32


def cast(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the compute dtype; unchanged on the CPU, whose recurrent kernels require fp32."""
    dtype = compute_dtype(tensors[0].device)
    return [tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors]
