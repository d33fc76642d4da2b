"""Recurrent layers of any width on tensor cores, which read rows of 8 numbers: a layer of 1150 runs as one of 1152.

Units of zero weights are put in; their state is 0 at every step (tanh 0 = 0, and 0 is what their gates let
through), so the others' numbers are those of the narrow layer. They are cut off again after the last step.
"""

from typing import Final

from torch import Tensor
from torch.nn.functional import pad

from chainrule.neural.network import Tensors

MULTIPLE: Final = 8


def is_even(x: Tensor, state: Tensors) -> bool:
    """Whether input and layers have such widths already."""
    return not (x.shape[-1] % MULTIPLE or state[0].shape[-1] % MULTIPLE)


def inputs(x: Tensor) -> Tensor:
    """The last dimension, zeros added."""
    return pad(x, (0, -x.shape[-1] % MULTIPLE))


def weights(given: list[Tensor], gates: int) -> list[Tensor]:
    """W (gates · D, in), R (gates · D, D) and both biases of each layer: every gate's block gets its rows."""
    found = []
    for tensor in given:
        D, ins = len(tensor) // gates, tensor.shape[1:]
        blocks = tensor.view(gates, D, *ins)
        sides = (0, -ins[0] % MULTIPLE, 0, -D % MULTIPLE) if ins else (0, -D % MULTIPLE)
        found.append(pad(blocks, sides).flatten(0, 1))
    return found
