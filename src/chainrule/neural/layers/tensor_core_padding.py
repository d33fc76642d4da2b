"""Pad recurrent layers to multiples of 8 units for tensor cores, e.g. 1150 to 1152.

Padding units have zero weights, so their state stays 0 and the other units are unaffected. They are removed from
the outputs.
"""

from typing import Final

from torch import Tensor
from torch.nn.functional import pad

from chainrule.neural.network import Tensors

MULTIPLE: Final = 8


def is_aligned(x: Tensor, state: Tensors) -> bool:
    """Whether the input and state widths are already multiples of 8."""
    return not (x.shape[-1] % MULTIPLE or state[0].shape[-1] % MULTIPLE)


def pad_last_dim(x: Tensor) -> Tensor:
    """Zero-pad the last dimension."""
    return pad(x, (0, -x.shape[-1] % MULTIPLE))


def pad_weights(tensors: list[Tensor], gates: int) -> list[Tensor]:
    """Zero-pad W (gates · D, in), R (gates · D, D) and both biases of each layer, gate by gate."""
    padded = []
    for tensor in tensors:
        D, in_shape = len(tensor) // gates, tensor.shape[1:]
        blocks = tensor.view(gates, D, *in_shape)
        padding = (0, -in_shape[0] % MULTIPLE, 0, -D % MULTIPLE) if in_shape else (0, -D % MULTIPLE)
        padded.append(pad(blocks, padding).flatten(0, 1))
    return padded
