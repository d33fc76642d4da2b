"""Dtype of a forward pass: fp32, or half precision under `torch.autocast`."""

import torch
from torch import Tensor


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products under the current autocast setting."""
    if device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return torch.float32


def cast(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the compute dtype; unchanged on the CPU, whose recurrent kernels require fp32."""
    dtype = compute_dtype(tensors[0].device)
    return [tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors]
