"""The arithmetic of a forward pass: fp32, or half precision where the loop asked for it by `torch.autocast`."""

import torch
from torch import Tensor


def compute_dtype(device: torch.device) -> torch.dtype:
    """What matrix products are computed in here and now."""
    if device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return torch.float32


def cast(*tensors: Tensor) -> list[Tensor]:
    """The tensors in the arithmetic of the pass; unchanged on the processor, whose recurrent kernels want fp32."""
    dtype = compute_dtype(tensors[0].device)
    return [tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors]
